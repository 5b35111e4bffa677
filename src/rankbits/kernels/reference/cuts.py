"""Minimum cuts by scipy's maximum flow, one block after another."""

from __future__ import annotations

import itertools

import numpy as np

LARGEST = 1 << 24


def improve_signs(
    weights: np.ndarray, unary: np.ndarray, signs: np.ndarray, order: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    matrix = weights.astype(np.float64)
    np.fill_diagonal(matrix, 0)
    for first, last in itertools.pairwise(starts):
        rows = order[first:last]
        inner = matrix[np.ix_(rows, rows)]
        outer = matrix[rows] @ signs + unary[rows] - inner @ signs[rows]
        better = _cut(inner, outer)
        values = [s @ inner @ s / 2 + outer @ s for s in (signs[rows], better)]
        if values[1] < values[0]:
            signs[rows] = better
    return signs


def _cut(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    size = len(outer)
    capacities = np.zeros((size + 2, size + 2))
    capacities[:size, :size] = np.maximum(-inner, 0)
    capacities[size, :size] = np.maximum(-outer, 0)  # from the source: cut where a sign is -1
    capacities[:size, size + 1] = np.maximum(outer, 0)
    largest = capacities.max()
    whole = largest <= LARGEST and bool((capacities == np.rint(capacities)).all())
    scale = 1 if whole or not largest else LARGEST / largest
    capacities = np.rint(capacities * scale).astype(np.int32)
    left = capacities - maximum_flow(csr_array(capacities), size, size + 1).flow.toarray() > 0
    reached = np.arange(size + 2) == size
    for _ in range(size + 1):
        reached |= left[reached].any(axis=0)
    return np.where(reached[:size], 1.0, -1.0)
