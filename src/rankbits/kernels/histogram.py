"""Soft histograms of pairwise distances, and their gradient, in memory linear in the batch.

With products p = x . y of rows of equal scale r (r = 1 for unit rows, b for b relaxed bits), the
distance in units of the bin width is t = (bins / 2) (1 - p / r), between 0 and bins. An item at t
gives 1 - w to bin floor(t) and w = t - floor(t) to the next: FastAP Eq. 15, TALR Eq. 14.

The (M, N) products are made a few rows at a time by torch's own matrix product, so their precision
is the user's setting, and are thrown away; the backward pass makes them again (a batch so small
that its products are a matter of megabytes keeps them). What is left to a backend is what is not a
matrix product: counting a tile, and turning a tile of products into a tile of slopes. Every item
touches two bins, so its slope is the difference of two gradients: nothing of size (bins x M x N)
exists in either direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import torch

from rankbits.kernels import backend

SKIP = 255  # the grade of a pair that is not counted, such as an item with itself
CELLS = {"cpu": 1 << 21, "cuda": 1 << 25}  # numbers in a tile
LEAST_ROWS = 64
KEEP = 1 << 22  # products kept for the backward pass where a batch has no more: 16 MB, a constant


@dataclass(frozen=True, eq=False)
class Pairs:
    """How the pairs of a tile are graded: ``grades()`` is uint8 (m, N), ``SKIP`` where not counted.

    ``classes`` says the same where it can be said in little: (left (m,), right (N,), own (m,)),
    grade 1 where left equals right, and the pair (i, own[i]) skipped, none for -1. A backend may
    use either.
    """

    grades: Callable[[], torch.Tensor]
    classes: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None


Tiles = Callable[[int, int], Pairs]
"""``tiles(start, stop)``: the pairs of these rows with every column."""


def _module(x: torch.Tensor) -> ModuleType:
    """Triton computes in float32 only; float64 on a GPU, and other devices, take the definition."""
    natural = {"cpu": "cpu", "cuda": "cuda"}.get(x.device.type, "reference")
    if natural == "cuda" and (x.dtype != torch.float32 or not backend.has_triton()):
        natural = "reference"
    name = backend.chosen(natural)
    if (name == "cpu" and x.device.type != "cpu") or (name == "cuda" and natural != "cuda"):
        name = "reference"
    return importlib.import_module(f"rankbits.kernels.{name}.histogram")


def _tiles(
    x: torch.Tensor, y: torch.Tensor, whole: torch.Tensor | None
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(start, stop, products of x[start:stop] with all of y), in one piece of memory."""
    if whole is not None:
        yield 0, len(x), whole
        return
    cells = CELLS.get(x.device.type, CELLS["cpu"])
    rows = min(len(x), max(LEAST_ROWS, cells // max(1, len(y))))
    room = x.new_empty(rows, len(y))
    for start in range(0, len(x), rows or 1):
        stop = min(start + rows, len(x))
        yield start, stop, torch.mm(x[start:stop], y.T, out=room[: stop - start])


def soft_counts(
    x: torch.Tensor,
    y: torch.Tensor,
    pairs: Tiles,
    levels: int,
    bins: int,
    scale: float,
    keep: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Soft counts of rows of y by grade and distance, for each row of x: (M, levels, bins + 1).

    x (M, dim) and y (N, dim) are float32 or float64 with products between -scale and scale. Counts
    are float64, but float32 from Triton.
    """
    module = _module(x)
    dtype = x.dtype if module.__name__.split(".")[-2] == "cuda" else torch.float64
    counts = x.new_zeros(len(x), levels, bins + 1, dtype=dtype)
    whole = x @ y.T if keep and len(x) * len(y) <= KEEP else None
    for start, stop, products in _tiles(x, y, whole):
        module.add_counts(products, pairs(start, stop), scale, counts[start:stop])
    return counts, whole


def soft_counts_backward(
    x: torch.Tensor,
    y: torch.Tensor,
    pairs: Tiles,
    gradient: torch.Tensor,
    scale: float,
    kept: torch.Tensor | None,
    *,
    to_x: bool,
    to_y: bool,
    same: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients at x and at y of ``sum(soft_counts * gradient)``; ``kept`` came with the counts.

    ``same``: y is x and the grades are symmetric. Then slopes of a pair from both sides go into one
    tile, one product instead of two, and the whole gradient is returned for x.
    """
    module = _module(x)
    bins = gradient.shape[2] - 1
    slopes = (gradient[:, :, 1:] - gradient[:, :, :-1]) * (-bins / (2 * scale))
    slopes = slopes.to(x.dtype).contiguous()
    # cell by cell, so that neighbouring items of a like distance are neighbours
    both = None
    if same:
        both = slopes.new_zeros(slopes.shape[1] * bins + 1, len(x))  # the last is for skipped pairs
        both[:-1] = slopes.flatten(1).T
    at_x = torch.empty_like(x) if to_x else None
    at_y = torch.zeros_like(y) if to_y and not same else None
    for start, stop, products in _tiles(x, y, kept):
        tile = products if kept is None else torch.empty_like(products)
        module.write_slopes(
            products, pairs(start, stop), scale, bins, slopes[start:stop], both, tile
        )
        if at_x is not None:
            torch.mm(tile, y, out=at_x[start:stop])
        if at_y is not None:
            at_y.addmm_(tile.T, x[start:stop])
    return at_x, at_y
