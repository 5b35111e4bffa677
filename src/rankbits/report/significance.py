"""Test whether a difference between two rankings is more than the luck of the queries.

Queries are the sample: both methods answer each of them, so differences are paired. The
randomisation test (Fisher 1935) asks how often swapping the two answers of each query at random
makes a difference as large; the bootstrap asks between which values the mean difference would lie
for other queries of the same kind. Neither assumes a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check

EXACT = 16  # with up to this many differing queries all 2^n swaps are counted
DRAWS = 10_000
CELLS = 1 << 22  # numbers in memory at a time
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean difference over ``queries``, its two-sided ``p`` and its 95 % interval.

    ``exact``: every swap was counted; otherwise ``DRAWS`` were drawn, and the observed one counts
    among them, so that p is never 0.
    """

    mean: float
    low: float
    high: float
    p: float
    queries: int
    exact: bool


def compare_paired(first: Any, second: Any, *, seed: int = 0) -> Difference:
    """Test whether two methods differ, by their figures of each query, (Q,) and (Q,).

    Queries where either is undefined (nan) are left out.

    Darwin's fifteen pairs of plants, for which Fisher counted 1,726 of 32,768 swaps:

    >>> taller = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    >>> taller = compare_paired(taller, [0] * 15)
    >>> taller.exact, round(taller.p * 2**15), round(taller.mean, 2)
    (True, 1726, 20.93)
    """
    ours, theirs = (
        _check.array(name, value).astype(np.float64)
        for name, value in (("first", first), ("second", second))
    )
    if ours.ndim != 1 or ours.shape != theirs.shape:
        _check.refuse(
            f"Paired figures must be (Q,) of the same queries; got {ours.shape} and {theirs.shape}."
        )
    gaps = (ours - theirs)[~(np.isnan(ours) | np.isnan(theirs))]
    _check.finite("differences", gaps)
    _check.not_empty("queries with both figures defined", len(gaps))
    p, exact = _randomise(gaps, np.random.default_rng(seed))
    low, high = _bootstrap(gaps, np.random.default_rng(seed + 1))
    return Difference(float(gaps.mean()), low, high, p, len(gaps), exact)


def _randomise(gaps: np.ndarray, draw: np.random.Generator) -> tuple[float, bool]:
    """Compute the share of swaps whose sum is as far from 0 as the observed sum, and say whether
    all swaps were tried."""
    gaps = gaps[gaps != 0]  # a swap of equal answers changes nothing
    count = len(gaps)
    # a tolerance, because sums of the same numbers in another order differ in the last digits
    bound = abs(gaps.sum()) - 1e-9 * np.abs(gaps).sum()
    if count <= EXACT:
        swaps = np.arange(1 << count)[:, None] >> np.arange(count) & 1
        return float(np.mean(np.abs((1 - 2 * swaps) @ gaps) >= bound)), True
    beyond, step = 0, max(1, CELLS // count)
    for start in range(0, DRAWS, step):
        rows = min(step, DRAWS - start)
        bits = np.unpackbits(draw.integers(0, 256, (rows, -(-count // 8)), np.uint8), axis=1)
        sums = gaps.sum() - 2 * (bits[:, :count] @ gaps)
        beyond += int((np.abs(sums) >= bound).sum())
    return (beyond + 1) / (DRAWS + 1), False


def _bootstrap(gaps: np.ndarray, draw: np.random.Generator) -> tuple[float, float]:
    """Compute the percentile interval of the mean over queries drawn with replacement."""
    step = max(1, CELLS // len(gaps))
    means = [
        gaps[draw.integers(0, len(gaps), (min(step, DRAWS - start), len(gaps)))].mean(axis=1)
        for start in range(0, DRAWS, step)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def correct_by_holm(values: Sequence[float]) -> list[float]:
    """Correct the p-values of several comparisons, so that the chance of *any* false claim is as
    small as that of one (Holm 1979).

    The smallest is multiplied by their number, the next by one less, and so on, never falling.

    >>> [round(p, 3) for p in correct_by_holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(values, kind="stable")
    corrected = np.empty(len(values))
    enlarged = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(enlarged, 1.0))
    return corrected.tolist()
