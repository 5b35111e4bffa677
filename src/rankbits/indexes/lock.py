"""One writer at a time: a lock on the index file itself, which ends with its process.

A locked file may be replaced by another, so after locking we check that the name still belongs to
the file, and a new file is locked before it takes the name. A forked child shares its parent's lock
and could release it, so it closes the handles it inherited and must open the index itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from rankbits import _check

try:
    import fcntl  # at the top: while Python shuts down nothing can be imported
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_locked_handles: set[int] = set()


def _close_in_child() -> None:
    while _locked_handles:
        os.close(_locked_handles.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def hold(handle: int, path: str | os.PathLike[str]) -> bool:
    """Lock an open file for writing; False where it is locked already."""
    if fcntl is None:
        _check.refuse("Writing to an index file needs a system with file locks (flock).")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        _check.refuse(f"Cannot lock {path}: {reason}; index files need a disk with locks.")
    _locked_handles.add(handle)
    return True


def release(handle: int) -> None:
    """Unlock and close the file. Closing alone is not enough: a process that was forked outside of
    Python may have a copy of the handle, and with it the lock."""
    _locked_handles.discard(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def is_at(handle: int, path: str | os.PathLike[str]) -> bool:
    """Whether the open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def open_locked(path: str | os.PathLike[str]) -> int:
    """Open an existing file for reading and writing, and lock it; returns the handle."""
    while True:
        if not Path(path).is_file():
            _check.refuse(f"{path} does not exist or is not a file.")
        try:
            handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            _check.refuse(f"Cannot write {path}: {os.strerror(error.errno or 0)}.")
        try:
            if not hold(handle, path):
                _check.refuse(
                    f"{path} is open for writing elsewhere: one writer at a time (mode='r' reads "
                    "it)."
                )
        except BaseException:
            os.close(handle)
            raise
        if is_at(handle, path):
            return handle
        release(handle)
