"""From distances and relevance to a ``Ranking``."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.kernels import Words, hamming_counts
from rankbits.types import Codes, Ranking


def rank(distances: Any, relevance: Any, *, exclude_self: bool = False) -> Ranking:
    """Rank by any distances, (Q, N) with (Q, N) relevance: bool or whole grades.

    Equal distances are ties; less is nearer (negate a similarity). bfloat16 and float16 tensors
    keep the ties they have. ``exclude_self`` leaves item i out of query i's ranking.

    >>> rank([[0.5, 0.5, 2.0]], [[True, False, True]]).counts
    array([[[1, 1],
            [0, 1]]])
    """
    distances = _check.finite("distances", _check.matrix("distances", distances))
    grades = _check.grades("relevance", relevance)
    if grades.shape != distances.shape:
        _check.refuse(
            f"relevance must have the shape of distances, {distances.shape}; got {grades.shape}."
        )
    _check.not_empty("database", distances.shape[1])
    if exclude_self:
        _check.square(*distances.shape)
        rest = ~np.eye(len(distances), dtype=bool)
        distances, grades = (a[rest].reshape(len(a), -1) for a in (distances, grades))
        _check.not_empty("database without the query", distances.shape[1])
    order = np.argsort(distances, axis=1)
    return _count_levels(*(np.take_along_axis(a, order, axis=1) for a in (distances, grades)))


def rank_keys(keys: np.ndarray) -> Ranking:
    """Rank by sorted whole keys, int64 (Q, N): 256 x distance + grade, each row in order.

    This is ``rank`` for distances that are whole numbers below 2^54. It is faster, because sorting
    numbers is faster than finding their order.

    >>> rank_keys(np.sort([[256 * 5 + 1, 256 * 5 + 0, 256 * 9 + 1]])).counts
    array([[[1, 1],
            [0, 1]]])
    """
    return _count_levels(keys >> 8, keys & 255)


def rank_runs(keys: np.ndarray) -> Ranking:
    """Rank as ``compact(rank_keys(keys))``, but faster where no tie holds two grades: then only the
    places matter where the grade changes.

    >>> rank_runs(np.sort([[256 * 5 + 1, 256 * 6 + 1, 256 * 9 + 0]])).counts
    array([[[0, 2],
            [1, 0]]])
    """
    grades = (keys & 255).astype(np.uint8)
    turns = grades[:, 1:] != grades[:, :-1]
    row, column = np.nonzero(turns)
    if (keys[row, column] >> 8 == keys[row, column + 1] >> 8).any():
        return compact(rank_keys(keys))
    queries, items = keys.shape
    level = np.arange(len(row)) - np.searchsorted(row, row) + 1
    starts = np.full((queries, int(level.max(initial=0)) + 2), items, np.int64)
    starts[:, 0] = 0
    starts[row, level] = column + 1
    lengths = np.diff(starts, axis=1)
    grade = np.take_along_axis(grades, np.minimum(starts[:, :-1], items - 1), axis=1)
    counts = np.zeros((*lengths.shape, max(1, int(grades.max(initial=1))) + 1), np.int64)
    np.put_along_axis(counts, grade[:, :, None].astype(np.int64), lengths[:, :, None], axis=2)
    return Ranking(counts)


def _count_levels(distances: np.ndarray, grades: np.ndarray) -> Ranking:
    """Count each query's levels, from distances in order and the grades beside them."""
    queries, most = len(distances), int(grades.max(initial=1)) + 1
    level = np.zeros(distances.shape, np.int64)
    np.cumsum(distances[:, 1:] != distances[:, :-1], axis=1, out=level[:, 1:])
    levels = int(level.max(initial=0)) + 1

    row = np.arange(queries)[:, None]
    cell = ((row * levels + level) * most + grades).reshape(-1)
    counts = np.bincount(cell, minlength=queries * levels * most)
    at_level = np.full((queries, levels), np.nan)
    at_level[row, level] = distances
    return Ranking(counts.reshape(queries, levels, most), at_level)


def compact(ranking: Ranking) -> Ranking:
    """Join neighbouring levels that hold one and the same grade.

    The sequence of grades stays the same, so no metric of positions changes. A ranking without ties
    shrinks to the runs of its grades. Distances are dropped.

    >>> compact(rank([[1, 2, 3, 4]], [[1, 1, 0, 0]])).counts
    array([[[0, 2],
            [2, 0]]])
    """
    counts = ranking.counts
    queries, levels, most = counts.shape
    present = counts > 0
    kinds = present.sum(axis=2)
    only = np.where(kinds == 1, present.argmax(axis=2), -1)  # the level's one grade, -1 where mixed
    same = (kinds[:, 1:] == 0) | ((only[:, 1:] >= 0) & (only[:, 1:] == only[:, :-1]))
    group = np.zeros((queries, levels), np.int64)
    np.cumsum(~same, axis=1, out=group[:, 1:])
    fewer = int(group.max(initial=0)) + 1
    cell = (np.arange(queries)[:, None] * fewer + group)[:, :, None] * most + np.arange(most)
    total = np.bincount(cell.reshape(-1), counts.reshape(-1), minlength=queries * fewer * most)
    return Ranking(
        total.reshape(queries, fewer, most).astype(np.int64), unretrieved=ranking.unretrieved
    )


def rank_codes(
    query_codes: Codes,
    database_codes: Codes | Words,
    query_labels: Any = None,
    database_labels: Any = None,
    relevance: Any = "any",
    *,
    exclude_self: bool = False,
) -> Ranking:
    """Rank codes by Hamming distance: one level for each distance 0 .. bits.

    Labels are (n,) whole numbers or names, or (n, C) multi-hot; ``relevance="any"`` gives grade 1
    where a label is shared, ``"count"`` the number of shared labels; or ``relevance`` is the (Q, N)
    grades. ``exclude_self``: the database is the queries themselves, and each leaves itself out.

    >>> from rankbits import pack
    >>> rank_codes(pack([[1, 1]]), pack([[1, 1], [1, -1]]), [7], [7, 3]).counts
    array([[[0, 1],
            [1, 0],
            [0, 0]]])
    """
    counts = hamming_counts(query_codes, database_codes, query_labels, database_labels, relevance)
    if exclude_self:
        _check.square(len(query_codes), len(database_codes))
        if query_codes != database_codes:
            _check.refuse("exclude_self needs the database to be the queries themselves.")
        own = _find_own_grades(query_labels, relevance, len(query_codes))
        counts[np.arange(len(counts)), 0, own] -= 1
    return Ranking(counts)


def _find_own_grades(labels: Any, relevance: Any, rows: int) -> np.ndarray:
    """The grade of each item for itself, which ``exclude_self`` subtracts at distance 0."""
    if not isinstance(relevance, str):
        if hasattr(relevance, "tocsr"):
            return relevance.tocsr().diagonal().astype(np.int64)
        return np.diagonal(_check.grades("relevance", relevance)).astype(np.int64)
    checked = _check.labels("query_labels", labels, rows, names=True)
    if checked.ndim == 1:
        return np.ones(rows, np.int64)
    own = checked.sum(axis=1)
    return np.minimum(own, 1) if relevance == "any" else own
