"""Metrics of binary relevance: an item is relevant where its grade is above zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.metrics.ties import (
    Levels,
    harmonic_between,
    hypergeometric,
    levels,
    retrieved,
    share,
    undefined_without_relevant,
)
from rankbits.types import Ranking

CHUNK = 1 << 22  # numbers in one temporary of the sums over j and i below


def average_precision(
    ranking: Ranking, k: int | None = None, ties: str = "mean", divide_by: str = "relevant"
) -> np.ndarray:
    """Average precision, (Q,): TALR Eq. 6, at a cutoff Eq. 17.

    ``divide_by="relevant"``: by all relevant items of the database. ``"retrieved"``: by those
    inside the top k, the AP@k of H2Q and most hashing scripts; an order with none in the top k
    counts 0.

    >>> from rankbits import rank
    >>> ranking = rank([[1, 1, 2]], [[1, 0, 1]])
    >>> average_precision(ranking).round(4), average_precision(ranking, ties="best").round(4)
    (array([0.7083]), array([0.8333]))
    """
    _check.ties(ties)
    _check.choice("divide_by", divide_by, ("relevant", "retrieved"))
    level = levels(ranking, None if k is None else _check.cutoff(k))
    if divide_by == "relevant":
        values = share(_precision_sums(level, ties).sum(axis=1), ranking.relevant)
    else:
        values = _mean_of_retrieved(level, ties)
    return undefined_without_relevant(ranking, values)


def map_at_r(ranking: Ranking, ties: str = "mean") -> np.ndarray:
    """MAP@R, (Q,): average precision at k = R, each query's own number of relevant items.

    >>> from rankbits import rank
    >>> map_at_r(rank([[1, 2, 3]], [[0, 1, 1]]))
    array([0.25])
    """
    level = levels(ranking, ranking.relevant)
    total = _precision_sums(level, _check.ties(ties)).sum(axis=1)
    return undefined_without_relevant(ranking, share(total, ranking.relevant))


def _precision_sums(level: Levels, ties: str) -> np.ndarray:
    """(Q, D): what each level adds to the sum of precisions at relevant positions.

    Mean: position N + i is relevant with probability p/n, and then P + 1 + (i - 1)(p - 1)/(n - 1)
    relevant items are expected up to it; summed over i = 1 .. r with the harmonic sum h.
    """
    n, p, N, P, r = level.n, level.p, level.N, level.P, level.r
    if ties == "mean":
        h = harmonic_between(N, r)
        slope = share(p - 1, n - 1)
        return share(p, n) * ((P + 1) * h + slope * (r - (N + 1) * h))
    if ties == "best":
        return _run_of_relevant(P, N, np.minimum(p, r))
    return _run_of_relevant(P, N + (n - p), np.maximum(r - (n - p), 0))


def _run_of_relevant(P: np.ndarray, N: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sum of (P + i)/(N + i) for i = 1 .. count: a run of relevant items behind N others."""
    return count + (P - N) * harmonic_between(N, count)


