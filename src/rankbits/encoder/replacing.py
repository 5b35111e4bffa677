"""Replace several files of a folder together: after a crash all are old or all are new."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rankbits import _check
from rankbits._files import refuse_write, sync_folder, write_whole

NEXT = ".next."  # begins the name of a new file until all are written
LIST = f"{NEXT}json"  # the names of the new files, written after all of them


def replace_files(
    folder: Path, writers: Mapping[str, Callable[[Path], object]], allowed: tuple[str, ...]
) -> None:
    """Write each new file by its function, beside the old one, then rename all. If a crash comes in
    between, the next reader finishes the renaming. ``allowed``: names that the files may have."""
    finish_replacing(folder, allowed)
    try:
        for name, write in writers.items():
            write(folder / f"{NEXT}{name}")
        names = json.dumps(list(writers)).encode()
        write_whole(folder / LIST, lambda file: file.write(names))
    except BaseException:
        if not (folder / LIST).exists():
            for name in writers:
                with suppress(OSError):
                    (folder / f"{NEXT}{name}").unlink()
        raise
    finish_replacing(folder, allowed)


def finish_replacing(folder: Path, allowed: tuple[str, ...]) -> None:
    """Rename new files to their names, if all of them are written (a crash may have interrupted
    ``replace_files``)."""
    path = folder / LIST
    try:
        names = json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(name in allowed for name in names):
        _check.refuse(f"{path} is damaged or not of this folder.")
    try:
        for name in names:
            with suppress(FileNotFoundError):  # renamed already
                os.replace(folder / f"{NEXT}{name}", folder / name)
        sync_folder(folder)
        path.unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        refuse_write(folder, error)
