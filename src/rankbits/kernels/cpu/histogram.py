"""Losses over soft histograms in numba: tiles of products in, losses or derivatives out.

A row goes through three short loops. The first two, which find the bin and fraction of each item
and its cell of (grade, bin), are plain arithmetic that LLVM vectorises. Only the third, which adds
to cells or reads from them, goes item by item. A cell holds a count and a sum of fractions side by
side, so that an item takes one load, one addition and one store of two numbers; soft counts are
their differences. Pairs that are not counted have a cell of their own, past the others. A row is
judged (``quality.py``) as soon as its counts are complete.

A product that is nan lands in the first bin and makes its sum nan: the loss becomes nan, as a
gradient scaler expects.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import cut_tiles
from rankbits.kernels.cpu.quality import MIHASH, NDCG_SIMPLE, judge_row
from rankbits.kernels.histogram import FORMULAS, Pairs, QueryLosses, Setting
from rankbits.kernels.reference import continuation
from rankbits.kernels.reference.histogram import average, count_planes

LEAST_PAIRS = 1 << 13  # in a slice: to hand over fewer takes longer than to judge them

__all__ = ["average", "count_planes", "judge", "spread", "turn"]


@njit(nogil=True, cache=True)
def _find_places(products, half, ratio, top, low, fraction):
    zero = products.dtype.type(0)
    last = np.int32(top) - np.int32(1)
    for j in range(products.shape[0]):
        t = half - ratio * products[j]
        inside = t if t > zero else zero
        inside = inside if inside < top else top
        whole = min(np.int32(inside), last)
        low[j] = whole
        fraction[j] = (inside - whole) + (t - t)  # t - t is 0, or nan where t is nan


@njit(nogil=True, cache=True)
def _place_by_class(mine, theirs, own, bins, spare, low):
    for j in range(theirs.shape[0]):
        low[j] += bins if theirs[j] == mine else np.int32(0)
    if own >= 0:
        low[own] = spare


@njit(nogil=True, cache=True)
def _place_by_grade(grades, levels, bins, spare, low):
    for j in range(grades.shape[0]):
        low[j] = low[j] + bins * np.int32(grades[j]) if grades[j] < levels else spare


@njit(nogil=True, cache=True)
def _find_cells(i, by_class, left, right, own, grades, levels, bins, spare, low):
    """Turn the bins of row i into cells of (grade, bin), by classes or by grades."""
    if by_class:
        _place_by_class(left[i], right, own[i], bins, spare, low)
    else:
        _place_by_grade(grades[i], levels, bins, spare, low)


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
def _read_both(cells, own, both, weight, out):
    columns = cells.shape[0]
    for j in range(columns):
        out[j] = own[cells[j]] + weight * both[cells[j] * np.int64(columns) + j]


@njit(nogil=True, cache=True)
def _find_ideal(sizes, gains, table):
    """The DCG of a query's items in falling order of gain."""
    start, total = 0, 0.0
    for g in range(len(sizes) - 1, 0, -1):
        end = start + sizes[g]
        total += gains[g] * (table[end] - table[start])
        start = end
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def _judge_rows(
    products, by_class, left, right, own, grades, half, ratio, top, formula, gains, table, unit,
    values, slopes,
):  # fmt: skip
    levels, bins = slopes.shape[1], np.int32(slopes.shape[2])
    spare = np.int32(levels) * bins
    cells = np.empty(products.shape[1], np.int32)
    fraction = np.empty(products.shape[1], products.dtype)
    sums = np.zeros((spare + 1, 2), np.float64)
    sizes = np.empty(levels, np.int64)
    planes = np.empty((3, bins + 1))  # counts of grade 0, sums of gains, counts of all
    by = np.empty((2, bins + 1))
    for i in range(products.shape[0]):
        _find_places(products[i], half, ratio, top, cells, fraction)
        _find_cells(i, by_class, left, right, own, grades, levels, bins, spare, cells)
        sums[:] = 0.0
        _add(cells, fraction, sums)
        planes[:] = 0.0
        for g in range(levels):
            size = 0.0
            for b in range(bins):
                near, far = sums[g * bins + b, 0] - sums[g * bins + b, 1], sums[g * bins + b, 1]
                size += sums[g * bins + b, 0]
                if g == 0:
                    planes[0, b] += near
                    planes[0, b + 1] += far
                planes[1, b] += gains[g] * near
                planes[1, b + 1] += gains[g] * far
                planes[2, b] += near
                planes[2, b + 1] += far
            sizes[g] = np.int64(size)
        n0, n1 = sizes[0], sizes[1:].sum()
        result = judge_row(formula, planes[0], planes[1], planes[2], n0, n1, table, by[0], by[1])
        whole, valid = 1.0, n1 > 0
        share = 1.0 / max(n1, 1)
        if formula == MIHASH:
            whole, valid = 0.0, n1 > 0 and n0 > 0
            share = 1.0 / max(n0 + n1, 1)
        elif formula >= NDCG_SIMPLE:
            ideal = _find_ideal(sizes, gains, table)
            share = 1.0 / ideal if ideal > 0 else 1.0
        values[0, i] = whole - result * share if valid else result * 0.0
        values[1, i] = 1.0 if valid else 0.0
        weight = -unit * share if valid else 0.0
        for g in range(levels):
            for b in range(bins):
                slope = by[1, b + 1] - by[1, b] + gains[g] * (by[0, b + 1] - by[0, b])
                slopes[i, g, b] = weight * slope


