"""A dataset with its splits and the figure it is judged by; and a search for leaks between the
splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples, hash_rows

PARTS = ("train", "queries", "database", "validation")
WORDS = {
    "train": "a training image",
    "queries": "one of the queries",
    "database": "an image of the database",
}


@dataclass(frozen=True, eq=False, repr=False)
class Protocol:
    """A dataset with its splits, each int64 rows of ``examples``, and how results are judged.

    ``exclude_self``: the queries are the database, and each is left out of its own ranking.
    ``metric`` names the headline figure in ``rb.evaluate``'s report. The queries must not share a
    row with any other split, nor the validation rows with the training rows.

    >>> Protocol("mine", Examples(np.eye(4), [0, 0, 1, 1]), [0, 2], [1], [0, 2, 3])
    Protocol(mine: 2 train, 1 queries, 3 database)
    """

    name: str
    examples: Examples
    train: np.ndarray
    queries: np.ndarray
    database: np.ndarray
    validation: np.ndarray | None = None
    exclude_self: bool = False
    k: tuple[int, ...] = (10, 100, 1000)
    tie_break: bool = False
    relevance: str = "any"
    metric: str = "mAP"
    note: str = ""

    def __post_init__(self) -> None:
        _check.choice("relevance", self.relevance, ("any", "count"))
        for split in PARTS:
            if (rows := getattr(self, split)) is not None:
                object.__setattr__(self, split, self._check_rows(split, rows))
        if self.exclude_self:
            if not np.array_equal(self.queries, self.database):
                _check.refuse(f"The queries of {self.name} must be its database: exclude_self.")
            object.__setattr__(self, "database", self.queries)
        else:
            self._refuse_shared("queries", "database")
        self._refuse_shared("train", "queries")
        if self.validation is not None:
            self._refuse_shared("validation", "train")
            self._refuse_shared("validation", "queries")

    def part(self, split: str | None) -> Examples:
        """The examples of one split: "train", "queries", "database" or "validation"."""
        rows = getattr(self, _check.choice("part of a protocol", split, PARTS))
        if rows is None:
            _check.refuse(f"{self.name} has no {split} rows.")
        return self.examples.subset(rows)

    def _check_rows(self, split: str, values: Any) -> np.ndarray:
        rows = np.asarray(values, np.int64)
        if len(np.unique(rows)) != len(rows):
            _check.refuse(f"The {split} of {self.name} must have no row twice.")
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self.examples)):
            _check.refuse(f"The {split} of {self.name} must be rows of its examples.")
        return rows

    def _refuse_shared(self, split: str, other: str) -> None:
        shared = len(np.intersect1d(getattr(self, split), getattr(self, other)))
        if shared:
            _check.refuse(
                f"The {split} and the {other} of {self.name} must not share a row; "
                f"they share {shared:,}."
            )

    def __repr__(self) -> str:
        rows = {split: getattr(self, split) for split in PARTS}
        sizes = [f"{len(rows[split]):,} {split}" for split in PARTS if rows[split] is not None]
        return f"Protocol({self.name}: {', '.join(sizes)})"


def find_leaks(protocol: Protocol) -> list[str]:
    """Sentences about leaks: images of one split whose bytes are also in another.

    ``Protocol`` refuses a row in two splits, but a dataset may hold the same image in two rows.
    Such copies are counted here; they are not an error.

    >>> examples = Examples(np.array([[1.0], [1.0], [2.0]]), [0, 0, 1])
    >>> find_leaks(Protocol("mine", examples, [2], [0], [1, 2]))
    ['1 of 1 queries has the same bytes as an image of the database.']
    """
    hashes = hash_rows(protocol.examples.inputs)
    leaks, pairs = [], [("queries", "database"), ("queries", "train")]
    if protocol.exclude_self:
        del pairs[0]
        _, times = np.unique(hashes[protocol.queries], return_counts=True)
        copies = int(times[times > 1].sum())
        leaks += _describe_leak(copies, len(protocol.queries), "queries", "another of them")
    if protocol.validation is not None:
        pairs += [("validation", "train"), ("validation", "queries")]
    for split, other in pairs:
        rows = getattr(protocol, split)
        copies = int(np.isin(hashes[rows], hashes[getattr(protocol, other)]).sum())
        leaks += _describe_leak(copies, len(rows), split, WORDS[other])
    return leaks


def _describe_leak(copies: int, rows: int, split: str, where: str) -> list[str]:
    if not copies:
        return []
    have = "has" if copies == 1 else "have"
    return [f"{copies:,} of {rows:,} {split} {have} the same bytes as {where}."]
