"""Average precision, whole and at a cutoff: an item is relevant where its grade is above zero."""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.metrics.ties import (
    CHUNK,
    Levels,
    cut_levels,
    divide,
    hypergeometric,
    mark_undefined,
    sum_harmonic,
)
from rankbits.types import Ranking


def average_precision(
    ranking: Ranking, k: int | None = None, ties: str = "mean", divide_by: str = "relevant"
) -> np.ndarray:
    """Average precision, (Q,): TALR Eq. 6, at a cutoff Eq. 17.

    ``divide_by="relevant"``: by all relevant items of the database. ``"retrieved"``: by those
    inside the top k, the AP@k of H2Q, of TALR's code (its Tables 1 and 2) and of most hashing
    scripts; an order with none in the top k counts 0.

    >>> from rankbits import rank
    >>> ranking = rank([[1, 1, 2]], [[1, 0, 1]])
    >>> average_precision(ranking).round(4), average_precision(ranking, ties="best").round(4)
    (array([0.7083]), array([0.8333]))
    """
    _check.ties(ties)
    _check.choice("divide_by", divide_by, ("relevant", "retrieved"))
    level = cut_levels(ranking, None if k is None else _check.cutoff(k))
    if divide_by == "relevant":
        values = divide(_sum_precisions(level, ties).sum(axis=1), ranking.relevant)
    else:
        values = _average_retrieved(level, ties)
    return mark_undefined(ranking, values)


def map_at_r(ranking: Ranking, ties: str = "mean") -> np.ndarray:
    """MAP@R, (Q,): average precision at k = R, each query's own number of relevant items.

    >>> from rankbits import rank
    >>> map_at_r(rank([[1, 2, 3]], [[0, 1, 1]]))
    array([0.25])
    """
    level = cut_levels(ranking, ranking.relevant)
    total = _sum_precisions(level, _check.ties(ties)).sum(axis=1)
    return mark_undefined(ranking, divide(total, ranking.relevant))


def _sum_precisions(level: Levels, ties: str) -> np.ndarray:
    """(Q, D): what each level adds to the sum of precisions at relevant positions.

    Mean: position N + i is relevant with probability p/n, and then P + 1 + (i - 1)(p - 1)/(n - 1)
    relevant items are expected up to it. This is summed over i = 1 .. r with the harmonic sum h.
    """
    n, p, N, P, r = level.n, level.p, level.N, level.P, level.r
    if ties == "mean":
        h = sum_harmonic(N, r)
        slope = divide(p - 1, n - 1)
        return divide(p, n) * ((P + 1) * h + slope * (r - (N + 1) * h))
    if ties == "best":
        return _sum_run(P, N, np.minimum(p, r))
    return _sum_run(P, N + (n - p), np.maximum(r - (n - p), 0))


def _sum_run(P: np.ndarray, N: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sum of (P + i)/(N + i) for i = 1 .. count: a run of relevant items behind N others."""
    return count + (P - N) * sum_harmonic(N, count)


def _average_retrieved(level: Levels, ties: str) -> np.ndarray:
    """AP@k divided by the relevant items inside the top k.

    Only the level that straddles k leaves their number open. If j of its r slots are relevant, the
    slots are a tie of r items with j relevant ones, and j is hypergeometric. More relevant items
    are not always better here (they may lower the mean of precisions), so best and worst try every
    j.
    """
    straddles = (level.r > 0) & (level.r < level.n)
    whole = np.where(straddles, 0.0, _sum_precisions(level, ties)).sum(axis=1)
    inside = np.where(straddles, 0.0, np.minimum(level.p, level.r)).sum(axis=1)
    values = divide(whole, inside)

    rows, columns = np.nonzero(straddles)
    if not len(rows):
        return values
    n, p, N, P, r = (getattr(level, name)[rows, columns] for name in "npNPr")
    most = np.minimum(p, r)
    step = max(1, int(CHUNK // (most.max() + 1)))
    for s in range(0, len(rows), step):
        part = slice(s, s + step)
        j = np.arange(most[part].max() + 1)
        straddling = Levels(*(a[part, None] for a in (n, p, N, P, r)))
        values[rows[part]] = _average_straddling(j, straddling, whole[rows[part], None], ties)
    return values


def _average_straddling(j: np.ndarray, level: Levels, whole: np.ndarray, ties: str) -> np.ndarray:
    """(q,): mean, best or worst over j of (whole + the level's sum with j relevant)/(P + j)."""
    n, p, P, r = level.n, level.p, level.P, level.r
    possible = (j >= r - (n - p)) & (j <= np.minimum(p, r))
    relevant = np.where(possible, j, 0.0)
    slots = Levels(r, relevant, level.N, P, r)
    value = divide(whole + _sum_precisions(slots, ties), P + relevant)
    if ties == "mean":
        return (hypergeometric(j, n, p, r) * value).sum(axis=1)
    if ties == "best":
        return np.where(possible, value, -np.inf).max(axis=1)
    return np.where(possible, value, np.inf).min(axis=1)
