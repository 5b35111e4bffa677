"""What every reader of a published dataset returns, and the functions that the readers share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rankbits import _check
from rankbits._files import ROOT
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.tables import read_fields


@dataclass(frozen=True, eq=False)
class Dataset:
    """A published dataset: all its examples, and the rows of each part that its publisher names.

    >>> Dataset(Examples(np.eye(2), [0, 1]), {"train": np.array([0]), "test": np.array([1])}).note
    ''
    """

    examples: Examples
    parts: Mapping[str, np.ndarray]
    note: str = ""


def split_in_order(**sizes: int) -> dict[str, np.ndarray]:
    """Number the rows of parts that follow one another.

    >>> {name: rows.tolist() for name, rows in split_in_order(train=2, test=1).items()}
    {'train': [0, 1], 'test': [2]}
    """
    ends = np.cumsum(list(sizes.values()))
    return {
        name: np.arange(end - size, end, dtype=np.int64)
        for (name, size), end in zip(sizes.items(), ends, strict=True)
    }


def refuse_missing(path: Path, put: str) -> NoReturn:
    """Refuse a missing file or folder, and say what to put there."""
    _check.refuse(f"{path} does not exist: put {put} there, or set {ROOT} to where it is.")


def check_sum(path: Path, content: Any, sums: Mapping[str, str]) -> None:
    """Refuse content whose sha256 is not the one known for a file of this name."""
    wanted = sums.get(path.name)
    if wanted is None:
        return
    computed = hashlib.sha256(content).hexdigest()
    if computed != wanted:
        _check.refuse(
            f"{path} is damaged or not its publisher's: the sha256 of what it holds must begin "
            f"with {wanted[:12]}; got {computed[:12]}."
        )


def read_bytes(path: Path, put: str) -> bytes:
    """Read the bytes of a file; a missing one is refused with what to put there."""
    if not path.is_file():
        refuse_missing(path, put)
    return path.read_bytes()


def read_list(path: Path, form: str, put: str, skip: int = 0) -> list[list[str]]:
    """Read the words of each line of a publisher's list, as many as ``form`` has."""
    if not path.is_file():
        refuse_missing(path, put)
    return [words for _, words in read_fields(path, form, skip)]


def number_names(names: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number names in the order in which they first occur -> int64 numbers, and the names.

    >>> numbers, names = number_names(["b", "a", "b"])
    >>> numbers.tolist(), names
    ([0, 1, 0], ('b', 'a'))
    """
    number: dict[str, int] = {}
    numbers = (number.setdefault(name, len(number)) for name in names)
    return np.fromiter(numbers, np.int64, len(names)), tuple(number)


def open_images(paths: list[str], name: str) -> ImageFiles:
    """Open image files as inputs; refuses where the first does not exist."""
    if paths and not Path(paths[0]).is_file():
        refuse_missing(Path(paths[0]), f"the images of {name}")
    return ImageFiles(np.array(paths, dtype=str))
