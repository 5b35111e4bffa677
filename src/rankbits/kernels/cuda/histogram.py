"""Soft histograms in Triton: tiles of products in, counts or slopes out.

A GPU has no cheap scatter into registers, but arithmetic to spare: each program holds a few rows,
one grade, sixteen bins and a stretch of columns, and adds max(0, 1 - |t - l|) of every item to
every bin. Sums across threads and stretches are taken at the end, in a fixed order: the result
does not vary from run to run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rankbits.kernels.histogram import Pairs

BINS = 16  # bins held by one program
ROWS, COLUMNS = 4, 64  # pairs it looks at together
PROGRAMS = 4096  # enough to keep every multiprocessor busy


@triton.jit
def _grade(
    grades, left, right, own, row, column, rows, columns, CLASSES: tl.constexpr
):  # fmt: skip
    """int32 (ROWS, COLUMNS): grades of a block, read or made of classes; 255 outside."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    if CLASSES:
        mine = tl.load(left + row, mask=row < rows, other=0)
        theirs = tl.load(right + column, mask=column < columns, other=0)
        itself = tl.load(own + row, mask=row < rows, other=-1)
        found = (mine[:, None] == theirs[None, :]).to(tl.int32)
        inside = inside & (itself[:, None] != column[None, :])
    else:
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        found = tl.load(grades + at, mask=inside, other=255).to(tl.int32)
    return tl.where(inside, found, 255)


@triton.jit
def _count_kernel(
    products, grades, left, right, own, partial, rows, columns, stretch, levels, bins, half, ratio,
    CLASSES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    groups = (bins + BINS) // BINS
    grade = tl.program_id(1) // groups
    level = (tl.program_id(1) % groups) * BINS + tl.arange(0, BINS)
    first = tl.program_id(2) * stretch
    last = tl.minimum(first + stretch, columns)
    top = bins.to(tl.float32)
    centre = level.to(tl.float32)[None, None, :]
    total = tl.zeros((ROWS, COLUMNS, BINS), tl.float32)
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        g = _grade(grades, left, right, own, row, column, rows, last, CLASSES)
        wanted = g == grade
        if tl.max(wanted.to(tl.int32)) > 0:
            at = row.to(tl.int64)[:, None] * columns + column[None, :]
            t = half - ratio * tl.load(products + at, mask=wanted, other=0.0)
            t = tl.maximum(t, 0.0, propagate_nan=tl.PropagateNan.ALL)
            t = tl.minimum(t, top, propagate_nan=tl.PropagateNan.ALL)
            t = tl.where(wanted, t, -2.0)  # two bins away from the nearest: weight 0
            weight = 1.0 - tl.abs(t[:, :, None] - centre)
            total += tl.maximum(weight, 0.0, propagate_nan=tl.PropagateNan.ALL)
    place = (tl.program_id(2) * rows + row).to(tl.int64)[:, None] * levels + grade
    kept = (row < rows)[:, None] & (level <= bins)[None, :]
    tl.store(partial + place * (bins + 1) + level[None, :], tl.sum(total, axis=1), mask=kept)


@triton.jit
def _slope_kernel(
    products, out, grades, left, right, own, slopes, both, rows, columns, levels, bins, half, ratio,
    CLASSES: tl.constexpr, SYMMETRIC: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    p = tl.load(products + at, mask=inside, other=0.0)
    g = _grade(grades, left, right, own, row, column, rows, columns, CLASSES)
    low = tl.minimum(tl.maximum(half - ratio * p, 0.0), bins.to(tl.float32)).to(tl.int32)
    cell = g * bins + tl.maximum(tl.minimum(low, bins - 1), 0)
    counted = inside & (g < levels)
    mine = slopes + row.to(tl.int64)[:, None] * levels * bins + cell
    found = tl.load(mine, mask=counted, other=0.0)
    if SYMMETRIC:
        theirs = both + cell.to(tl.int64) * columns + column[None, :]
        found += tl.load(theirs, mask=counted, other=0.0)
    tl.store(out + at, found, mask=inside)


def _graded(pairs: Pairs) -> tuple[torch.Tensor, ...]:
    """(grades, left, right, own): what is not used is any tensor at all."""
    if pairs.classes is not None:
        left, right, own = (t.contiguous() for t in pairs.classes)
        return left, left, right, own
    grades = pairs.grades()
    return grades, grades, grades, grades


def add_counts(products: torch.Tensor, pairs: Pairs, scale: float, counts: torch.Tensor) -> None:
    rows, columns = products.shape
    _, levels, centres = counts.shape
    bins = centres - 1
    blocks = triton.cdiv(rows, ROWS), levels * triton.cdiv(centres, BINS)
    splits = max(1, min(triton.cdiv(PROGRAMS, blocks[0] * blocks[1]), triton.cdiv(columns, 1024)))
    stretch = triton.cdiv(triton.cdiv(columns, splits), COLUMNS) * COLUMNS
    splits = triton.cdiv(columns, stretch)
    partial = counts.new_empty(splits, *counts.shape)
    with torch.cuda.device(products.device):
        _count_kernel[(*blocks, splits)](
            products, *_graded(pairs), partial, rows, columns, stretch, levels, bins,
            bins / 2, bins / (2 * scale), CLASSES=pairs.classes is not None,
            ROWS=ROWS, COLUMNS=COLUMNS, BINS=BINS, num_warps=4,
        )  # fmt: skip
    counts += partial.sum(dim=0)


def write_slopes(
    products: torch.Tensor,
    pairs: Pairs,
    scale: float,
    bins: int,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    rows, columns = products.shape
    tile = 4, 256
    with torch.cuda.device(products.device):
        _slope_kernel[(triton.cdiv(rows, tile[0]), triton.cdiv(columns, tile[1]))](
            products, out, *_graded(pairs), slopes, slopes if both is None else both, rows, columns,
            slopes.shape[1], bins, bins / 2, bins / (2 * scale),
            CLASSES=pairs.classes is not None, SYMMETRIC=both is not None,
            ROWS=tile[0], COLUMNS=tile[1], num_warps=4,
        )  # fmt: skip
