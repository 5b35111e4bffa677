"""The reciprocal rank of the first relevant item."""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.metrics.ties import CHUNK, cut_levels, mark_undefined
from rankbits.types import Ranking


def reciprocal_rank(ranking: Ranking, k: int | None = None, ties: str = "mean") -> np.ndarray:
    """1 / rank of the first relevant item, 0 where the top k holds none, (Q,).

    In its tie of n items, p relevant, it is at place i with probability C(n - i, p - 1)/C(n, p).

    >>> from rankbits import rank
    >>> reciprocal_rank(rank([[1, 1, 2]], [[1, 0, 1]]))
    array([0.75])
    """
    _check.ties(ties)
    level = cut_levels(ranking)
    last = np.inf if k is None else _check.cutoff(k)
    query = np.arange(len(ranking))
    first = (level.p > 0).argmax(axis=1)
    n, p, N = (getattr(level, name)[query, first] for name in "npN")
    if ties == "mean":
        values = _average_reciprocal(n, p, N, last)
    else:
        place = N + 1 if ties == "best" else N + n - p + 1
        values = np.where((p > 0) & (place <= last), 1.0 / np.maximum(place, 1), 0.0)
    return mark_undefined(ranking, values)


def _average_reciprocal(n: np.ndarray, p: np.ndarray, N: np.ndarray, last: float) -> np.ndarray:
    """The mean of 1 / rank over all orders of each query's first level with a relevant item."""
    values = np.zeros(len(n))
    places = np.where(p > 0, n - p + 1, 0)
    order = np.argsort(places)  # queries with ties of like length together, to pad little
    s = 0
    while s < len(order):
        step = max(1, int(CHUNK // max(1.0, places[order[min(s + 4096, len(order) - 1)]])))
        part = order[s : s + min(step, 4096)]
        s += len(part)
        i = np.arange(1, places[part].max(initial=0) + 1)
        rest = n[part, None] - i + 1  # items left when place i is drawn
        inside = i <= places[part, None]
        hit = np.where(inside, p[part, None] / np.maximum(rest, 1), 0.0)
        missed = np.cumprod(1.0 - hit, axis=1)
        missed = np.concatenate([np.ones((len(part), 1)), missed[:, :-1]], axis=1)
        place = N[part, None] + i
        values[part] = np.where(place <= last, missed * hit / place, 0.0).sum(axis=1)
    return values
