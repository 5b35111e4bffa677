"""One writer at a time: a lock on the index file itself, which ends with the process that holds it.

A file may be put in the place of a locked one, so whoever has locked looks whether the name still
means the file, and a new file is locked before it takes the name.
"""

from __future__ import annotations

import os
from pathlib import Path

from rankbits import _check


def hold(handle: int) -> bool:
    """Lock an open file for writing; False where another holds it."""
    try:
        import fcntl
    except ImportError:
        _check.refuse("Writing to an index file needs a system with file locks (flock).")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def released(handle: int) -> None:
    """Unlock and close. A map of the file holds a copy of the handle, and with it the lock, so that
    closing alone would not end it."""
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def named(handle: int, path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is the name of the open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def taken(path: str | os.PathLike[str]) -> int:
    """The handle of an existing file, open for reading and writing and locked."""
    while True:
        if not Path(path).is_file():
            _check.refuse(f"{path} does not exist or is not a file.")
        try:
            handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            _check.refuse(f"Cannot write {path}: {os.strerror(error.errno or 0)}.")
        if not hold(handle):
            os.close(handle)
            _check.refuse(
                f"{path} is open for writing elsewhere: one writer at a time (mode='r' reads it)."
            )
        if named(handle, path):
            return handle
        released(handle)
