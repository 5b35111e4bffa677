"""Tools for ties: what a level holds, how much of it lies within a cutoff, and sums over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits.types import Ranking

CHUNK = 1 << 22  # numbers in one temporary array


@dataclass(frozen=True)
class Levels:
    """Every level of every ranking, in arrays (Q, D) float64.

    A level has n items, p of them relevant. N items, P of them relevant, come before. The first r
    of its n positions lie within the cutoff.
    """

    n: np.ndarray
    p: np.ndarray
    N: np.ndarray
    P: np.ndarray
    r: np.ndarray


def cut_levels(ranking: Ranking, k: Any = None) -> Levels:
    """The levels of a ranking; ``k`` is one cutoff, one for each query (Q,), or None."""
    n = ranking.items.astype(np.float64)
    p = ranking.positives.astype(np.float64)
    N, P = np.cumsum(n, axis=1) - n, np.cumsum(p, axis=1) - p
    r = n if k is None else np.clip(np.reshape(k, (-1, 1)) - N, 0, n)
    return Levels(n, p, N, P, r)


def count_retrieved(level: Levels, ties: str) -> np.ndarray:
    """Count relevant items within the cutoff, (Q,): the mean, most or fewest over tie orders."""
    if ties == "mean":
        return (level.r * divide(level.p, level.n)).sum(axis=1)
    if ties == "best":
        return np.minimum(level.p, level.r).sum(axis=1)
    return np.maximum(level.r - (level.n - level.p), 0).sum(axis=1)


def divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole != 0)


def mark_undefined(ranking: Ranking, values: np.ndarray) -> np.ndarray:
    """Put nan where a query has nothing relevant."""
    return np.where(ranking.relevant > 0, values, np.nan)


_SMALL = 32  # a table holds the harmonic numbers up to here; an expansion gives the others
_TABLE = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _SMALL + 1))])


def sum_harmonic(start: np.ndarray, count: np.ndarray) -> np.ndarray:
    """1/(start + 1) + ... + 1/(start + count), to full relative precision.

    H(start + count) - H(start) would keep few digits late in a long ranking. With z = m + 1/2,

        H(m) = ln z + gamma + 1/(24 z^2) - 7/(960 z^4) + 31/(8064 z^6) - 127/(30720 z^8) + ...,

    and the difference of the logarithms is one log1p.

    >>> sum_harmonic(np.array([0.0, 9.0]), np.array([2.0, 1.0])).round(15)
    array([1.5, 0.1])
    """
    start, count = np.broadcast_arrays(np.asarray(start, float), np.asarray(count, float))
    end = start + count
    low, high = (np.minimum(a, _SMALL).astype(np.int64) for a in (start, end))
    total = _TABLE[high] - _TABLE[low]
    far = end > _SMALL
    if far.any():
        a = np.maximum(start[far], _SMALL) + 0.5
        b = end[far] + 0.5
        total[far] += np.log1p((b - a) / a) + (_expand_tail(b) - _expand_tail(a))
    return total


def _expand_tail(z: np.ndarray) -> np.ndarray:
    """1/(24 z^2) - 7/(960 z^4) + ..."""
    u = 1.0 / (z * z)
    return u * (1 / 24 + u * (-7 / 960 + u * (31 / 8064 - u * (127 / 30720))))


def hypergeometric(j: np.ndarray, n: np.ndarray, p: np.ndarray, r: np.ndarray) -> np.ndarray:
    """P(j of r slots are relevant | p of n items are), for j = 0, 1, 2, ... along the last axis.

    It multiplies the ratios of neighbours and normalises, which keeps the digits that differences
    of log-gammas lose when n is large. Impossible j get 0.
    """
    first = np.maximum(0, r - (n - p))
    possible = (j >= first) & (j <= np.minimum(p, r))
    up = (p - (j - 1)) * (r - (j - 1))
    down = j * (n - p - r + j)
    step = np.where(possible & (j > first), np.log(np.maximum(up, 1) / np.maximum(down, 1)), 0.0)
    weight = np.cumsum(step, axis=-1)
    weight = np.where(possible, weight, -np.inf)
    weight = np.exp(weight - weight.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)
