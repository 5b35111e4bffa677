"""The kernels of losses over soft histograms: tiles of products in, losses or derivatives out.

A GPU scatters slowly into registers, but has arithmetic to spare: each program holds a few rows and
bins and a stretch of columns, and adds max(0, 1 - |t - l|) of every item to every bin. Sums across
threads and stretches are taken at the end, in a fixed order, so that every run gives the same
result.

Two planes are counted: with two grades (``GRADED`` false) the items of each; with more, all items
and their gains. Slopes have the same two planes: of a grade, or of any item and of a unit of gain.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankbits.kernels.cuda.quality import finish_rows

UNSEEN = (  # numbers for which Triton need not compile a kernel anew
    "offset", "rows", "columns", "stride", "levels", "bins", "places", "blocks", "splits", "scale",
    "half", "ratio",
)  # fmt: skip


@triton.jit
def _grade(
    grades, left, right, own, offset, row, column, rows, columns, stop,
    CLASSES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """The grades of a block, int32 (ROWS, COLUMNS), from ``grades`` or classes; 255 outside."""
    inside = (row < rows)[:, None] & (column < stop)[None, :]
    if CLASSES:
        mine = tl.load(left + row, mask=row < rows, other=0)
        theirs = tl.load(right + column, mask=column < stop, other=0)
        grade = (mine[:, None] == theirs[None, :]).to(tl.int32)
        if OWN == 1:
            inside = inside & ((row + offset)[:, None] != column[None, :])
        if OWN == 2:
            itself = tl.load(own + row, mask=row < rows, other=-1)
            inside = inside & (itself[:, None] != column[None, :])
    else:
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        grade = tl.load(grades + at, mask=inside, other=255).to(tl.int32)
    return tl.where(inside, grade, 255)


@triton.jit
def _find_units(half, ratio, bins, scale, dtype: tl.constexpr):
    """(half, ratio, top): t = half - ratio p, between 0 and top. Triton passes numbers as float32,
    so for float64 they are computed again."""
    if dtype == tl.float64:
        wide = bins.to(tl.float64)
        half = wide / 2
        ratio = wide / (2 * scale.to(tl.float64))
    return half, ratio, bins.to(dtype)


@triton.jit
def _find_places(p, half, ratio, top):
    t = tl.maximum(half - ratio * p, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(t, top, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=UNSEEN)
def judge_kernel(
    products, grades, left, right, own, gains, census, table, values, slopes, offset, rows, columns,
    stride, levels, bins, places, scale, half, ratio,
    FORMULA: tl.constexpr, NDCG: tl.constexpr, CLASSES: tl.constexpr, OWN: tl.constexpr,
    GRADED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    level = tl.arange(0, BINS)
    dtype: tl.constexpr = products.dtype.element_ty
    half, ratio, top = _find_units(half, ratio, bins, scale, dtype)
    centre = level.to(dtype)[None, None, :]
    total0 = tl.zeros((ROWS, COLUMNS, BINS), dtype)
    total1 = tl.zeros((ROWS, COLUMNS, BINS), dtype)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        g = _grade(
            grades, left, right, own, offset, row, column, rows, columns, columns, CLASSES, OWN
        )
        counted = g < levels
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        t = _find_places(tl.load(products + at, mask=counted, other=0.0), half, ratio, top)
        weight = 1.0 - tl.abs(t[:, :, None] - centre)
        weight = tl.maximum(weight, 0.0, propagate_nan=tl.PropagateNan.ALL)
        if GRADED:
            gain = tl.load(gains + g, mask=counted, other=0.0).to(dtype)[:, :, None]
            total0 += tl.where(counted[:, :, None], weight, 0.0)
            total1 += tl.where(gain > 0, weight * gain, 0.0)
        else:
            total0 += tl.where((g == 0)[:, :, None], weight, 0.0)
            total1 += tl.where((g == 1)[:, :, None], weight, 0.0)
    kept = (level <= bins)[None, :]
    finish_rows(
        tl.where(kept, tl.sum(total0, axis=1), 0.0), tl.where(kept, tl.sum(total1, axis=1), 0.0),
        row, level, gains, census, table, places, values, stride, slopes, rows, levels, bins, scale,
        FORMULA, NDCG, GRADED, ROWS, BINS,
    )  # fmt: skip


@triton.jit(do_not_specialize=UNSEEN)
def count_kernel(
    products, grades, left, right, own, gains, partial, offset, rows, columns, blocks, levels,
    bins, scale, half, ratio, CLASSES: tl.constexpr, OWN: tl.constexpr, GRADED: tl.constexpr,
    EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    if EVEN:  # the compiler may then load several columns at once
        columns = columns // 16 * 16
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    groups = (bins + BINS) // BINS
    plane = tl.program_id(1) // groups
    level = (tl.program_id(1) % groups) * BINS + tl.arange(0, BINS)
    first = tl.program_id(2) * blocks * COLUMNS
    last = tl.minimum(first + blocks * COLUMNS, columns)
    dtype: tl.constexpr = products.dtype.element_ty
    half, ratio, top = _find_units(half, ratio, bins, scale, dtype)
    centre = level.to(dtype)[None, None, :]
    total = tl.zeros((ROWS, COLUMNS, BINS), dtype)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        g = _grade(grades, left, right, own, offset, row, column, rows, columns, last, CLASSES, OWN)
        wanted = (g < levels) & (g >= plane) if GRADED else g == plane
        if tl.max(wanted.to(tl.int32)) > 0:
            at = row.to(tl.int64)[:, None] * columns + column[None, :]
            t = _find_places(tl.load(products + at, mask=wanted, other=0.0), half, ratio, top)
            t = tl.where(wanted, t, -2.0)  # two bins away from the nearest: weight 0
            weight = 1.0 - tl.abs(t[:, :, None] - centre)
            weight = tl.maximum(weight, 0.0, propagate_nan=tl.PropagateNan.ALL)
            if GRADED:
                gain = tl.load(gains + g, mask=wanted & (plane == 1), other=1.0).to(dtype)
                weight = weight * gain[:, :, None]
            total += weight
    place = (tl.program_id(2) * rows + row).to(tl.int64)[:, None] * 2 + plane
    kept = (row < rows)[:, None] & (level <= bins)[None, :]
    tl.store(partial + place * (bins + 1) + level[None, :], tl.sum(total, axis=1), mask=kept)


@triton.jit(do_not_specialize=UNSEEN)
def value_kernel(
    partial, gains, census, table, values, slopes, splits, rows, stride, levels, bins, places,
    scale, FORMULA: tl.constexpr, NDCG: tl.constexpr, GRADED: tl.constexpr,
    SPLITS: tl.constexpr, ROWS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    level = tl.arange(0, BINS)
    kept = (row < rows)[:, None] & (level <= bins)[None, :]
    c0 = tl.zeros((ROWS, BINS), tl.float64)
    c1 = tl.zeros((ROWS, BINS), tl.float64)
    cell = row.to(tl.int64)[:, None] * (2 * (bins + 1)) + level[None, :]
    for start in range(0, splits, SPLITS):
        split = (start + tl.arange(0, SPLITS))[:, None, None]
        at = partial + split.to(tl.int64) * rows * (2 * (bins + 1)) + cell[None, :, :]
        here = (split < splits) & kept[None, :, :]
        c0 += tl.sum(tl.load(at, mask=here, other=0.0).to(tl.float64), axis=0)
        c1 += tl.sum(tl.load(at + (bins + 1), mask=here, other=0.0).to(tl.float64), axis=0)
    finish_rows(
        c0, c1, row, level, gains, census, table, places, values, stride, slopes, rows, levels,
        bins, scale, FORMULA, NDCG, GRADED, ROWS, BINS,
    )  # fmt: skip


@triton.jit
def _average(values, rows, ROWS: tl.constexpr):
    """(loss, share) of all queries."""
    total = tl.zeros((ROWS,), tl.float64)
    queries = tl.zeros((ROWS,), tl.float64)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        total += tl.load(values + row, mask=row < rows, other=0.0)
        queries += tl.load(values + rows + row, mask=row < rows, other=0.0)
    part = 1 / tl.maximum(tl.sum(queries, axis=0), 1.0)
    return tl.sum(total, axis=0) * part, part


@triton.jit(do_not_specialize=UNSEEN)
def average_kernel(values, loss, share, rows, ROWS: tl.constexpr):
    mean, part = _average(values, rows, ROWS)
    tl.store(loss, mean)
    tl.store(share, part)


@triton.jit(do_not_specialize=UNSEEN)
def spread_kernel(
    products, grades, left, right, own, gains, slopes, both, values, loss, share, offset, rows,
    columns, levels, bins, scale, half, ratio,
    CLASSES: tl.constexpr, OWN: tl.constexpr, GRADED: tl.constexpr, SYMMETRIC: tl.constexpr,
    TURNED: tl.constexpr, AVERAGED: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    if EVEN:
        columns = columns // 16 * 16
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    p = tl.load(products + at, mask=inside, other=0.0)
    g = _grade(grades, left, right, own, offset, row, column, rows, columns, columns, CLASSES, OWN)
    half, ratio, top = _find_units(half, ratio, bins, scale, p.dtype)
    low = _find_places(p, half, ratio, top).to(tl.int32)
    low = tl.maximum(tl.minimum(low, bins - 1), 0)
    counted = inside & (g < levels)
    cell = low if GRADED else g * bins + low
    mine = slopes + row.to(tl.int64)[:, None] * (2 * bins) + cell
    if TURNED:  # cell by cell
        theirs = both + cell.to(tl.int64) * columns + column[None, :]
        further = bins.to(tl.int64) * columns
    else:
        theirs = both + column[None, :] * (2 * bins) + cell
        further = bins.to(tl.int64)
    slope = tl.load(mine, mask=counted, other=0.0)
    if SYMMETRIC:
        slope += tl.load(theirs, mask=counted, other=0.0)
    if GRADED:
        gained = tl.load(mine + bins, mask=counted, other=0.0)
        if SYMMETRIC:
            gained += tl.load(theirs + further, mask=counted, other=0.0)
        slope += gained * tl.load(gains + g, mask=counted, other=0.0).to(p.dtype)
    if AVERAGED:
        part = tl.load(share)
    else:
        mean, part = _average(values, rows, 512)
        if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
            tl.store(loss, mean)
    tl.store(products + at, slope * part.to(p.dtype), mask=inside)
