"""Losses over soft histograms on a GPU: choose the kernels in ``tiles.py`` that a tile needs.

Launches limit a small batch, so one kernel goes from products to losses and slopes. Work limits a
large one: its columns are split among programs, and a second kernel judges the sums.
"""

from __future__ import annotations

import functools

import torch

from rankbits.kernels.cuda import tiles
from rankbits.kernels.cuda.launch import Launch, divide_up, find_power
from rankbits.kernels.cuda.quality import find_table
from rankbits.kernels.histogram import Pairs, QueryLosses, Setting
from rankbits.kernels.reference import histogram as reference

BINS = 16  # bins of one program that counts
ROWS, COLUMNS = 4, 64  # pairs that it counts together
PROGRAMS = 4096  # enough to keep every multiprocessor busy
TOGETHER = 1 << 28  # rows x columns x bins up to which one kernel counts and judges
FEW = 1024  # up to this many queries, every program of ``spread`` computes the mean itself
SCATTERED = 1 << 19  # up to this many slopes fit the caches and need not be reordered


def count_planes(levels: int) -> int:
    return 2


def _list_pairs(pairs: Pairs) -> tuple[tuple[torch.Tensor, ...], tuple[bool, int, int]]:
    """((grades, left, right, own), (CLASSES, OWN, offset)); unused places hold any tensor."""
    if pairs.classes is None:
        return (pairs.grades(),) * 4, (False, 0, 0)
    left, right = (t.contiguous() for t in pairs.classes)
    if isinstance(pairs.own, torch.Tensor):
        return (left, left, right, pairs.own.contiguous()), (True, 2, 0)
    return (left, left, right, left), (True, 0 if pairs.own is None else 1, pairs.own or 0)


def _count_grades(grades: torch.Tensor, levels: int) -> torch.Tensor:
    """(m, levels) int32: how many items each query has of each grade."""
    sizes = torch.zeros(len(grades), 256, dtype=torch.int32, device=grades.device)
    ones = sizes.new_ones(1, 1).expand(grades.shape)
    return sizes.scatter_add_(1, grades.long(), ones)[:, :levels].contiguous()


@functools.lru_cache(4096)
def _plan_judging(
    rows: int,
    columns: int,
    stride: int,
    facts: tuple[str, int, int, int, bool],
    grading: tuple[bool, int, int],
    together: int,
) -> tuple[Launch, Launch | None, int]:
    """(kernel, None, 0), or (kernel that counts, kernel that judges, number of column parts)."""
    formula, levels, bins, scale, graded = facts
    classes, own, offset = grading
    width, places = max(16, find_power(bins + 1)), columns + 4
    units = bins / 2, bins / (2 * scale)
    judging = {"FORMULA": formula, "NDCG": formula.startswith("ndcg")}
    counting = {"CLASSES": classes, "OWN": own, "GRADED": graded}
    if rows * columns * width <= together:
        block = max(1, 64 // width)
        sizes = {"ROWS": block, "COLUMNS": max(4, 4096 // (block * width)), "BINS": width}
        numbers = (offset, rows, columns, stride, levels, bins, places, scale, *units)
        grid = (divide_up(rows, block),)
        return Launch(tiles.judge_kernel, grid, numbers, judging | counting | sizes), None, 0
    programs = divide_up(rows, ROWS), 2 * divide_up(bins + 1, BINS)
    splits = divide_up(PROGRAMS, programs[0] * programs[1])
    splits = max(1, min(splits, divide_up(columns, 1024)))
    blocks = divide_up(divide_up(columns, splits), COLUMNS)
    splits = divide_up(columns, blocks * COLUMNS)
    sizes = {"EVEN": columns % 16 == 0, "ROWS": ROWS, "COLUMNS": COLUMNS, "BINS": BINS}
    count = Launch(
        tiles.count_kernel, (*programs, splits),
        (offset, rows, columns, blocks, levels, bins, scale, *units), counting | sizes,
    )  # fmt: skip
    sizes = {"SPLITS": min(32, find_power(splits)), "ROWS": 1, "BINS": width}
    value = Launch(
        tiles.value_kernel, (rows,), (splits, rows, stride, levels, bins, places, scale),
        judging | {"GRADED": graded} | sizes,
    )  # fmt: skip
    return count, value, splits


def judge(products: torch.Tensor, pairs: Pairs, setting: Setting, losses: QueryLosses) -> None:
    rows, columns = products.shape
    if not rows:
        return
    graders, grading = _list_pairs(pairs)
    gains = census = graders[0]
    if setting.gains is not None:
        gains, census = setting.gains, _count_grades(graders[0], setting.levels)
    facts = setting.formula, setting.levels, setting.bins, setting.scale, setting.gains is not None
    stride = losses.values.stride(0)
    first, second, splits = _plan_judging(rows, columns, stride, facts, grading, TOGETHER)
    outcome = (
        gains, census, find_table(columns + 4, products.device), losses.values, losses.slopes
    )  # fmt: skip
    if second is None:
        first(products, *graders, *outcome)
        return
    partial = products.new_empty(splits, rows, 2, setting.bins + 1)
    first(products, *graders, gains, partial)
    second(partial, *outcome)


@functools.lru_cache(4096)
def _plan_average(rows: int) -> Launch:
    return Launch(tiles.average_kernel, (1,), (rows,), {"ROWS": 1024})


def average(
    values: torch.Tensor, dtype: torch.dtype, alone: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = values.new_empty((), dtype=dtype)
    if not alone and values.shape[1] <= FEW:
        return loss, loss  # ``spread`` computes the mean, which saves a launch
    share = values.new_empty(())
    _plan_average(values.shape[1])(values, loss, share)
    return loss, share


def turn(slopes: torch.Tensor) -> torch.Tensor:
    """Slopes by cell, as in the reference; few slopes stay as they are, by query."""
    return slopes if slopes.numel() <= SCATTERED else reference.turn(slopes)


@functools.lru_cache(4096)
def _plan_spreading(
    rows: int,
    columns: int,
    facts: tuple[int, int, int, bool],
    grading: tuple[bool, int, int],
    symmetric: bool,
    turned: bool,
    averaged: bool,
) -> Launch:
    levels, bins, scale, graded = facts
    classes, own, offset = grading
    constants = {
        "CLASSES": classes, "OWN": own, "GRADED": graded, "SYMMETRIC": symmetric,
        "TURNED": turned, "AVERAGED": averaged, "EVEN": columns % 16 == 0,
        "ROWS": 4, "COLUMNS": 256,
    }  # fmt: skip
    numbers = (offset, rows, columns, levels, bins, scale, bins / 2, bins / (2 * scale))
    grid = divide_up(rows, 4), divide_up(columns, 256)
    return Launch(tiles.spread_kernel, grid, numbers, constants)


def spread(
    products: torch.Tensor,
    pairs: Pairs,
    setting: Setting,
    losses: QueryLosses,
    both: torch.Tensor | None,
    loss: torch.Tensor,
    share: torch.Tensor,
) -> None:
    rows, columns = products.shape
    if not rows or not columns:
        return
    graders, grading = _list_pairs(pairs)
    gains = graders[0] if setting.gains is None else setting.gains
    other = losses.slopes if both is None else both
    facts = setting.levels, setting.bins, setting.scale, setting.gains is not None
    launch = _plan_spreading(
        rows, columns, facts, grading, both is not None, other.ndim == 2, share is not loss
    )
    launch(products, *graders, gains, losses.slopes, other, losses.values, loss, share)