def _mean_of_retrieved(level: Levels, ties: str) -> np.ndarray:
    """AP@k divided by the relevant items inside the top k.

    Only the level that straddles k leaves their number open. If j of its r slots are relevant the
    slots are a tie of r items with j relevant ones, and j is hypergeometric. More relevant items
    are not always better here (they may lower the mean of precisions), so best and worst look at
    every j.
    """
    straddles = (level.r > 0) & (level.r < level.n)
    whole = np.where(straddles, 0.0, _precision_sums(level, ties)).sum(axis=1)
    inside = np.where(straddles, 0.0, np.minimum(level.p, level.r)).sum(axis=1)
    values = share(whole, inside)

    rows, columns = np.nonzero(straddles)
    if not len(rows):
        return values
    n, p, N, P, r = (getattr(level, name)[rows, columns] for name in "npNPr")
    most = np.minimum(p, r)
    step = max(1, int(CHUNK // (most.max() + 1)))
    for s in range(0, len(rows), step):
        part = slice(s, s + step)
        j = np.arange(most[part].max() + 1)
        own = Levels(*(a[part, None] for a in (n, p, N, P, r)))
        values[rows[part]] = _straddling(j, own, whole[rows[part], None], ties)
    return values


def _straddling(j: np.ndarray, level: Levels, whole: np.ndarray, ties: str) -> np.ndarray:
    """(q,): mean, best or worst over j of (whole + the level's sum with j relevant)/(P + j)."""
    n, p, N, P, r = level.n, level.p, level.N, level.P, level.r
    possible = (j >= r - (n - p)) & (j <= np.minimum(p, r))
    j = np.where(possible, j, 0.0)
    if ties == "mean":
        h = harmonic_between(N, r)
        slope = share(j - 1, np.broadcast_to(r - 1, j.shape))
        own = j / r * ((P + 1) * h + slope * (r - (N + 1) * h))
        counted = np.arange(j.shape[1], dtype=float)
        return (hypergeometric(counted, n, p, r) * share(whole + own, P + j)).sum(axis=1)
    own = _run_of_relevant(P, N if ties == "best" else N + (r - j), j)
    value = share(whole + own, P + j)
    if ties == "best":
        return np.where(possible, value, -np.inf).max(axis=1)
    return np.where(possible, value, np.inf).min(axis=1)


def precision_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Relevant items among the top k, divided by k, (Q,); past the ranking's end still by k.

    >>> from rankbits import rank
    >>> precision_at(rank([[1, 1, 2]], [[1, 0, 1]]), k=1)
    array([0.5])
    """
    found = retrieved(levels(ranking, _check.cutoff(k)), _check.ties(ties))
    return undefined_without_relevant(ranking, found / k)


def recall_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Relevant items among the top k, divided by all relevant items, (Q,).

    >>> from rankbits import rank
    >>> recall_at(rank([[1, 2, 3]], [[1, 0, 1]]), k=2)
    array([0.5])
    """
    found = retrieved(levels(ranking, _check.cutoff(k)), _check.ties(ties))
    return undefined_without_relevant(ranking, share(found, ranking.relevant))


def r_precision(ranking: Ranking, ties: str = "mean") -> np.ndarray:
    """Precision (and recall) at R, each query's own number of relevant items, (Q,).

    >>> from rankbits import rank
    >>> r_precision(rank([[1, 2, 3]], [[1, 0, 1]]))
    array([0.5])
    """
    found = retrieved(levels(ranking, ranking.relevant), _check.ties(ties))
    return undefined_without_relevant(ranking, share(found, ranking.relevant))


def hit_at(ranking: Ranking, k: int, ties: str = "mean") -> np.ndarray:
    """Whether anything relevant is among the top k, (Q,): FastAP's R@k, as a probability.

    Of a straddling tie with n items, p relevant and r slots, P(no hit) = C(n - p, r)/C(n, r).

    >>> from rankbits import rank
    >>> hit_at(rank([[1, 1, 1, 1]], [[1, 0, 0, 0]]), k=1)
    array([0.25])
    """
    level = levels(ranking, _check.cutoff(k))
    if _check.ties(ties) != "mean":
        values = (retrieved(level, ties) > 0).astype(np.float64)
    else:
        values = 1.0 - np.prod(_miss(level), axis=1)
    return undefined_without_relevant(ranking, values)


def _miss(level: Levels) -> np.ndarray:
    """(Q, D) probability that a level puts nothing relevant into its r slots.

    The product of (n - p - i)/(n - i) over i < r, or, whichever is shorter, of (n - r - i)/(n - i)
    over i < p.
    """
    n, p, r = level.n, level.p, level.r
    miss = np.where(p + r > n, 0.0, 1.0)
    open_ = (p > 0) & (r > 0) & (p + r <= n)
    fewer, more = np.minimum(p, r)[open_], np.maximum(p, r)[open_]
    found, total = np.ones(len(fewer)), n[open_]
    step = max(1, int(CHUNK // (fewer.max(initial=0) + 1)))
    for s in range(0, len(fewer), step):
        part = slice(s, s + step)
        i = np.arange(fewer[part].max())
        base = total[part, None] - i
        inside = i < fewer[part, None]
        ratio = np.where(inside, base - more[part, None], 1.0) / np.where(inside, base, 1.0)
        found[part] = np.prod(ratio, axis=1)
    miss[open_] = found
    return miss


def reciprocal_rank(ranking: Ranking, k: int | None = None, ties: str = "mean") -> np.ndarray:
    """1 / rank of the first relevant item, 0 where the top k holds none, (Q,).

    Within its tie of n items, p relevant, the first stands at place i with probability
    C(n - i, p - 1)/C(n, p).

    >>> from rankbits import rank
    >>> reciprocal_rank(rank([[1, 1, 2]], [[1, 0, 1]]))
    array([0.75])
    """
    _check.ties(ties)
    level = levels(ranking)
    last = np.inf if k is None else _check.cutoff(k)
    query = np.arange(len(ranking))
    first = (level.p > 0).argmax(axis=1)
    n, p, N = (getattr(level, name)[query, first] for name in "npN")
    if ties == "mean":
        values = _expected_reciprocal(n, p, N, last)
    else:
        place = N + 1 if ties == "best" else N + n - p + 1
        values = np.where((p > 0) & (place <= last), 1.0 / np.maximum(place, 1), 0.0)
    return undefined_without_relevant(ranking, values)


def _expected_reciprocal(n: np.ndarray, p: np.ndarray, N: np.ndarray, last: float) -> np.ndarray:
    values = np.zeros(len(n))
    places = np.where(p > 0, n - p + 1, 0)
    order = np.argsort(
        places
    )  # queries of like length together, so that chunks are not padded much
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


def precision_within(ranking: Ranking, radius: float) -> np.ndarray:
    """Precision among items at distance ``radius`` or less, (Q,); 0 where there are none.

    >>> from rankbits import rank
    >>> precision_within(rank([[1, 2, 3]], [[1, 0, 1]]), radius=2)
    array([0.5])
    """
    n, p = _within(ranking, radius)
    return undefined_without_relevant(ranking, share(p, n))


def recall_within(ranking: Ranking, radius: float) -> np.ndarray:
    """Recall among items at distance ``radius`` or less, (Q,). Ties play no part in either.

    >>> from rankbits import rank
    >>> recall_within(rank([[1, 2, 3]], [[1, 0, 1]]), radius=2)
    array([0.5])
    """
    _, p = _within(ranking, radius)
    return undefined_without_relevant(ranking, share(p, ranking.relevant))


def _within(ranking: Ranking, radius: float) -> tuple[np.ndarray, np.ndarray]:
    radius = _check.number("radius", radius)
    distances = ranking.distances
    if distances is None:
        distances = np.arange(ranking.counts.shape[1])[None]
    near = distances <= radius  # nan, a level that a query lacks, is never near
    return (
        np.where(near, ranking.items, 0).sum(axis=1).astype(np.float64),
        np.where(near, ranking.positives, 0).sum(axis=1).astype(np.float64),
    )


def precision_recall_curve(
    ranking: Ranking, k: Any = None, ties: str = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall, two (Q, points) arrays.

    Without ``k`` a point for each level, near to far, where all ties are whole and their order
    cannot matter (with codes: lookup within radius 0, 1, .., bits); a point before the first item
    has precision 0. With ``k`` a point for each of these cutoffs, under ``ties``.

    >>> from rankbits import rank
    >>> precision, recall = precision_recall_curve(rank([[1, 1, 2]], [[1, 0, 1]]))
    >>> precision.round(4), recall
    (array([[0.5   , 0.6667]]), array([[0.5, 1. ]]))
    """
    _check.ties(ties)
    if k is not None:
        points = _check.cutoffs(k)
        return (
            np.stack([precision_at(ranking, at, ties) for at in points], axis=1),
            np.stack([recall_at(ranking, at, ties) for at in points], axis=1),
        )
    n = np.cumsum(ranking.items, axis=1).astype(np.float64)
    p = np.cumsum(ranking.positives, axis=1).astype(np.float64)
    defined = ranking.relevant[:, None] > 0
    recall = share(p, np.broadcast_to(ranking.relevant[:, None], p.shape))
    return np.where(defined, share(p, n), np.nan), np.where(defined, recall, np.nan)
