"""Soft histograms in numba: tiles of products in, counts or slopes out.

A row goes through three short loops. Where each item falls (bin and fraction) and which cell of
(grade, bin) that is are plain arithmetic, which LLVM vectorises; only the last loop, which adds to
cells or reads from them, goes item by item. A count and a sum of fractions sit side by side in a
cell, so that an item is one load, one addition and one store of two numbers; soft counts are their
differences. Pairs that are not counted have a cell of their own, past the others.

A product that is nan lands in the first bin and makes its sum nan: the loss becomes nan, as a
gradient scaler expects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit

from rankbits.kernels.backend import run_tasks, threads
from rankbits.kernels.histogram import Pairs


@njit(nogil=True, cache=True)
def _places(products, half, ratio, top, low, fraction):
    zero = products.dtype.type(0)
    last = np.int32(top) - np.int32(1)
    for j in range(products.shape[0]):
        t = half - ratio * products[j]
        inside = t if t > zero else zero
        inside = inside if inside < top else top
        whole = min(np.int32(inside), last)
        low[j] = whole
        fraction[j] = (inside - whole) + (t - t)  # the last is 0, or nan


@njit(nogil=True, cache=True)
def _cells_by_class(mine, theirs, own, bins, spare, low):
    for j in range(theirs.shape[0]):
        low[j] += bins if theirs[j] == mine else np.int32(0)
    if own >= 0:
        low[own] = spare


@njit(nogil=True, cache=True)
def _cells_by_grade(grades, levels, bins, spare, low):
    for j in range(grades.shape[0]):
        low[j] = low[j] + bins * np.int32(grades[j]) if grades[j] < levels else spare


@njit(nogil=True, cache=True)
def _to_cells(i, by_class, left, right, own, grades, levels, bins, spare, low):
    """Bins of row i become cells of (grade, bin), by whichever the pairs are graded."""
    if by_class:
        _cells_by_class(left[i], right, own[i], bins, spare, low)
    else:
        _cells_by_grade(grades[i], levels, bins, spare, low)


@njit(nogil=True, cache=True)
def _add(cells, fraction, sums):
    for j in range(cells.shape[0]):
        sums[cells[j], 0] += 1.0
        sums[cells[j], 1] += fraction[j]


@njit(nogil=True, cache=True)
def _read(cells, own, out):
    for j in range(cells.shape[0]):
        out[j] = own[cells[j]]


@njit(nogil=True, cache=True)
def _read_both(cells, own, both, out):
    columns = cells.shape[0]
    for j in range(columns):
        out[j] = own[cells[j]] + both[cells[j] * np.int64(columns) + j]


@njit(nogil=True, cache=True)
def _count_rows(products, by_class, left, right, own, grades, half, ratio, top, counts):
    levels, bins = counts.shape[1], np.int32(counts.shape[2] - 1)
    spare = np.int32(levels) * bins
    cells = np.empty(products.shape[1], np.int32)
    fraction = np.empty(products.shape[1], products.dtype)
    sums = np.zeros((spare + 1, 2), np.float64)
    for i in range(products.shape[0]):
        _places(products[i], half, ratio, top, cells, fraction)
        _to_cells(i, by_class, left, right, own, grades, levels, bins, spare, cells)
        sums[:] = 0.0
        _add(cells, fraction, sums)
        for g in range(levels):
            for b in range(bins):
                counts[i, g, b] += sums[g * bins + b, 0] - sums[g * bins + b, 1]
                counts[i, g, b + 1] += sums[g * bins + b, 1]


@njit(nogil=True, cache=True)
def _slope_rows(
    products, by_class, left, right, own, grades, half, ratio, top, slopes, both, symmetric, out
):
    levels, bins = slopes.shape[1], np.int32(slopes.shape[2])
    spare = np.int32(levels) * bins
    cells = np.empty(products.shape[1], np.int32)
    fraction = np.empty(products.shape[1], products.dtype)
    mine = np.zeros(spare + 1, slopes.dtype)
    for i in range(products.shape[0]):
        _places(products[i], half, ratio, top, cells, fraction)
        _to_cells(i, by_class, left, right, own, grades, levels, bins, spare, cells)
        for g in range(levels):
            for b in range(bins):
                mine[g * bins + b] = slopes[i, g, b]
        if symmetric:
            _read_both(cells, mine, both, out[i])
        else:
            _read(cells, mine, out[i])


def _rows(count: int) -> list[slice]:
    size = max(1, -(-count // (4 * threads())))
    return [slice(s, min(s + size, count)) for s in range(0, count, size)]


def _units(products: torch.Tensor, scale: float, bins: int) -> tuple[np.generic, ...]:
    """t = half - ratio p, at most top, in the dtype of the products."""
    kind = products.numpy().dtype.type
    return kind(bins / 2), kind(bins / (2 * scale)), kind(bins)


_NOTHING = np.empty((0, 0), np.uint8)
_NO_CLASSES = (np.empty(0, np.int64),) * 3


def _graded(pairs: Pairs) -> tuple[tuple[Any, ...], Any]:
    """((left, right, own), grades), one of them empty."""
    if pairs.classes is None:
        return _NO_CLASSES, pairs.grades().numpy()
    left, right, own = (t.to(torch.int64).numpy() for t in pairs.classes)
    return (left, right, own), _NOTHING


def add_counts(products: torch.Tensor, pairs: Pairs, scale: float, counts: torch.Tensor) -> None:
    units = _units(products, scale, counts.shape[2] - 1)
    (left, right, own), grades = _graded(pairs)
    p, c, by_class = products.numpy(), counts.numpy(), pairs.classes is not None

    def work(rows: slice) -> None:
        _count_rows(p[rows], by_class, left[rows], right, own[rows], grades[rows], *units, c[rows])

    run_tasks(work, _rows(len(p)))


def write_slopes(
    products: torch.Tensor,
    pairs: Pairs,
    scale: float,
    bins: int,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    units = _units(products, scale, bins)
    (left, right, own), grades = _graded(pairs)
    p, s, by_class = products.numpy(), slopes.numpy(), pairs.classes is not None
    o = out.numpy()
    other = s.reshape(-1)[:0] if both is None else both.numpy().reshape(-1)

    def work(rows: slice) -> None:
        _slope_rows(
            p[rows], by_class, left[rows], right, own[rows], grades[rows], *units, s[rows],
            other, both is not None, o[rows],
        )  # fmt: skip

    run_tasks(work, _rows(len(p)))
