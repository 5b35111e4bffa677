"""Files under a folder, and their ids."""

from __future__ import annotations

import os
from pathlib import Path

DEEPEST = 4


def list_files(
    folder: str | os.PathLike[str], suffixes: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Every file under a folder with one of the endings, in the order of names, with the folders
    that lead to it. Hidden files are skipped; linked folders are followed."""
    above: dict[str, tuple[str, ...]] = {}
    for where, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        names = Path(where).relative_to(folder).parts
        # the limit on depth ends the walk where a link leads to a folder above it
        inner = sorted(folders) if len(names) < DEEPEST else []
        folders[:] = [name for name in inner if not name.startswith(".")]
        for name in sorted(files):
            if not name.startswith(".") and name.lower().endswith(suffixes):
                above[os.path.join(where, name)] = names
    return above


def make_file_id(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> str:
    """The id of a file: its path below ``folder``, with forward slashes.

    >>> make_file_id("photos/birds/a.jpg", "photos")
    'birds/a.jpg'
    """
    return Path(os.path.relpath(path, folder)).as_posix()


def _raise(error: OSError) -> None:
    raise error
