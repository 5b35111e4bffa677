"""Precision, recall and hits among the top k: an item is relevant where its grade is above zero."""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.metrics.ties import CHUNK, Levels, count_retrieved, cut_levels, divide, mark_undefined
from rankbits.types import Ranking


def precision_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Relevant items among the top k, divided by k, (Q,), even where the ranking has fewer items.

    >>> from rankbits import rank
    >>> precision_at(rank([[1, 1, 2]], [[1, 0, 1]]), k=1)
    array([0.5])
    """
    relevant = count_retrieved(cut_levels(ranking, _check.cutoff(k)), _check.ties(ties))
    return mark_undefined(ranking, relevant / k)


def recall_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Relevant items among the top k, divided by all relevant items, (Q,).

    >>> from rankbits import rank
    >>> recall_at(rank([[1, 2, 3]], [[1, 0, 1]]), k=2)
    array([0.5])
    """
    relevant = count_retrieved(cut_levels(ranking, _check.cutoff(k)), _check.ties(ties))
    return mark_undefined(ranking, divide(relevant, ranking.relevant))


def r_precision(ranking: Ranking, ties: str = "mean") -> np.ndarray:
    """Precision (and recall) at R, each query's own number of relevant items, (Q,).

    >>> from rankbits import rank
    >>> r_precision(rank([[1, 2, 3]], [[1, 0, 1]]))
    array([0.5])
    """
    relevant = count_retrieved(cut_levels(ranking, ranking.relevant), _check.ties(ties))
    return mark_undefined(ranking, divide(relevant, ranking.relevant))


def hit_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Whether anything relevant is among the top k, (Q,): FastAP's R@k, as a probability.

    A straddling tie of n items, p relevant, with r slots has P(no hit) = C(n - p, r)/C(n, r).

    >>> from rankbits import rank
    >>> hit_at(rank([[1, 1, 1, 1]], [[1, 0, 0, 0]]), k=1)
    array([0.25])
    """
    level = cut_levels(ranking, _check.cutoff(k))
    if _check.ties(ties) != "mean":
        values = (count_retrieved(level, ties) > 0).astype(np.float64)
    else:
        values = 1.0 - np.prod(_compute_misses(level), axis=1)
    return mark_undefined(ranking, values)


def _compute_misses(level: Levels) -> np.ndarray:
    """(Q, D) probability that a level puts nothing relevant into its r slots.

    The product of (n - p - i)/(n - i) over i < r, or, whichever is shorter, of (n - r - i)/(n - i)
    over i < p.
    """
    n, p, r = level.n, level.p, level.r
    miss = np.where(p + r > n, 0.0, 1.0)
    open_ = (p > 0) & (r > 0) & (p + r <= n)
    fewer, more = np.minimum(p, r)[open_], np.maximum(p, r)[open_]
    products, total = np.ones(len(fewer)), n[open_]
    step = max(1, int(CHUNK // (fewer.max(initial=0) + 1)))
    for s in range(0, len(fewer), step):
        part = slice(s, s + step)
        i = np.arange(fewer[part].max())
        base = total[part, None] - i
        inside = i < fewer[part, None]
        ratio = np.where(inside, base - more[part, None], 1.0) / np.where(inside, base, 1.0)
        products[part] = np.prod(ratio, axis=1)
    miss[open_] = products
    return miss