@njit(nogil=True, cache=True)
def _spread_rows(
    products, by_class, left, right, own, grades, half, ratio, top, slopes, both, symmetric,
    weight,
):  # fmt: skip
    levels, bins = slopes.shape[1], np.int32(slopes.shape[2])
    spare = np.int32(levels) * bins
    cells = np.empty(products.shape[1], np.int32)
    fraction = np.empty(products.shape[1], products.dtype)
    mine = np.zeros(spare + 1, slopes.dtype)
    for i in range(products.shape[0]):
        _find_places(products[i], half, ratio, top, cells, fraction)
        _find_cells(i, by_class, left, right, own, grades, levels, bins, spare, cells)
        for g in range(levels):
            for b in range(bins):
                mine[g * bins + b] = slopes[i, g, b] * weight
        if symmetric:
            _read_both(cells, mine, both, weight, products[i])
        else:
            _read(cells, mine, products[i])


def _find_units(products: torch.Tensor, setting: Setting) -> tuple[np.generic, ...]:
    """t = half - ratio p, at most top, in the dtype of the products."""
    kind, bins = products.numpy().dtype.type, setting.bins
    return kind(bins / 2), kind(bins / (2 * setting.scale)), kind(bins)


_NOTHING = np.empty((0, 0), np.uint8)
_NO_CLASSES = (np.empty(0, np.int64),) * 3
_TWO_GAINS = np.array([0.0, 1.0])


def _list_pairs(pairs: Pairs, rows: int) -> tuple[tuple[Any, ...], Any]:
    """((left, right, own), grades), of which one is empty."""
    if pairs.classes is None:
        return _NO_CLASSES, pairs.grades().numpy()
    left, right = (t.to(torch.int64).numpy() for t in pairs.classes)
    if isinstance(pairs.own, torch.Tensor):
        own = pairs.own.numpy()
    elif pairs.own is None:
        own = np.full(rows, -1)
    else:
        own = np.arange(pairs.own, pairs.own + rows)
    return (left, right, own), _NOTHING


@functools.cache
def _sum_discounts(size: int) -> np.ndarray:
    return continuation.cumulative_discount(size, torch.device("cpu")).numpy()


def _cut_rows(rows: int, columns: int) -> list[slice]:
    return cut_tiles(rows, most=rows, least=max(1, LEAST_PAIRS // max(1, columns)))


def judge(products: torch.Tensor, pairs: Pairs, setting: Setting, losses: QueryLosses) -> None:
    units = _find_units(products, setting)
    (left, right, own), grades = _list_pairs(pairs, len(products))
    p, by_class = products.numpy(), pairs.classes is not None
    values, slopes = losses.values.numpy(), losses.slopes.numpy()
    formula = FORMULAS.index(setting.formula)
    gains = _TWO_GAINS if setting.gains is None else setting.gains.numpy()
    places = products.shape[1] + 4 if formula >= NDCG_SIMPLE else 1
    table = _sum_discounts(1 << places.bit_length())

    def work(rows: slice) -> None:
        _judge_rows(
            p[rows], by_class, left[rows], right, own[rows], grades[rows], *units, formula, gains,
            table, setting.unit, values[:, rows], slopes[rows],
        )  # fmt: skip

    run_tasks(work, _cut_rows(*p.shape))


def turn(slopes: torch.Tensor) -> torch.Tensor:
    """(grades * bins + 1, M): as in the reference, with a row of zeros for pairs not counted."""
    return torch.nn.functional.pad(slopes.flatten(1), (0, 1)).T.contiguous()


def spread(
    products: torch.Tensor,
    pairs: Pairs,
    setting: Setting,
    losses: QueryLosses,
    both: torch.Tensor | None,
    loss: torch.Tensor,
    share: torch.Tensor,
) -> None:
    units = _find_units(products, setting)
    (left, right, own), grades = _list_pairs(pairs, len(products))
    p, s, by_class = products.numpy(), losses.slopes.numpy(), pairs.classes is not None
    weight = s.dtype.type(share.item())
    other = s.reshape(-1)[:0] if both is None else both.numpy().reshape(-1)

    def work(rows: slice) -> None:
        _spread_rows(
            p[rows], by_class, left[rows], right, own[rows], grades[rows], *units, s[rows],
            other, both is not None, weight,
        )  # fmt: skip

    run_tasks(work, _cut_rows(*p.shape))
