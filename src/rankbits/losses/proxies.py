"""HyP2: cosines to a learned proxy of each class; and how far apart classes can be, the margin.

What the losses over proxies and over pairs both need stands here: margins, products, means.
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses import penalties
from rankbits.losses.histogram import full_precision, outside_graphs, rows_of_floats
from rankbits.losses.relation import relate

DISTANCES = {
    12: (12, 8, 6, 6, 4, 4, 4, 3, 2, 2),
    16: (16, 10, 8, 8, 8, 6, 6, 5, 4, 4),
    24: (24, 16, 13, 12, 12, 10, 10, 8, 8, 8),
    32: (32, 21, 18, 16, 16, 16, 14, 13, 12, 12),
    48: (48, 32, 27, 24, 24, 24, 22, 22, 20, 20),
    64: (64, 42, 36, 33, 32, 32, 32, 29, 28, 28),
    128: (128, 85, 72, 68, 64, 64, 64, 64, 60, 60),
}


def margin(bits: int, classes: int) -> float:
    """delta = 1 - 2 d/bits: the cosine below which codes of different classes need not go.

    d is the minimum distance of the best known binary linear code with a word for each class
    (``DISTANCES[bits][k - 1]`` for 2^k words, k = ceil(log2 classes)).

    >>> margin(64, 10), margin(16, 100)
    (-0.03125, 0.25)
    """
    bits, classes = _check.whole("bits", bits, 1), _check.whole("classes", classes, 2)
    words = (classes - 1).bit_length()
    if bits not in DISTANCES or words > len(DISTANCES[bits]):
        _check.refuse(
            f"The margin is known for {', '.join(map(str, DISTANCES))} bits and 2 to 1,024 classes;"
            f" got {bits} bits and {classes:,} classes: give delta= instead."
        )
    return 1 - 2 * DISTANCES[bits][words - 1] / bits


def margin_or(delta: float | None, bits: int | None, classes: int | None) -> float:
    """``delta`` itself where given, else the margin of (bits, classes)."""
    if delta is not None:
        return _check.number("delta", delta)
    if bits is None or classes is None:
        _check.refuse("bits and classes must be given for the margin, or delta= instead.")
    return margin(bits, classes)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        with full_precision(x):
            return x @ y.T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, y = ctx.saved_tensors
        to_x, to_y = ctx.needs_input_grad
        with full_precision(x):
            return gradient @ y if to_x else None, gradient.T @ x if to_y else None


def products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """<x_i, y_j>, (M, N), in full precision though autocast be on when it is differentiated."""
    return _Products.apply(x, y)


def mean_where(counted: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    """The mean of ``each`` where ``counted``; 0, with gradient 0, where nothing is."""
    return torch.where(counted, each, 0).sum() / counted.sum().clamp(min=1)


class HyP2(torch.nn.Module):
    """HyP2: mean of -cos(z, P) over own labels, plus mean of max(0, cos(z, P) - delta) over others,
    plus beta times the mean of max(0, c - delta) over dissimilar pairs of rows.

    ``proxies`` P (classes, bits) are a parameter: give it to the optimiser (H2Q: at 1e-3, the model
    at 1e-5). ``labels`` are (M,) in 0 .. classes - 1 or multi-hot (M, classes). Pairs are those of
    rows with more than one label each, as the authors have it: none where every row has one.
    ``beta`` is 1.25 (NUS-WIDE .75); delta is ``margin(bits, classes)`` or given. ``penalty`` weighs
    |z - sgn z|^2 and puts tanh z for z (H2Q: .01; the authors have none). ``variant="h2q"``: all
    dissimilar pairs of the batch, and tanh P for P.

    >>> loss = HyP2(bits=16, classes=10)
    >>> loss(loss.proxies[:3].detach(), torch.tensor([0, 1, 2])) < 0
    tensor(True)
    """

    def __init__(
        self,
        bits: int,
        classes: int,
        *,
        beta: float = 1.25,
        delta: float | None = None,
        penalty: float = 0.0,
        variant: str = "original",
    ) -> None:
        super().__init__()
        self.bits = _check.whole("bits", bits, 1)
        self.classes = _check.whole("classes", classes, 1)
        self.beta = penalties.weight_of("beta", beta)
        self.delta = margin_or(delta, bits, classes)
        self.penalty = penalties.weight_of("penalty", penalty)
        self.variant = _check.choice("variant", variant, penalties.VARIANTS)
        self.proxies = torch.nn.Parameter(torch.empty(self.classes, self.bits))
        torch.nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    @outside_graphs
    def forward(self, embeddings: torch.Tensor, labels: Any) -> torch.Tensor:
        z = rows_of_floats("embeddings", embeddings, self.bits)
        own = one_hot(labels, len(z), self.classes, z.device)
        with full_precision(z):
            z = torch.tanh(z) if self.penalty else z
            proxies = self.proxies.to(z.dtype)
            proxies = torch.tanh(proxies) if self.variant == "h2q" else proxies
            unit = penalties.directions(z)
            c = products(unit, penalties.directions(proxies))
            loss = mean_where(own, -c) + mean_where(~own, torch.relu(c - self.delta))
            if self.beta:
                apart = torch.relu(products(unit, unit) - self.delta)
                loss = loss + self.beta * mean_where(self._dissimilar(own), apart)
            if self.penalty:
                loss = loss + self.penalty * penalties.quantization_l2(z)
            return loss

    def _dissimilar(self, own: torch.Tensor) -> torch.Tensor:
        """(M, M): the pairs to keep apart."""
        found = relate(
            len(own), len(own), own.device, labels=own, database_labels=None, affinity=None,
            graded=False, same=True, self_rows=None,
        ).grades(0, len(own)) == 0  # fmt: skip
        if self.variant == "original":
            several = own.sum(dim=1) > 1
            found &= several[:, None] & several
        return found

    def extra_repr(self) -> str:
        names = ("bits", "classes", "beta", "delta", "penalty", "variant")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


def one_hot(labels: Any, rows: int, classes: int, device: torch.device) -> torch.Tensor:
    """Labels as bool (rows, classes)."""
    found = torch.as_tensor(labels, device=device)
    _check.same_length("labels", len(found) if found.ndim else 0, "its embeddings", rows)
    if found.ndim == 1:
        columns = torch.arange(classes, device=device)
        own = found[:, None] == columns
        if not bool(own.any(dim=1).all()):
            _check.refuse(f"labels must be whole numbers from 0 to {classes - 1}; some are not.")
        return own
    if found.shape != (rows, classes):
        _check.refuse(
            f"labels must have shape ({rows},) or ({rows}, {classes}); got {tuple(found.shape)}."
        )
    return found > 0
