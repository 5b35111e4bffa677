"""Soft histograms in numba: tiles of products in, counts or slopes out.

A count and a sum of fractions are kept for each bin and sit side by side, so that an item is one
load, one addition and one store of two numbers; the soft counts are their differences. A product
that is nan lands in the first bin and makes its sum nan: the loss becomes nan, as a gradient
scaler expects.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit

from rankbits.kernels.backend import run_tasks, threads
from rankbits.kernels.histogram import Pairs


@njit(nogil=True, cache=True)
def _count_row(products, grades, half, ratio, top, sums):
    levels = sums.shape[0]
    for j in range(products.shape[0]):
        grade = grades[j]
        if grade < levels:
            t = min(max(half - ratio * products[j], products.dtype.type(0)), top)
            low = max(min(np.int64(t), np.int64(top) - 1), 0)
            sums[grade, low, 0] += 1.0
            sums[grade, low, 1] += t - low


@njit(nogil=True, cache=True)
def _count_rows(products, grades, half, ratio, top, counts):
    levels, bins = counts.shape[1], counts.shape[2] - 1
    sums = np.zeros((levels, bins, 2), np.float64)
    for i in range(products.shape[0]):
        sums[:] = 0.0
        _count_row(products[i], grades[i], half, ratio, top, sums)
        for g in range(levels):
            for b in range(bins):
                counts[i, g, b] += sums[g, b, 0] - sums[g, b, 1]
                counts[i, g, b + 1] += sums[g, b, 1]


@njit(nogil=True, cache=True)
def _slope_row(products, grades, half, ratio, top, own, both):
    levels, bins = own.shape
    zero = products.dtype.type(0)
    for j in range(products.shape[0]):
        grade = grades[j]
        if grade < levels:
            t = min(max(half - ratio * products[j], zero), top)
            low = max(min(np.int64(t), np.int64(bins) - 1), 0)
            products[j] = own[grade, low] + both[grade * bins + low, j]
        else:
            products[j] = zero


@njit(nogil=True, cache=True)
def _slope_row_alone(products, grades, half, ratio, top, own):
    levels, bins = own.shape
    zero = products.dtype.type(0)
    for j in range(products.shape[0]):
        grade = grades[j]
        if grade < levels:
            t = min(max(half - ratio * products[j], zero), top)
            low = max(min(np.int64(t), np.int64(bins) - 1), 0)
            products[j] = own[grade, low]
        else:
            products[j] = zero


@njit(nogil=True, cache=True)
def _slope_rows(products, grades, half, ratio, top, slopes, both, symmetric):
    for i in range(products.shape[0]):
        if symmetric:
            _slope_row(products[i], grades[i], half, ratio, top, slopes[i], both)
        else:
            _slope_row_alone(products[i], grades[i], half, ratio, top, slopes[i])


def _rows(count: int) -> list[slice]:
    size = max(1, -(-count // (4 * threads())))
    return [slice(s, min(s + size, count)) for s in range(0, count, size)]


def _units(products: torch.Tensor, scale: float, bins: int) -> tuple[np.generic, ...]:
    """t = half - ratio p, at most top, in the dtype of the products."""
    kind = products.numpy().dtype.type
    return kind(bins / 2), kind(bins / (2 * scale)), kind(bins)


def add_counts(products: torch.Tensor, pairs: Pairs, scale: float, counts: torch.Tensor) -> None:
    units = _units(products, scale, counts.shape[2] - 1)
    p, g, c = products.numpy(), pairs.grades().numpy(), counts.numpy()
    run_tasks(lambda rows: _count_rows(p[rows], g[rows], *units, c[rows]), _rows(len(p)))


def products_to_slopes(
    products: torch.Tensor,
    pairs: Pairs,
    scale: float,
    bins: int,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
) -> None:
    units = _units(products, scale, bins)
    p, g, s = products.numpy(), pairs.grades().numpy(), slopes.numpy()
    other = s[0] if both is None else both.numpy()
    symmetric = both is not None
    run_tasks(
        lambda rows: _slope_rows(p[rows], g[rows], *units, s[rows], other, symmetric),
        _rows(len(p)),
    )
