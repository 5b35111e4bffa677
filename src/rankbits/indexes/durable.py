"""FileIndex: a living index in one file; what it has acknowledged survives the process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rankbits import _check
from rankbits._files import refuse_write, sweep_unfinished, sync_folder
from rankbits.indexes import lock
from rankbits.indexes.file import Header, read_body, replace_whole
from rankbits.indexes.hamming import HammingIndex
from rankbits.indexes.ids import Column
from rankbits.indexes.journal import kept_mark, read_index, record_bytes
from rankbits.indexes.segments import Snapshot
from rankbits.types import Codes

if TYPE_CHECKING:
    from typing import Self

LEAST = 4 << 20  # bytes of journal below which a file is not rewritten


class FileIndex(HammingIndex):
    """A ``HammingIndex`` that lives in the file ``path``, made there where ``bits`` are given.

    Each ``add`` and ``remove`` is on the disk when it returns: a killed process loses nothing that
    it acknowledged, and at most the call in flight is there or not, never half. One process writes
    at a time; ``mode="r"`` reads beside it and sees the index as it was when opened. When the disk
    is full the call is refused and index and file stay as they were. The file is rewritten, whole,
    when its journal has outgrown a quarter of it, or by ``compact``.

    >>> import tempfile, pathlib
    >>> from rankbits import pack
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.index"
    >>> with FileIndex(path, bits=3) as index:
    ...     _ = index.add(pack([[1, 1, 1], [-1, 1, -1]]), ids=["cat", "dog"])
    >>> FileIndex(path, mode="r").search(pack([[-1, 1, 1]]), k=1).ids
    array([['cat']], dtype=object)
    """

    _body: int  # where the body ends,
    _end: int  # the journal after it,
    _limit: int  # and how long the journal may grow
    _salt: int  # of the journal's records,
    _number: int  # and how many there are

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int | None = None,
        *,
        mode: str = "w",
        verify: bool = True,
    ) -> None:
        super().__init__(1 if bits is None else bits)
        self.path = Path(path)
        self._handle = -1
        self._owner, self._verify = os.getpid(), verify
        self._closed = False
        self._mode = _check.choice("mode", mode, ("r", "w"))
        if self._mode == "r":
            contents = read_index(self.path, verify=verify)
            self._state, self._source = contents.state, contents.source
        else:
            self._begin(bits)
        if bits is not None and self._state.bits != bits:
            held = self._state.bits
            self.close()
            _check.refuse(f"{path} holds codes of {held} bits; got bits={bits}.")
        self.bits = self._state.bits

    def _begin(self, bits: int | None) -> None:
        if not self.path.exists():
            if bits is None:
                _check.refuse(f"{self.path} does not exist; give bits to make it.")
            replace_whole(self.path, Snapshot(bits), replace=False)
        self._handle = lock.open_locked(self.path)
        try:
            # with the lock in hand, what a process killed while rewriting has left is nobody's
            real = Path(os.path.realpath(self.path))
            sweep_unfinished(real.parent, real.name)
            with contextlib.suppress(PermissionError):  # of a folder that may not be listed
                sync_folder(real.parent)  # the file may have its name only since a moment
            contents = read_index(self.path, verify=self._verify)
            self._check_place()
            self._state, self._source = contents.state, contents.source
            self._settle(contents.header)
            journal = contents.journal
            self._end, self._number = journal.end, journal.number
            if journal.salt is not None:
                self._salt = journal.salt
            if os.fstat(self._handle).st_size > self._end:
                os.ftruncate(self._handle, self._end)
            if journal.records:  # whoever wrote the last may have been killed before it was synced
                os.fsync(self._handle)
                if not journal.kept:
                    self._mark()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                refuse_write(self.path, error)
            raise

    def _now(self) -> Snapshot:
        if self._closed:
            _check.refuse(f"The index {self.path} is closed.")
        return super()._now()

    def _writable(self) -> None:
        self._now()
        if self._mode == "r":
            _check.refuse(f"{self.path} is open for reading: mode='w' writes to it.")
        if self._owner != os.getpid():
            _check.refuse(f"{self.path} was opened before this process was forked: open it again.")
        self._check_place()

    def _check_place(self) -> None:
        if not lock.is_at(self._handle, self.path):
            _check.refuse(f"{self.path} was deleted or replaced by others: open it again.")

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        self._writable()
        if verb == "remove":  # a journal never speaks of more ids than there are
            ids = Column(self._state.present(ids.all()))
        weight = len(ids) * ((self.bits + 7) // 8 + 8)
        if self._end - self._body + weight > self._limit:
            try:
                return self._rewrite(state)
            except _check.Refusal:  # no room for a second file: the journal needs less
                self._limit = 2 * (self._end - self._body + weight)
                self._writable()  # unless the new file took the name and failed only after that
        if os.fstat(self._handle).st_size != self._end:
            _check.refuse(f"{self.path} was changed by others while it was open: open it again.")
        data = record_bytes(verb, ids, codes, self._salt, self._number + 1)
        try:
            _write(self._handle, data, self._end)
        except BaseException as error:
            try:
                os.ftruncate(self._handle, self._end)
                os.fsync(self._handle)
            except OSError:  # nobody can say what is on this disk now
                self.close()
            if isinstance(error, OSError):
                refuse_write(self.path, error)
            raise
        self._end += len(data)
        self._number += 1
        self._mark()
        self._state = state

    def _mark(self) -> None:
        """Say of the last record, which is on the disk, that it was acknowledged. The mark itself
        may be lost: it only tells damage from an unfinished end."""
        mark = kept_mark(self._salt)
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, mark, self._end - len(mark))

    def _describe(self, state: Snapshot) -> None:
        self._writable()
        self._rewrite(state)

    def compact(self) -> None:
        """Rewrite the file whole, without a journal and without what was removed."""
        with self._writing:
            self._writable()
            self._rewrite(self._state)

    def build_tables(self) -> int:
        """As of every ``HammingIndex``; those of the rows in the body of the file are written to
        ``….tables`` beside it, where the next to open the index finds them. Call it after
        ``compact``: what is in the journal has no tables in that file."""
        with self._writing:
            size = super().build_tables()
            if self._mode == "w":
                self._writable()
                for segment in self._state.segments:
                    segment.tables.save()
        return size

    def _rewrite(self, state: Snapshot) -> None:
        """Put a file of ``state`` in place, locked before it is anybody's, and search that from now
        on; readers that began before keep the old one mapped."""
        kept: list[int] = []

        def keep(handle: int) -> None:
            kept.append(os.dup(handle))
            lock.hold(kept[0], self.path)

        try:
            header = replace_whole(self.path, state, keep)
        except BaseException:
            for handle in kept:
                lock.release(handle)
            raise
        lock.release(self._handle)
        self._handle = kept[0]
        self._settle(header)
        self._state = state
        with contextlib.suppress(OSError), open(self.path, "rb") as source:
            body = read_body(source, self.path, verify=False, mapped=not self._verify)
            self._state, self._source = body.state, body.source

    def _settle(self, header: Header) -> None:
        self._body = self._end = header.end
        self._limit = max(LEAST, self._body // 4)
        self._salt, self._number = int.from_bytes(os.urandom(4), "little"), 0

    def close(self) -> None:
        """Let go of the file; everything acknowledged is in it already."""
        if self._owner != os.getpid():  # the handle was closed by the fork, and the lock stays
            self._closed, self._handle = True, -1
            return
        with self._writing:
            self._closed = True
            if self._handle >= 0:
                lock.release(self._handle)
                self._handle = -1

    def __del__(self) -> None:
        if getattr(self, "_handle", -1) >= 0:
            self.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Self:
        """The living index at ``path``, for writing."""
        return cls(path, verify=verify)


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while len(view):
        done = os.pwrite(handle, view, at)
        view, at = view[done:], at + done
    os.fsync(handle)
