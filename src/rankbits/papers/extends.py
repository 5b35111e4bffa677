"""Read recipe files that extend others: ``extends = "h2q/_tuned"`` begins with that file's tables.

``extends = ["h2q/_cel", "h2q/_coco"]`` begins with several; a later one overrides an earlier one. A
file whose name begins with an underscore is only there to be extended: it need not be a whole
recipe, and is never listed or run as one.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import Any

from rankbits import _check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTENDS = "extends"


def merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge ``own`` into ``base``: tables are merged, anything else is replaced.

    >>> merge({"bits": [16], "train": {"lr": 1, "side": 128}}, {"bits": [32], "train": {"lr": 2}})
    {'bits': [32], 'train': {'lr': 2, 'side': 128}}
    """
    merged = dict(base)
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            value = merge(base[key], value)
        merged[key] = value
    return merged


def read_table(path: Path, folder: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file's tables, merged into those of the files it extends. ``folder`` holds all
    recipes; ``above`` are the files that extend this one, none of which it may extend."""
    own = _read_file(path)
    names = own.pop(EXTENDS, None)
    table: dict[str, Any] = {}
    for name in names if isinstance(names, list) else [] if names is None else [names]:
        files = (*above, path)
        table = merge(table, read_table(_find_extended(files, name, folder), folder, files))
    return merge(table, own)


def _find_extended(files: tuple[Path, ...], name: Any, folder: Path) -> Path:
    """Find the file that ``name`` means in the last of ``files``."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or parts[0] == "/" or ".." in parts:
        _check.refuse(
            f"extends of {files[-1]} must name a file below {folder}, without .toml; got {name!r}."
        )
    extended = folder.joinpath(*parts[:-1], f"{parts[-1]}.toml")
    if extended in files:
        _check.refuse(f"{files[-1]} extends {extended}, which itself extends {files[-1]}.")
    if not extended.is_file():
        names = (p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.toml"))
        near = _check.suggest("/".join(parts), sorted(names))
        _check.refuse(f"{files[-1]} extends {extended}, which does not exist{near}.")
    return extended


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8, or brackets without end
        _check.refuse(f"{path} is not TOML: {error}.")
