"""Soft histograms by definition, in plain torch, on any device and in any precision."""

from __future__ import annotations

import torch

from rankbits.kernels.histogram import Pairs


def _places(products: torch.Tensor, scale: float, bins: int) -> torch.Tensor:
    return (bins / 2 - bins / (2 * scale) * products).clamp(0, bins)


def add_counts(products: torch.Tensor, pairs: Pairs, scale: float, counts: torch.Tensor) -> None:
    """counts[i, g, l] += sum over j with grade g of max(0, 1 - |t_ij - l|)."""
    bins, grades = counts.shape[2] - 1, pairs.grades()
    places = _places(products, scale, bins)
    for level in range(bins + 1):
        weight = (1 - (places - level).abs()).clamp(min=0)
        for grade in range(counts.shape[1]):
            counts[:, grade, level] += (weight * (grades == grade)).sum(dim=1, dtype=counts.dtype)


def write_slopes(
    products: torch.Tensor,
    pairs: Pairs,
    scale: float,
    bins: int,
    slopes: torch.Tensor,
    both: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """out[i, j] = slopes[i, g, floor(t)] + both[(g, floor(t)), j]; 0 for skipped pairs."""
    grades = pairs.grades()
    low = _places(products, scale, bins).floor().clamp(max=bins - 1).long()
    counted = grades < slopes.shape[1]
    cell = torch.where(counted, grades, 0).long() * bins + low
    found = slopes.flatten(1).gather(1, cell)
    if both is not None:
        found = found + both.gather(0, cell)
    out.copy_(torch.where(counted, found, 0))
