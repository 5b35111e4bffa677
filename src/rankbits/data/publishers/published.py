"""What every reader of a published dataset returns, and how their text lists are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.root import missing


@dataclass(frozen=True, eq=False)
class Published:
    """A dataset as published: all its examples, and the rows of each part its publisher named.

    >>> Published(Examples(np.eye(2), [0, 1]), {"train": np.array([0]), "test": np.array([1])}).note
    ''
    """

    examples: Examples
    parts: Mapping[str, np.ndarray]
    note: str = ""


def in_parts(**sizes: int) -> dict[str, np.ndarray]:
    """Parts that follow one another.

    >>> {name: rows.tolist() for name, rows in in_parts(train=2, test=1).items()}
    {'train': [0, 1], 'test': [2]}
    """
    ends = np.cumsum(list(sizes.values()))
    return {
        name: np.arange(end - size, end, dtype=np.int64)
        for (name, size), end in zip(sizes.items(), ends, strict=True)
    }


def fields(path: Path, form: str, put: str, skip: int = 0) -> Iterator[list[str]]:
    """The words of each line of a publisher's list, as many as ``form`` has."""
    if not path.is_file():
        missing(path, put)
    wanted = len(form.split())
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if number <= skip or not words:
                    continue
                if len(words) != wanted:
                    _check.refuse(f"{path} line {number} must be '{form}'; got {line.strip()!r}.")
                yield words
    except UnicodeDecodeError:
        _check.refuse(f"{path} is not a text file of lines '{form}'.")


def numbered(names: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Names as int64 numbers in the order of first sight, and the names by number.

    >>> numbers, found = numbered(["b", "a", "b"])
    >>> numbers.tolist(), found
    ([0, 1, 0], ('b', 'a'))
    """
    of: dict[str, int] = {}
    numbers = np.fromiter((of.setdefault(name, len(of)) for name in names), np.int64, len(names))
    return numbers, tuple(of)


def present(paths: list[str], put: str) -> np.ndarray:
    """Paths as an array, after a look whether the first is there at all."""
    if paths and not Path(paths[0]).is_file():
        missing(Path(paths[0]), put)
    return np.array(paths, dtype=str)
