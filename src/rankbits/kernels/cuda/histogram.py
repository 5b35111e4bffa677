"""Losses over soft histograms in Triton: tiles of products in, losses or derivatives out.

A GPU has no cheap scatter into registers, but arithmetic to spare: each program holds a few rows
and bins and a stretch of columns, and adds max(0, 1 - |t - l|) of every item to every bin. Sums
across threads and stretches are taken at the end, in a fixed order: the result does not vary from
run to run.

A small batch is bound by launches, so one kernel goes from products to losses and slopes. A large
one is bound by work: its columns are split among programs, and a second kernel judges the sums.

Two planes are counted: with two grades (``GRADED`` false) the items of each; with more, all items
and their gains. Slopes have the same two planes: of a grade, or of any item and of a unit of gain.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.launch import on_device
from rankbits.kernels.cuda.quality import find_table, finish_rows
from rankbits.kernels.histogram import Judged, Pairs, Setting
from rankbits.kernels.reference.histogram import turn

__all__ = ["average", "count_planes", "judge", "spread", "turn"]

BINS = 16  # bins held by one program that counts
ROWS, COLUMNS = 4, 64  # pairs it looks at together
PROGRAMS = 4096  # enough to keep every multiprocessor busy
TOGETHER = 1 << 28  # rows x columns x bins up to which one kernel counts and judges
UNSEEN = (  # whole numbers that make no difference to the code of a kernel
    "offset", "rows", "stride", "levels", "bins", "places", "stretch", "splits", "scale",
)  # fmt: skip


@triton.jit
def _grade(
    grades, left, right, own, offset, row, column, rows, columns, stop,
    CLASSES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """int32 (ROWS, COLUMNS): grades of a block, read or made of classes; 255 outside."""
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
def _find_places(p, bins, scale):
    """t of products, in their dtype, between 0 and bins."""
    top = bins.to(tl.float64)
    ratio = top / (2 * scale.to(tl.float64))
    t = (top / 2).to(p.dtype) - ratio.to(p.dtype) * p
    t = tl.maximum(t, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(t, top.to(p.dtype), propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=(*UNSEEN, "columns"))
def _judge_kernel(
    products, grades, left, right, own, gains, census, table, values, slopes, offset, rows, columns,
    stride, levels, bins, places, scale,
    FORMULA: tl.constexpr, NDCG: tl.constexpr, CLASSES: tl.constexpr, OWN: tl.constexpr,
    GRADED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    level = tl.arange(0, BINS)
    dtype = products.dtype.element_ty
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
        t = _find_places(tl.load(products + at, mask=counted, other=0.0), bins, scale)
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
def _count_kernel(
    products, grades, left, right, own, gains, partial, offset, rows, columns, stretch, levels,
    bins, scale, CLASSES: tl.constexpr, OWN: tl.constexpr, GRADED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    groups = (bins + BINS) // BINS
    plane = tl.program_id(1) // groups
    level = (tl.program_id(1) % groups) * BINS + tl.arange(0, BINS)
    first = tl.program_id(2) * stretch
    last = tl.minimum(first + stretch, columns)
    dtype = products.dtype.element_ty
    centre = level.to(dtype)[None, None, :]
    total = tl.zeros((ROWS, COLUMNS, BINS), dtype)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        g = _grade(grades, left, right, own, offset, row, column, rows, columns, last, CLASSES, OWN)
        wanted = (g < levels) & (g >= plane) if GRADED else g == plane
        if tl.max(wanted.to(tl.int32)) > 0:
            at = row.to(tl.int64)[:, None] * columns + column[None, :]
            t = _find_places(tl.load(products + at, mask=wanted, other=0.0), bins, scale)
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
def _value_kernel(
    partial, gains, census, table, values, slopes, splits, rows, stride, levels, bins, places,
    scale, FORMULA: tl.constexpr, NDCG: tl.constexpr, GRADED: tl.constexpr,
    ROWS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    level = tl.arange(0, BINS)
    kept = (row < rows)[:, None] & (level <= bins)[None, :]
    c0 = tl.zeros((ROWS, BINS), tl.float64)
    c1 = tl.zeros((ROWS, BINS), tl.float64)
    for split in range(splits):
        place = (split * rows + row).to(tl.int64)[:, None] * (2 * (bins + 1)) + level[None, :]
        c0 += tl.load(partial + place, mask=kept, other=0.0)
        c1 += tl.load(partial + place + (bins + 1), mask=kept, other=0.0)
    finish_rows(
        c0, c1, row, level, gains, census, table, places, values, stride, slopes, rows, levels,
        bins, scale, FORMULA, NDCG, GRADED, ROWS, BINS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _average_kernel(values, loss, share, rows, ROWS: tl.constexpr):
    total = tl.zeros((ROWS,), tl.float64)
    queries = tl.zeros((ROWS,), tl.float64)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        total += tl.load(values + row, mask=row < rows, other=0.0)
        queries += tl.load(values + rows + row, mask=row < rows, other=0.0)
    part = 1 / tl.maximum(tl.sum(queries, axis=0), 1.0)
    tl.store(loss, tl.sum(total, axis=0) * part)
    tl.store(share, part)


@triton.jit(do_not_specialize=UNSEEN)
def _spread_kernel(
    products, out, grades, left, right, own, gains, slopes, both, upstream, share, offset, rows,
    columns, levels, bins, scale,
    CLASSES: tl.constexpr, OWN: tl.constexpr, GRADED: tl.constexpr, SYMMETRIC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    p = tl.load(products + at, mask=inside, other=0.0)
    g = _grade(grades, left, right, own, offset, row, column, rows, columns, columns, CLASSES, OWN)
    low = _find_places(p, bins, scale).to(tl.int32)
    low = tl.maximum(tl.minimum(low, bins - 1), 0)
    counted = inside & (g < levels)
    cell = low if GRADED else g * bins + low
    mine = slopes + row.to(tl.int64)[:, None] * (2 * bins) + cell
    theirs = both + cell.to(tl.int64) * columns + column[None, :]
    slope = tl.load(mine, mask=counted, other=0.0)
    if SYMMETRIC:
        slope += tl.load(theirs, mask=counted, other=0.0)
    if GRADED:
        gained = tl.load(mine + bins, mask=counted, other=0.0)
        if SYMMETRIC:
            gained += tl.load(theirs + bins.to(tl.int64) * columns, mask=counted, other=0.0)
        slope += gained * tl.load(gains + g, mask=counted, other=0.0).to(p.dtype)
    weight = tl.load(upstream).to(tl.float64) * tl.load(share)
    tl.store(out + at, slope * weight.to(p.dtype), mask=inside)


def count_planes(levels: int) -> int:
    return 2


def _list_pairs(pairs: Pairs) -> tuple[tuple[torch.Tensor, ...], int, dict[str, Any]]:
    """((grades, left, right, own), offset, constants): what is not used is any tensor at all."""
    if pairs.classes is None:
        grades = pairs.grades()
        return (grades,) * 4, 0, {"CLASSES": False, "OWN": 0}
    left, right = (t.contiguous() for t in pairs.classes)
    if isinstance(pairs.own, torch.Tensor):
        return (left, left, right, pairs.own.contiguous()), 0, {"CLASSES": True, "OWN": 2}
    known = {"CLASSES": True, "OWN": 0 if pairs.own is None else 1}
    return (left, left, right, left), pairs.own or 0, known


def _count_grades(grades: torch.Tensor, levels: int) -> torch.Tensor:
    """(m, levels) int32: how many items each query has of each grade."""
    sizes = torch.zeros(len(grades), 256, dtype=torch.int32, device=grades.device)
    ones = sizes.new_ones(1, 1).expand(grades.shape)
    return sizes.scatter_add_(1, grades.long(), ones)[:, :levels].contiguous()


def judge(products: torch.Tensor, pairs: Pairs, setting: Setting, judged: Judged) -> None:
    rows, columns = products.shape
    bins, levels, scale = setting.bins, setting.levels, setting.scale
    if not rows:
        return
    graded = setting.gains is not None
    graders, offset, known = _list_pairs(pairs)
    gains = census = graders[0]
    if graded:
        assert setting.gains is not None
        gains, census = setting.gains, _count_grades(graders[0], levels)
    table = find_table(columns + 4, products.device)
    width = max(16, triton.next_power_of_2(bins + 1))
    known |= {"GRADED": graded}
    formula = {"FORMULA": setting.formula, "NDCG": setting.formula.startswith("ndcg")}
    shared = (gains, census, table, judged.values, judged.slopes)
    stride, places = judged.values.stride(0), columns + 4
    with on_device(products):
        if rows * columns * width <= TOGETHER:
            block = max(1, 64 // width)
            _judge_kernel[(triton.cdiv(rows, block),)](
                products, *graders, *shared, offset, rows, columns, stride, levels, bins, places,
                scale, ROWS=block, BINS=width, COLUMNS=max(4, 4096 // (block * width)),
                num_warps=4, **formula, **known,
            )  # fmt: skip
            return
        blocks = triton.cdiv(rows, ROWS), 2 * triton.cdiv(bins + 1, BINS)
        splits = triton.cdiv(PROGRAMS, blocks[0] * blocks[1])
        splits = max(1, min(splits, triton.cdiv(columns, 1024)))
        stretch = triton.cdiv(triton.cdiv(columns, splits), COLUMNS) * COLUMNS
        splits = triton.cdiv(columns, stretch)
        partial = products.new_empty(splits, rows, 2, bins + 1)
        _count_kernel[(*blocks, splits)](
            products, *graders, gains, partial, offset, rows, columns, stretch, levels, bins, scale,
            ROWS=ROWS, COLUMNS=COLUMNS, BINS=BINS, num_warps=4, **known,
        )  # fmt: skip
        block = max(1, 128 // width)
        _value_kernel[(triton.cdiv(rows, block),)](
            partial, *shared, splits, rows, stride, levels, bins, places, scale,
            GRADED=graded, ROWS=block, BINS=width, num_warps=4, **formula,
        )  # fmt: skip


def average(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, share): the mean of values[0] over the queries that values[1] marks, and 1 / them."""
    loss, share = values.new_empty((), dtype=dtype), values.new_empty(())
    with on_device(values):
        _average_kernel[(1,)](values, loss, share, values.shape[1], ROWS=1024, num_warps=4)
    return loss, share


def spread(
    products: torch.Tensor,
    pairs: Pairs,
    setting: Setting,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
    weights: tuple[torch.Tensor, torch.Tensor],
    out: torch.Tensor,
) -> None:
    rows, columns = products.shape
    if not products.numel():
        return
    graders, offset, known = _list_pairs(pairs)
    graded = setting.gains is not None
    tile = 4, 256
    with on_device(products):
        _spread_kernel[(triton.cdiv(rows, tile[0]), triton.cdiv(columns, tile[1]))](
            products, out, *graders, setting.gains if graded else slopes, slopes,
            slopes if both is None else both, *weights, offset, rows, columns, setting.levels,
            setting.bins, setting.scale, GRADED=graded, SYMMETRIC=both is not None,
            ROWS=tile[0], COLUMNS=tile[1], num_warps=4, **known,
        )  # fmt: skip
