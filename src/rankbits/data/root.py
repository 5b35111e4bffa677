"""Where published datasets lie, and whether they are what their publishers made.

One folder holds them all: ``root=`` of the call, else ``RANKBITS_DATA``, else
``~/.cache/rankbits/data``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rankbits import _check


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the datasets.

    >>> data_root("here").name
    'here'
    """
    if root is not None:
        return Path(root)
    named = os.environ.get("RANKBITS_DATA")
    return Path(named) if named else Path.home() / ".cache" / "rankbits" / "data"


def missing(path: Path, put: str) -> NoReturn:
    """Refuse a missing file or folder, and say what to put there."""
    _check.refuse(f"{path} does not exist: put {put} there, or set RANKBITS_DATA to where it is.")


def authentic(path: Path, content: Any, sums: Mapping[str, str]) -> None:
    """Refuse content whose sha256 is not the one known for a file of this name."""
    wanted = sums.get(path.name)
    if wanted is None:
        return
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        _check.refuse(
            f"{path} is damaged or not its publisher's: the sha256 of what it holds must begin "
            f"with {wanted[:12]}; got {found[:12]}."
        )
