"""Files under a folder, by their endings."""

from __future__ import annotations

import os
from pathlib import Path

DEEPEST = 4


def list_files(
    folder: str | os.PathLike[str], suffixes: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Every file under a folder with one of the endings, in the order of names, with the folders
    that lead to it. Hidden files are skipped; linked folders are followed."""
    listed: dict[str, tuple[str, ...]] = {}
    for where, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        names = Path(where).relative_to(folder).parts
        # a limit on depth, so that a link to a folder above ends
        inner = sorted(folders) if len(names) < DEEPEST else []
        folders[:] = [name for name in inner if not name.startswith(".")]
        for name in sorted(files):
            if not name.startswith(".") and name.lower().endswith(suffixes):
                listed[os.path.join(where, name)] = names
    return listed


def _raise(error: OSError) -> None:
    raise error
