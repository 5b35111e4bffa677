"""Soft histograms and the losses over them by definition, in plain torch, on any device."""

from __future__ import annotations

import torch

from rankbits.kernels.histogram import Pairs, QueryLosses, Setting
from rankbits.kernels.reference import quality


def count_planes(levels: int) -> int:
    """Slopes are kept for each grade."""
    return levels


def _find_places(products: torch.Tensor, setting: Setting) -> torch.Tensor:
    bins = setting.bins
    return (bins / 2 - bins / (2 * setting.scale) * products).clamp(0, bins)


def count(products: torch.Tensor, pairs: Pairs, setting: Setting) -> torch.Tensor:
    """counts[i, g, l] = sum over j with grade g of max(0, 1 - |t_ij - l|), in float64."""
    bins, levels, grades = setting.bins, setting.levels, pairs.grades()
    places = _find_places(products, setting)
    counts = products.new_empty(len(products), levels, bins + 1, dtype=torch.float64)
    for level in range(bins + 1):
        weight = (1 - (places - level).abs()).clamp(min=0)
        for grade in range(levels):
            counts[:, grade, level] = (weight * (grades == grade)).sum(dim=1, dtype=torch.float64)
    return counts


def judge(products: torch.Tensor, pairs: Pairs, setting: Setting, losses: QueryLosses) -> None:
    """Write the losses of the queries of a tile and their slopes along t, the distance in bins."""
    counts = count(products, pairs, setting)
    values, valid, slopes = quality.judge(setting.formula, counts, setting.gains)
    losses.values[0], losses.values[1] = values, valid
    losses.slopes.copy_((slopes[:, :, 1:] - slopes[:, :, :-1]) * setting.unit)


def average(
    values: torch.Tensor, dtype: torch.dtype, alone: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, share): the mean of values[0] over the queries that values[1] marks, and 1 / their
    number.

    Unless ``alone``, a single ``spread`` follows with all queries in one tile, and a backend may
    leave both to it.
    """
    total, queries = values.sum(dim=1)
    share = 1 / queries.clamp(min=1)
    return (total * share).to(dtype), share


def turn(slopes: torch.Tensor) -> torch.Tensor:
    """(grades * bins, M): slopes by cell, so that items at like distances are neighbours."""
    return slopes.flatten(1).T.contiguous()


def spread(
    products: torch.Tensor,
    pairs: Pairs,
    setting: Setting,
    losses: QueryLosses,
    both: torch.Tensor | None,
    loss: torch.Tensor,
    share: torch.Tensor,
) -> None:
    """Replace products by derivatives: slopes[i, g, floor(t)] + both[(g, floor(t)), j], times
    ``share``; 0 for skipped pairs. ``loss`` and ``share`` are what ``average`` returned."""
    bins, grades = setting.bins, pairs.grades()
    low = _find_places(products, setting).nan_to_num().floor().clamp(max=bins - 1).long()
    counted = grades < setting.levels
    cell = torch.where(counted, grades, 0).long() * bins + low
    total = losses.slopes.flatten(1).gather(1, cell)
    if both is not None:
        total = total + both.gather(0, cell)
    products.copy_(torch.where(counted, total, 0) * share)
