"""FileIndex: a living index in one file; what it has acknowledged survives the process."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rankbits import _check
from rankbits._files import _sync_folder
from rankbits.indexes import lock
from rankbits.indexes.file import Header, failing, read_body, replace_whole
from rankbits.indexes.hamming import HammingIndex
from rankbits.indexes.ids import Column
from rankbits.indexes.journal import read, read_from, record_bytes
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
        self._closed = False
        if _check.choice("mode", mode, ("r", "w")) == "r":
            self._mode = "r"
            self._state, _, _ = read(self.path, verify=verify)
        else:
            self._mode = "w"
            self._begin(bits, verify)
        if bits is not None and self._state.bits != bits:
            found = self._state.bits
            self.close()
            _check.refuse(f"{path} holds codes of {found} bits; got bits={bits}.")
        self.bits = self._state.bits

    def _begin(self, bits: int | None, verify: bool) -> None:
        if not self.path.exists():
            if bits is None:
                _check.refuse(f"{self.path} does not exist; give bits to make it.")
            _make(self.path, Snapshot(bits))
        self._handle = lock.taken(self.path)
        # what a process killed while rewriting has left: with the lock in hand it is nobody's
        for stale in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????"):
            with contextlib.suppress(OSError):
                stale.unlink()
        try:
            with os.fdopen(os.dup(self._handle), "rb") as source:
                self._state, header, self._end = read_from(source, self.path, verify=verify)
            self._settle(header)
            if os.fstat(self._handle).st_size > self._end:
                os.ftruncate(self._handle, self._end)
                os.fsync(self._handle)
        except BaseException:
            self.close()
            raise

    def _now(self) -> Snapshot:
        if self._closed:
            _check.refuse(f"The index {self.path} is closed.")
        return self._state

    def _writable(self) -> None:
        self._now()
        if self._mode == "r":
            _check.refuse(f"{self.path} is open for reading: mode='w' writes to it.")
        if not lock.named(self._handle, self.path):
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
        data = record_bytes(verb, ids, codes)
        try:
            _write(self._handle, data, self._end)
        except BaseException as error:
            try:
                os.ftruncate(self._handle, self._end)
                os.fsync(self._handle)
            except OSError:  # nobody can say what is on this disk now
                self.close()
            if isinstance(error, OSError):
                failing(self.path, error)
            raise
        self._end += len(data)
        self._state = state

    def _describe(self, state: Snapshot) -> None:
        self._writable()
        self._rewrite(state)

    def compact(self) -> None:
        """Rewrite the file whole, without a journal and without what was removed."""
        with self._writing:
            self._writable()
            self._rewrite(self._state)

    def _rewrite(self, state: Snapshot) -> None:
        """Put a file of ``state`` in place, locked before it is anybody's, and search that from now
        on; readers that began before keep the old one mapped."""
        kept: list[int] = []

        def keep(handle: int) -> None:
            kept.append(os.dup(handle))
            lock.hold(kept[0])

        try:
            header = replace_whole(self.path, state, keep)
        except BaseException:
            for handle in kept:
                lock.released(handle)
            raise
        lock.released(self._handle)
        self._handle, self._end = kept[0], header.end
        self._settle(header)
        with os.fdopen(os.dup(self._handle), "rb") as source:
            self._state = read_body(source, self.path, verify=False)[1]

    def _settle(self, header: Header) -> None:
        self._body = header.end
        self._limit = max(LEAST, self._body // 4)

    def close(self) -> None:
        """Let go of the file; everything acknowledged is in it already."""
        with self._writing:
            self._closed = True
            if self._handle >= 0:
                lock.released(self._handle)
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


def _make(path: Path, state: Snapshot) -> None:
    """A new file under ``path``; where another process was quicker, its file stays."""
    if not path.parent.is_dir():
        _check.refuse(f"Cannot write {path}: the folder {path.parent} does not exist.")
    folder = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
    made = Path(folder) / "new"
    try:
        replace_whole(made, state)
        try:
            os.link(made, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.rename(made, path)
        _sync_folder(path.parent)
    finally:
        made.unlink(missing_ok=True)
        os.rmdir(folder)
