"""The most violated order in numba: two sorts a query, and adjacent violators pooled."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import make_read_only

QUERIES = 8  # queries of one task


@njit(nogil=True, cache=True)
def _find_rise(first, last, count, gain, sums, far, scale, discounts, flat):
    """What is gained by one more of the other items before relevant items ``first`` to ``last``."""
    pairs = (sums.shape[0] - 1) * far.shape[0]
    apart = (last - first) * far[count] - (sums[last] - sums[first])
    if scale == 0:
        return ((last - first) - apart) / pairs
    fall = 0.0
    if flat:  # equal gains: the sum of differences is one difference
        fall = gain[first] * (discounts[first + count] - discounts[last + count])
    else:
        for m in range(first, last):
            fall += gain[m] * (discounts[m + count] - discounts[m + count + 1])
    return fall / scale - apart / pairs


@njit(nogil=True, cache=True)
def _find_best_count(first, last, low, high, gain, sums, far, scale, discounts, flat):
    """The best number of others before these relevant items, from ``low`` to ``high``."""
    while low < high:
        middle = (low + high) // 2
        if _find_rise(first, last, middle, gain, sums, far, scale, discounts, flat) > 0:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _violate(distances, gains, own, ndcg, discounts, out):
    """Fill one row of coefficients and return its loss."""
    rows = distances.shape[0]
    relevant, others = np.empty(rows, np.int64), np.empty(rows, np.int64)
    p, n = 0, 0
    order = np.argsort(distances, kind="mergesort")
    for i in order:
        if i == own:
            continue
        if gains[i] > 0:
            relevant[p] = i
            p += 1
        else:
            others[n] = i
            n += 1
    if p == 0 or n == 0:
        return 0.0
    relevant, others = relevant[:p], others[:n]
    gain, far = gains[relevant], distances[others]
    flat = gain.min() == gain.max()
    sums = np.zeros(p + 1)
    sums[1:] = np.cumsum(distances[relevant])
    scale = 0.0
    if ndcg:
        sorted_gains = np.sort(gain)
        for m in range(p):
            scale += sorted_gains[p - 1 - m] * discounts[m]
    starts, counts, blocks = np.empty(p, np.int64), np.empty(p, np.int64), 0
    for m in range(p):
        starts[blocks] = m
        counts[blocks] = _find_best_count(m, m + 1, 0, n, gain, sums, far, scale, discounts, flat)
        blocks += 1
        while blocks > 1 and counts[blocks - 2] > counts[blocks - 1]:
            blocks -= 1
            first, low, high = starts[blocks - 1], counts[blocks], counts[blocks - 1]
            counts[blocks - 1] = _find_best_count(
                first, m + 1, low, high, gain, sums, far, scale, discounts, flat
            )
    loss = 0.0
    passed = np.zeros(n + 1, np.int64)  # how many relevant items have i others before them
    for block in range(blocks):
        last = starts[block + 1] if block + 1 < blocks else p
        count = counts[block]
        passed[count] += last - starts[block]
        for m in range(starts[block], last):
            out[relevant[m]] = -count / (p * n)
            if ndcg:
                loss += gain[m] * (discounts[m] - discounts[m + count]) / scale
            else:
                loss += count / (p * n)
    after = p
    for k in range(n):
        after -= passed[k]
        out[others[k]] = after / (p * n)
    return loss


@njit(nogil=True, cache=True)
def _violate_tile(distances, gains, own, ndcg, discounts, out, losses):
    for q in range(distances.shape[0]):
        losses[q] = _violate(distances[q], gains[q], own[q], ndcg, discounts, out[q])


def find_violated(distances, gains, own, ndcg):  # type: ignore[no-untyped-def]
    discounts = 1 / np.log2(2 + np.arange(distances.shape[1] + 1))
    out, losses = np.zeros(distances.shape, np.float32), np.zeros(len(distances))
    distances, gains, own = make_read_only(distances, gains, own)

    def work(start):  # type: ignore[no-untyped-def]
        part = slice(start, start + QUERIES)
        _violate_tile(
            distances[part], gains[part], own[part], ndcg, discounts, out[part], losses[part]
        )

    run_tasks(work, range(0, len(distances), QUERIES))
    return out, losses
