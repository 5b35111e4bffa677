"""The search over a weight in numba: a sort, and one pass over all pairs."""

from __future__ import annotations

import numpy as np
from numba import njit

LEAST, GAP = 1e-7, 1e-9  # the least improvement; the least gap of flips to stop between them


@njit(nogil=True, cache=True)
def _add_costs(bits, starts, others, costs):
    total = 0.0
    for i in range(bits.shape[0]):
        for e in range(starts[i], starts[i + 1]):
            if bits[i] != bits[others[e]]:
                total += costs[e]
    return total / 2


@njit(nogil=True, cache=True)
def _search(kernel, weights, starts, others, costs):
    anchors, rows = kernel.shape
    sums = np.zeros(rows)
    for q in range(anchors):
        sums += weights[q] * kernel[q]
    bits, rest, limits = sums > 0, np.empty(rows), np.empty(rows)
    here = _add_costs(bits, starts, others, costs)
    for q in range(anchors):
        column = kernel[q]
        for i in range(rows):
            rest[i] = sums[i] - weights[q] * column[i]
        best, value = here - LEAST, weights[q]
        for i in range(rows):
            if column[i] == 0:
                limits[i], bits[i] = np.inf, rest[i] > 0
            else:
                limits[i], bits[i] = -rest[i] / column[i], column[i] < 0
        order = np.argsort(limits, kind="mergesort")
        running = _add_costs(bits, starts, others, costs)
        if running < best and limits[order[0]] < np.inf:
            best, value = running, limits[order[0]] - 1
        for r in range(rows):
            i = order[r]
            if limits[i] == np.inf:
                break
            for e in range(starts[i], starts[i + 1]):
                running += costs[e] if bits[i] == bits[others[e]] else -costs[e]
            bits[i] = not bits[i]
            after = limits[order[r + 1]] if r + 1 < rows else np.inf
            if running < best and after - limits[i] > GAP * (1 + abs(limits[i])):
                best = running
                value = limits[i] + 1 if after == np.inf else (limits[i] + after) / 2
        if value != weights[q]:
            weights[q], here = value, best
            sums = rest + value * column
    return sums > 0


def search_weights(kernel, weights, starts, others, costs):  # type: ignore[no-untyped-def]
    bits = _search(kernel, weights, starts, others, costs)
    return weights, bits
