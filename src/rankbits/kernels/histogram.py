"""Losses over soft histograms of pairwise distances, and their gradient, in linear memory.

With products p = x . y of rows of equal scale r (r = 1 for unit rows, b for b relaxed bits), the
distance in units of the bin width is t = (bins / 2) (1 - p / r), between 0 and bins. An item at t
gives 1 - w to bin floor(t) and w = t - floor(t) to the next: FastAP Eq. 15, TALR Eq. 14.

The loss of a query is a closed formula of its counts, and so are its slopes: with c_l all items and
g_l the gains of bin l, A_l and P_l their sums over the bins before, a quality Q = sum of
F(g_l, c_l, P_l, A_l) has dQ/dg_l = F_g at l + sum over k > l of F_P at k, and dQ/dc_l likewise by
F_c and F_A. Every item touches two bins, so the slope of its distance is the difference of two
such numbers: nothing of size (bins x M x N) exists in either direction.

Torch's own matrix product, whose precision the user sets, makes the (M, N) products a few rows at a
time. They are not kept: the gradient makes them again (a small batch keeps its few megabytes).
A backend does the rest: ``judge`` goes from a tile of products to the losses of its queries and
their slopes, ``spread`` from slopes to a tile of derivatives by each product.

Where a gradient is needed, it is computed together with the loss. A loss is one number, so the
backward pass only multiplies. On a GPU that pass runs in another thread, where the same work takes
longer than here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import torch

from rankbits.kernels import backend

SKIP = 255  # the grade of a pair that is not counted, such as an item with itself
CELLS = {"cpu": 1 << 21, "cuda": 1 << 25}  # numbers in a tile
LEAST_ROWS = 64
KEEP = 1 << 22  # up to this many products are kept for the gradient: 16 MB
FORMULAS = (
    "fastap", "ap-simple", "ap-relaxed", "ap-exact", "ndcg-simple", "ndcg-relaxed", "ndcg-exact",
    "mihash",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pairs:
    """The grades of the pairs of a tile: ``grades()`` is uint8 (m, N), ``SKIP`` where not counted.

    Where grades follow from classes, ``classes`` = (left (m,), right (N,)) says the same in less
    memory: the grade is 1 where left equals right, and row i skips column ``own + i`` (a whole
    number), ``own[i]`` (a tensor (m,)), or none (-1 or None). A backend may use either form.
    """

    grades: Callable[[], torch.Tensor]
    classes: tuple[torch.Tensor, torch.Tensor] | None = None
    own: torch.Tensor | int | None = None


Tiles = Callable[[int, int], Pairs]
"""``tiles(start, stop)``: the pairs of these rows with every column."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Which loss: ``formula`` of ``FORMULAS``, over ``levels`` grades and ``bins`` + 1 centres.

    ``gains`` (levels,) float64 are those of NDCG; None for two grades, where a gain cancels.
    ``scale`` is the greatest product of two rows.
    """

    formula: str
    levels: int
    bins: int
    scale: int
    gains: torch.Tensor | None = None

    @property
    def unit(self) -> float:
        """The derivative of t by a product."""
        return -self.bins / (2 * self.scale)


@dataclass(frozen=True, eq=False)
class QueryLosses:
    """The losses of queries: ``values`` (2, m) float64 are the losses and whether they count, and
    ``slopes`` (m, planes, bins) their derivatives along the distance."""

    values: torch.Tensor
    slopes: torch.Tensor

    def take(self, start: int, stop: int) -> QueryLosses:
        if stop - start == self.slopes.shape[0]:
            return self
        return QueryLosses(self.values[:, start:stop], self.slopes[start:stop])


def _choose_module(x: torch.Tensor) -> ModuleType:
    """Numba on a CPU, Triton on CUDA where it is installed, else the reference."""
    natural = {"cpu": "cpu", "cuda": "cuda"}.get(x.device.type, "reference")
    if natural == "cuda" and not backend.has_triton():
        natural = "reference"
    name = backend.choose_backend(natural)
    if (name == "cpu" and x.device.type != "cpu") or (name == "cuda" and natural != "cuda"):
        name = "reference"
    return backend.load(name, "histogram")


def _make_tiles(
    x: torch.Tensor, y: torch.Tensor, whole: torch.Tensor | None
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Yield (start, stop, products of x[start:stop] with all of y); all tiles share one memory."""
    if whole is not None:
        yield 0, whole.shape[0], whole
        return
    cells = CELLS.get(x.device.type, CELLS["cpu"])
    rows = min(len(x), max(LEAST_ROWS, cells // max(1, len(y))))
    room = x.new_empty(rows, len(y))
    for start in range(0, len(x), rows or 1):
        stop = min(start + rows, len(x))
        yield start, stop, torch.mm(x[start:stop], y.T, out=room[: stop - start])


def histogram_loss(
    x: torch.Tensor,
    y: torch.Tensor,
    pairs: Tiles,
    setting: Setting,
    *,
    to_x: bool,
    to_y: bool,
    same: bool,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The mean loss of the rows of x as queries of the rows of y, and its gradients at x and y.

    x (M, dim) and y (N, dim) are float32 or float64 with products between -scale and scale. The
    mean is over queries that have a neighbour (for MIHash also an item that is none), 0 where no
    query has. ``to_x`` and ``to_y`` say which gradients to compute; the other is None.

    ``same``: y is x and the grades are symmetric. Then the slopes of a pair from both sides go into
    one tile, which saves a product, and the whole gradient is returned for x.
    """
    module = _choose_module(x)
    rows, columns, planes = x.shape[0], y.shape[0], module.count_planes(setting.levels)
    losses = QueryLosses(
        x.new_empty(2, rows, dtype=torch.float64), x.new_empty(rows, planes, setting.bins)
    )
    backward = to_x or to_y
    whole = torch.mm(x, y.t()) if backward and rows * columns <= KEEP else None
    for start, stop, products in _make_tiles(x, y, whole):
        module.judge(products, pairs(start, stop), setting, losses.take(start, stop))
    loss, share = module.average(losses.values, x.dtype, alone=whole is None or not rows * columns)
    if not backward:
        return loss, None, None
    both = module.turn(losses.slopes) if same else None
    at_x = torch.empty_like(x) if to_x else None
    at_y = torch.zeros_like(y) if to_y and not same else None
    for start, stop, products in _make_tiles(x, y, whole):
        part = losses.take(start, stop)
        module.spread(products, pairs(start, stop), setting, part, both, loss, share)
        if at_x is not None:
            torch.mm(products, y, out=at_x if whole is not None else at_x[start:stop])
        if at_y is not None:
            at_y.addmm_(products.T, x[start:stop])
    return loss, at_x, at_y
