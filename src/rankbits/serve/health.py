"""Check whether the file of an index can be written to."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

ROOM = 1 << 20  # bytes that must fit on the disk of an index


def has_room(path: Path, *, try_writing: bool) -> bool:
    """Say whether the file ``path`` exists and its disk has room for another write;
    ``try_writing`` writes some bytes beside it to find out."""
    try:
        if not path.is_file() or shutil.disk_usage(path.parent).free < ROOM:
            return False
        if try_writing:
            with tempfile.TemporaryFile(dir=path.parent, buffering=0) as file:
                return file.write(bytes(ROOM)) == ROOM
    except OSError:
        return False
    return True
