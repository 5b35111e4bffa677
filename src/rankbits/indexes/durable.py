"""FileIndex: an index in one file, which keeps every write that returned."""

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
from rankbits.indexes.journal import encode_record, make_mark, read_index
from rankbits.indexes.segments import Snapshot
from rankbits.types import Codes

if TYPE_CHECKING:
    from typing import Self

LEAST = 4 << 20  # bytes of journal below which a file is not rewritten


class FileIndex(HammingIndex):
    """A ``HammingIndex`` in the file ``path``; with ``bits``, the file is made if it is missing.

    Each ``add`` and ``remove`` is on the disk when it returns. If the process is killed, every call
    that returned is kept, and the one in progress is kept whole or not at all. One process writes
    at a time; with ``mode="r"`` others read the index as it was when they opened it. When the disk
    is full the call is refused, and the index and the file stay as they were. The file is rewritten
    when its journal has outgrown a quarter of it, and by ``compact``.

    >>> import tempfile, pathlib
    >>> from rankbits import pack
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.index"
    >>> with FileIndex(path, bits=3) as index:
    ...     _ = index.add(pack([[1, 1, 1], [-1, 1, -1]]), ids=["cat", "dog"])
    >>> FileIndex(path, mode="r").search(pack([[-1, 1, 1]]), k=1).ids
    array([['cat']], dtype=object)
    """

    _body: int  # where the body ends
    _end: int  # where the journal after it ends
    _limit: int  # how many bytes the journal may have before the file is rewritten
    _salt: int  # of the journal's records
    _number: int  # of the last record

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
            self._open_for_writing(bits)
        if bits is not None and self._state.bits != bits:
            self.close()
            _check.refuse(f"{path} holds codes of {self._state.bits} bits; got bits={bits}.")
        self.bits = self._state.bits

    def _open_for_writing(self, bits: int | None) -> None:
        if not self.path.exists():
            if bits is None:
                _check.refuse(f"{self.path} does not exist; give bits to make it.")
            replace_whole(self.path, Snapshot(bits), replace=False)
        self._handle = lock.open_locked(self.path)
        try:
            # nobody else can be writing now: unfinished files were left by a killed process
            real = Path(os.path.realpath(self.path))
            sweep_unfinished(real.parent, real.name)
            with contextlib.suppress(PermissionError):  # this folder may not be listed
                sync_folder(real.parent)  # the file may just have been renamed
            contents = read_index(self.path, verify=self._verify)
            self._check_place()
            self._state, self._source = contents.state, contents.source
            self._start_journal(contents.header)
            journal = contents.journal
            self._end, self._number = journal.end, journal.number
            if journal.salt is not None:
                self._salt = journal.salt
            if os.fstat(self._handle).st_size > self._end:
                os.ftruncate(self._handle, self._end)
            if journal.records:  # the last writer may have been killed before it synced
                os.fsync(self._handle)
                if not journal.kept:
                    self._mark_kept()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                refuse_write(self.path, error)
            raise

    def snapshot(self) -> Snapshot:
        if self._closed:
            _check.refuse(f"The index {self.path} is closed.")
        return super().snapshot()

    def _check_writable(self) -> None:
        self.snapshot()
        if self._mode == "r":
            _check.refuse(f"{self.path} is open for reading: mode='w' writes to it.")
        if self._owner != os.getpid():
            _check.refuse(f"{self.path} was opened before this process was forked: open it again.")
        self._check_place()

    def _check_place(self) -> None:
        if not lock.is_at(self._handle, self.path):
            _check.refuse(f"{self.path} was deleted or replaced by others: open it again.")

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        self._check_writable()
        if verb == "remove":  # the journal names only ids that are there
            ids = Column(self._state.select_present(ids.all()))
        size = len(ids) * ((self.bits + 7) // 8 + 8)
        if self._end - self._body + size > self._limit:
            try:
                return self._rewrite(state)
            except _check.Refusal:  # no room for a second file: the journal needs less
                self._limit = 2 * (self._end - self._body + size)
                self._check_writable()  # refuses if the new file is already in place
        if os.fstat(self._handle).st_size != self._end:
            _check.refuse(f"{self.path} was changed by others while it was open: open it again.")
        data = encode_record(verb, ids, codes, self._salt, self._number + 1)
        try:
            _write(self._handle, data, self._end)
        except BaseException as error:
            try:
                os.ftruncate(self._handle, self._end)
                os.fsync(self._handle)
            except OSError:  # what the file holds now is unknown
                self.close()
            if isinstance(error, OSError):
                refuse_write(self.path, error)
            raise
        self._end += len(data)
        self._number += 1
        self._mark_kept()
        self._state = state

    def _mark_kept(self) -> None:
        """Mark the last record, which is on the disk, as acknowledged. The mark itself may be lost:
        it only tells damage from an unfinished end."""
        mark = make_mark(self._salt)
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, mark, self._end - len(mark))

    def _put_facts(self, state: Snapshot) -> None:
        self._check_writable()
        self._rewrite(state)

    def compact(self) -> None:
        """Rewrite the file without its journal and without removed rows."""
        with self._writing:
            self._check_writable()
            self._rewrite(self._state)

    def build_tables(self) -> int:
        """Make the tables now, as in ``HammingIndex``, and write those of the rows in the body of
        the file to ``….tables`` beside it, for the next to open the index. Call ``compact`` first:
        rows in the journal get no tables in that file."""
        with self._writing:
            size = super().build_tables()
            if self._mode == "w":
                self._check_writable()
                for segment in self._state.segments:
                    segment.tables.save()
        return size

    def _rewrite(self, state: Snapshot) -> None:
        """Put a new file of ``state`` in place and search that from now on. It is locked before it
        takes the name; readers that opened the old file keep it mapped."""
        new_handles: list[int] = []

        def keep(handle: int) -> None:
            new_handles.append(os.dup(handle))
            lock.hold(new_handles[0], self.path)

        try:
            header = replace_whole(self.path, state, keep)
        except BaseException:
            for handle in new_handles:
                lock.release(handle)
            raise
        lock.release(self._handle)
        self._handle = new_handles[0]
        self._start_journal(header)
        self._state = state
        with contextlib.suppress(OSError), open(self.path, "rb") as source:
            body = read_body(source, self.path, verify=False, mapped=not self._verify)
            self._state, self._source = body.state, body.source

    def _start_journal(self, header: Header) -> None:
        """Begin an empty journal behind the body."""
        self._body = self._end = header.end
        self._limit = max(LEAST, self._body // 4)
        self._salt, self._number = int.from_bytes(os.urandom(4), "little"), 0

    def close(self) -> None:
        """Close the file; every write that returned is in it already."""
        if self._owner != os.getpid():  # the fork closed the handle; the parent keeps the lock
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
        """Open the index at ``path`` for writing."""
        return cls(path, verify=verify)


def _write(handle: int, data: bytes, at: int) -> None:
    """Write all of ``data`` at byte ``at`` and wait until it is on the disk."""
    view = memoryview(data)
    while len(view):
        done = os.pwrite(handle, view, at)
        view, at = view[done:], at + done
    os.fsync(handle)
