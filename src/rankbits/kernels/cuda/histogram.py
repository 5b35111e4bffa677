"""Losses over soft histograms on a GPU: which of the kernels in ``tiles.py`` a tile needs.

A small batch is bound by launches, so one kernel goes from products to losses and slopes. A large
one is bound by work: its columns are split among programs, and a second kernel judges the sums.
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits.kernels.cuda import tiles
from rankbits.kernels.cuda.launch import divide_up, find_power, launch
from rankbits.kernels.cuda.quality import find_table
from rankbits.kernels.histogram import Judged, Pairs, Setting
from rankbits.kernels.reference import histogram as reference

BINS = 16  # bins held by one program that counts
ROWS, COLUMNS = 4, 64  # pairs it looks at together
PROGRAMS = 4096  # enough to keep every multiprocessor busy
TOGETHER = 1 << 28  # rows x columns x bins up to which one kernel counts and judges
SCATTERED = 1 << 19  # slopes up to which they are read as they lie, from the caches


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
    graders, offset, grading = _list_pairs(pairs)
    gains = census = graders[0]
    if setting.gains is not None:
        gains, census = setting.gains, _count_grades(graders[0], levels)
    places, stride = columns + 4, judged.values.stride(0)
    table = find_table(places, products.device)
    width = max(16, find_power(bins + 1))
    formula = {"FORMULA": setting.formula, "NDCG": setting.formula.startswith("ndcg")}
    outcome = (gains, census, table, judged.values, judged.slopes)
    if rows * columns * width <= TOGETHER:
        block = max(1, 64 // width)
        sizes = {"ROWS": block, "COLUMNS": max(4, 4096 // (block * width)), "BINS": width}
        launch(
            tiles.judge_kernel, (divide_up(rows, block),), (products, *graders, *outcome),
            (offset, rows, columns, stride, levels, bins, places, scale),
            formula | grading | {"GRADED": graded} | sizes,
        )  # fmt: skip
        return
    programs = divide_up(rows, ROWS), 2 * divide_up(bins + 1, BINS)
    splits = divide_up(PROGRAMS, programs[0] * programs[1])
    splits = max(1, min(splits, divide_up(columns, 1024)))
    blocks = divide_up(divide_up(columns, splits), COLUMNS)
    splits = divide_up(columns, blocks * COLUMNS)
    partial = products.new_empty(splits, rows, 2, bins + 1)
    sizes = {"EVEN": columns % 16 == 0, "ROWS": ROWS, "COLUMNS": COLUMNS, "BINS": BINS}
    launch(
        tiles.count_kernel, (*programs, splits), (products, *graders, gains, partial),
        (offset, rows, columns, blocks, levels, bins, scale),
        grading | {"GRADED": graded} | sizes,
    )  # fmt: skip
    block = max(1, 32 // width)
    sizes = {"SPLITS": min(8, find_power(splits)), "ROWS": block, "BINS": width}
    launch(
        tiles.value_kernel, (divide_up(rows, block),), (partial, *outcome),
        (splits, rows, stride, levels, bins, places, scale), formula | {"GRADED": graded} | sizes,
    )  # fmt: skip


def average(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, share): the mean of values[0] over the queries that values[1] marks, and 1 / them."""
    loss, share = values.new_empty((), dtype=dtype), values.new_empty(())
    launch(tiles.average_kernel, (1,), (values, loss, share), (values.shape[1],), {"ROWS": 1024})
    return loss, share


def turn(slopes: torch.Tensor) -> torch.Tensor:
    """Slopes cell by cell, as the definition's; few enough stay as they are, query by query."""
    return slopes if slopes.numel() <= SCATTERED else reference.turn(slopes)


def spread(
    products: torch.Tensor,
    pairs: Pairs,
    setting: Setting,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
    share: torch.Tensor,
) -> None:
    rows, columns = products.shape
    if not products.numel():
        return
    graders, offset, grading = _list_pairs(pairs)
    gains = graders[0] if setting.gains is None else setting.gains
    other = slopes if both is None else both
    by_column, by_cell = (2 * setting.bins, 1) if other.ndim == 3 else (1, columns)
    launch(
        tiles.spread_kernel, (divide_up(rows, 4), divide_up(columns, 256)),
        (products, *graders, gains, slopes, other, share),
        (offset, rows, columns, setting.levels, setting.bins, setting.scale, by_column, by_cell),
        grading | {"GRADED": setting.gains is not None, "SYMMETRIC": both is not None,
                   "EVEN": columns % 16 == 0, "ROWS": 4, "COLUMNS": 256},
    )  # fmt: skip
