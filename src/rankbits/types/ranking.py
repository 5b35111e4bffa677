"""Ranking: counts of items by distance and relevance, from which metrics are computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankbits import _check


@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """Rankings of Q queries as counts: ``counts[q, d, g]`` items at level d with relevance grade g.

    Levels run from near to far; items of one level are tied. With b-bit codes level d *is* the
    Hamming distance d. Rankings of float distances carry ``distances`` (Q, D), the distance of
    each level, nan where a query has fewer levels. ``unretrieved`` (Q, G) counts items that exist
    but were not ranked (a run file that stops at 1,000): they count in denominators only.

    Shards of one database are merged by adding: ``ranking_a + ranking_b``.

    >>> Ranking(np.array([[[1, 2], [3, 0]]]))
    Ranking(1 query, 2 levels, grades 0 to 1)
    """

    counts: np.ndarray
    distances: np.ndarray | None = None
    unretrieved: np.ndarray | None = None

    def __post_init__(self) -> None:
        counts = _check.array("counts", self.counts)
        if counts.ndim != 3 or counts.dtype.kind not in "iu":
            _check.refuse(
                "counts must be whole numbers of shape (queries, levels, grades); "
                f"got {counts.dtype} {counts.shape}."
            )
        object.__setattr__(self, "counts", counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        queries, levels, grades = self.counts.shape
        return (
            f"Ranking({queries:,} quer{'y' if queries == 1 else 'ies'}, {levels:,} levels, "
            f"grades 0 to {grades - 1})"
        )

    def __add__(self, other: Ranking) -> Ranking:
        """Merge two shards of one database, ranked for the same queries by the same levels."""
        if not isinstance(other, Ranking):
            return NotImplemented
        if self.distances is not None or other.distances is not None:
            _check.refuse("Only rankings of codes can be added: float levels differ by shard.")
        if self.counts.shape[:2] != other.counts.shape[:2]:
            _check.refuse(
                "Rankings of two shards must have the same queries and levels; "
                f"got {self.counts.shape[:2]} and {other.counts.shape[:2]}."
            )
        low, high = sorted((self.counts, other.counts), key=lambda c: c.shape[2])
        total = high.copy()
        total[:, :, : low.shape[2]] += low
        return Ranking(total)

    @cached_property
    def items(self) -> np.ndarray:
        """(Q, D) items of each level, whatever their grade."""
        return self.counts.sum(axis=2)

    @cached_property
    def positives(self) -> np.ndarray:
        """(Q, D) relevant items of each level: grade above zero."""
        return self.counts[:, :, 1:].sum(axis=2)

    @cached_property
    def by_grade(self) -> np.ndarray:
        """(Q, G) items of each grade, with the unretrieved."""
        ranked = self.counts.sum(axis=1)
        return ranked if self.unretrieved is None else ranked + self.unretrieved

    @cached_property
    def relevant(self) -> np.ndarray:
        """(Q,) relevant items in all, with the unretrieved."""
        return self.by_grade[:, 1:].sum(axis=1)
