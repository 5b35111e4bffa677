"""Metrics of graded relevance: discounted cumulative gain."""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.metrics.ties import cut_levels, divide, mark_undefined
from rankbits.types import Ranking


def dcg(
    ranking: Ranking, k: int | None = None, ties: str = "mean", gain: str = "exp2"
) -> np.ndarray:
    """Discounted cumulative gain, (Q,): TALR Eq. 7, at a cutoff Eq. 20; discount 1/log2(1 + place).

    ``gain="exp2"``: 2^grade - 1; ``"linear"``: the grade.

    >>> from rankbits import rank
    >>> dcg(rank([[1, 1]], [[1, 0]])).round(4)
    array([0.8155])
    """
    _check.ties(ties)
    gains = _compute_gains(ranking, gain)
    level = cut_levels(ranking, None if k is None else _check.cutoff(k))
    reach = (level.N + level.r).astype(np.int64)  # the last place of a level within the cutoff
    start = np.minimum(level.N.astype(np.int64), reach)
    total = _sum_discounts(int(reach.max(initial=0)))
    if ties == "mean":
        per_item = divide(ranking.counts @ gains, level.n)
        values = (per_item * (total[reach] - total[start])).sum(axis=1)
    else:
        grades = np.arange(len(gains))[:: -1 if ties == "best" else 1]
        values = np.zeros(len(ranking))
        for grade in grades:
            stop = np.minimum(start + ranking.counts[:, :, grade], reach)
            values += gains[grade] * (total[stop] - total[start]).sum(axis=1)
            start = stop
    return mark_undefined(ranking, values)


def ndcg(
    ranking: Ranking, k: int | None = None, ties: str = "mean", gain: str = "exp2"
) -> np.ndarray:
    """DCG divided by the best that any ranking of the same items could reach at k, (Q,).

    >>> from rankbits import rank
    >>> ndcg(rank([[1, 2]], [[2, 1]]))
    array([1.])
    """
    return dcg(ranking, k, ties, gain) / _compute_ideal(ranking, k, gain)


def _compute_ideal(ranking: Ranking, k: int | None, gain: str) -> np.ndarray:
    """(Q,): the DCG of the items in falling order of grade, nan where nothing is relevant."""
    gains = _compute_gains(ranking, gain)
    falling = ranking.by_grade[:, ::-1].astype(np.int64)
    stop = np.cumsum(falling, axis=1)
    if k is not None:
        stop = np.minimum(stop, k)
    total = _sum_discounts(int(stop.max(initial=0)))
    start = np.concatenate([np.zeros((len(stop), 1), np.int64), stop[:, :-1]], axis=1)
    values = (total[stop] - total[start]) @ gains[::-1]
    return np.where(values > 0, values, np.nan)


def _compute_gains(ranking: Ranking, gain: str) -> np.ndarray:
    _check.choice("gain", gain, ("exp2", "linear"))
    grades = np.arange(ranking.counts.shape[2], dtype=np.float64)
    return np.exp2(grades) - 1 if gain == "exp2" else grades


def _sum_discounts(places: int) -> np.ndarray:
    """(places + 1,): the sum of 1/log2(1 + t) over t = 1 .. m, for each m."""
    discount = 1.0 / np.log2(np.arange(2, places + 2, dtype=np.float64))
    total = np.zeros(places + 1)
    total[1:] = np.cumsum(discount, dtype=np.longdouble)
    return total
