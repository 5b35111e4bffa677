"""Minimum cuts of small dense graphs in numba, by Dinic's algorithm."""

from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 1 << 24  # the largest weight of a block, in whole numbers


@njit(nogil=True, cache=True)
def _find_levels(capacities, source, levels, queue):
    """Set ``levels`` to the distances from the source along edges with capacity left, and to -1
    where there is no path."""
    levels[:] = -1
    levels[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for v in range(capacities.shape[0]):
            if levels[v] < 0 and capacities[u, v] > 0:
                levels[v] = levels[u] + 1
                queue[tail] = v
                tail += 1


@njit(nogil=True, cache=True)
def _push(capacities, source, sink, levels, path, tried):
    """Push all flow along shortest paths, one path after another."""
    tried[:] = 0
    length = 0
    path[0] = source
    while True:
        u = path[length]
        if u == sink:
            least = capacities[path[0], path[1]]
            for k in range(1, length):
                least = min(least, capacities[path[k], path[k + 1]])
            back = 0
            for k in range(length - 1, -1, -1):
                capacities[path[k], path[k + 1]] -= least
                capacities[path[k + 1], path[k]] += least
                if capacities[path[k], path[k + 1]] == 0:
                    back = k
            length = back
            continue
        v = tried[u]
        while v < capacities.shape[0] and not (levels[v] == levels[u] + 1 and capacities[u, v] > 0):
            v += 1
        tried[u] = v
        if v < capacities.shape[0]:
            length += 1
            path[length] = v
        elif length == 0:
            return
        else:
            levels[u] = -1
            length -= 1


@njit(nogil=True, cache=True)
def _cut(inner, outer, capacities, levels, queue, tried):
    """Set ``levels`` to 0 or above for rows whose best sign is +1, and to -1 for the others."""
    size = outer.shape[0]
    source, sink = size, size + 1
    largest, whole = 0.0, True
    for i in range(size):
        largest = max(largest, abs(outer[i]))
        whole = whole and outer[i] == np.rint(outer[i])
        for j in range(size):
            largest = max(largest, -inner[i, j])
            whole = whole and inner[i, j] == np.rint(inner[i, j])
    scale = 1.0
    if largest > 0 and not (whole and largest <= LARGEST):
        scale = LARGEST / largest
    capacities[: size + 2, : size + 2] = 0
    for i in range(size):
        for j in range(size):
            capacities[i, j] = np.int64(np.rint(max(-inner[i, j], 0.0) * scale))
        unary = np.int64(np.rint(outer[i] * scale))
        capacities[source, i] = max(-unary, 0)
        capacities[i, sink] = max(unary, 0)
    graph = capacities[: size + 2, : size + 2]
    levels, queue, tried = levels[: size + 2], queue[: size + 2], tried[: size + 2]
    while True:
        _find_levels(graph, source, levels, queue)
        if levels[sink] < 0:
            return
        _push(graph, source, sink, levels, queue, tried)


@njit(nogil=True, cache=True)
def _improve(weights, unary, signs, products, order, starts, most):
    capacities = np.empty((most + 2, most + 2), np.int64)
    levels, queue = np.empty(most + 2, np.int64), np.empty(most + 2, np.int64)
    tried, flips = np.empty(most + 2, np.int64), np.empty(most, np.bool_)
    inner, outer = np.empty((most, most)), np.empty(most)
    for block in range(starts.shape[0] - 1):
        rows = order[starts[block] : starts[block + 1]]
        size = rows.shape[0]
        for i in range(size):
            outer[i] = products[rows[i]] + unary[rows[i]]
            for j in range(size):
                inner[i, j] = 0.0 if i == j else weights[rows[i], rows[j]]
                outer[i] -= inner[i, j] * signs[rows[j]]
        _cut(inner[:size, :size], outer[:size], capacities, levels, queue, tried)
        gain = 0.0
        for i in range(size):
            flips[i] = (levels[i] >= 0) != (signs[rows[i]] > 0)
            if flips[i]:
                gain += 2 * signs[rows[i]] * outer[i]
                for j in range(size):
                    if (levels[j] >= 0) == (signs[rows[j]] > 0):
                        gain += 2 * inner[i, j] * signs[rows[i]] * signs[rows[j]]
        if gain > 0:
            for i in range(size):
                if flips[i]:
                    row = rows[i]
                    change = -2 * signs[row]
                    same = products[row]  # the diagonal does not count
                    products += change * weights[row]
                    products[row] = same
                    signs[row] = -signs[row]


def improve_signs(weights, unary, signs, order, starts):  # type: ignore[no-untyped-def]
    products = (weights @ signs - weights.diagonal() * signs).astype(np.float64)
    most = int(np.diff(starts).max(initial=0))
    _improve(weights, unary, signs, products, order, starts, most)
    return signs
