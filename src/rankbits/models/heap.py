"""Keep the memory of a network's layers for the next batch, on a CPU.

A layer's output is a block of megabytes, which glibc returns to the system as soon as it is free.
For the next batch the system clears the same pages again, one by one, and that can take as long as
the layers themselves. Other C libraries, and macOS and Windows, are left as they are.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt
KEPT = 1 << 30  # blocks below this are kept, and as much of free memory at the heap's end
USUAL = 32 << 20  # the highest that glibc's own threshold rises to
CHOSEN_BY_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")

_lock = threading.Lock()
_inside = 0


@contextmanager
def keep_memory() -> Iterator[None]:
    """Keep what is freed inside the block for later use there; give it back to the system after.

    Peak memory rises by up to a third, for kept blocks do not fit every later use. It does nothing
    where the user has set glibc's thresholds by an environment variable.
    """
    global _inside
    library = find_glibc()
    if library is None:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            _set_thresholds(library, KEPT, 2 * KEPT - 1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set_thresholds(library, USUAL, 2 * USUAL)
                library.malloc_trim(0)


def find_glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc and the user has not set its thresholds."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in CHOSEN_BY_USER):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") else None


def _set_thresholds(library: ctypes.CDLL, mmap: int, trim: int) -> None:
    library.mallopt(MMAP_THRESHOLD, mmap)
    library.mallopt(TRIM_THRESHOLD, trim)
