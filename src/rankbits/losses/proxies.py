"""HyP2, a loss over cosines to a learned proxy of each class.

Losses over pairs use the margin, products and means of this file too.
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows, full_precision, outside_graphs
from rankbits.losses.penalties import quantization_l2, scale_to_unit
from rankbits.losses.relation import relate
from rankbits.losses.settings import LossModule, check_setting

DISTANCES = {  # by bits: the minimum distance of the best linear codes of 2, 4, 8, .. words
    12: (12, 8, 6, 6, 4, 4, 4, 3, 2, 2),
    16: (16, 10, 8, 8, 8, 6, 6, 5, 4, 4),
    24: (24, 16, 13, 12, 12, 10, 10, 8, 8, 8),
    32: (32, 21, 18, 16, 16, 16, 14, 13, 12, 12),
    48: (48, 32, 27, 24, 24, 24, 22, 22, 20, 20),
    64: (64, 42, 36, 33, 32, 32, 32, 29, 28, 28),
    128: (128, 85, 72, 68, 64, 64, 64, 64, 60, 60),
}


def margin(bits: int, classes: int) -> float:
    """delta = 1 - 2 d/bits: codes of different classes can all have cosines of at most delta.

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


def choose_delta(delta: float | None, bits: int | None, classes: int | None) -> float:
    """Return ``delta`` where it is given, else the margin of (bits, classes)."""
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
    """<x_i, y_j>, (M, N), in full precision, even if autocast is on in the backward pass."""
    return _Products.apply(x, y)


def mean_where(counted: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The mean of ``values`` where ``counted`` is true; 0, with gradient 0, where it never is."""
    return torch.where(counted, values, 0).sum() / counted.sum().clamp(min=1)


@outside_graphs
def hyp2_loss(
    embeddings: torch.Tensor,
    labels: Any,
    proxies: torch.Tensor,
    delta: float,
    *,
    beta: float = 1.25,
    penalty: float = 0.0,
    variant: str = "original",
) -> torch.Tensor:
    """HyP2: the mean of -cos(z, P) over a row's labels, plus the mean of max(0, cos(z, P) - delta)
    over other labels, plus beta times the mean of max(0, c - delta) over dissimilar pairs of rows
    -> scalar.

    ``proxies`` P are (classes, bits). ``labels`` are (M,) in 0 .. classes - 1 or multi-hot
    (M, classes). As with the authors, only rows with more than one label form pairs. ``beta`` is
    1.25 (NUS-WIDE .75), delta is ``margin(bits, classes)``. A ``penalty`` above 0 is the weight of
    |z - sgn z|^2, and replaces z by tanh z (H2Q: .01; the authors have none).
    ``variant="h2q"``: all dissimilar pairs of the batch, and tanh P for P.

    >>> hyp2_loss(torch.eye(2, 16), torch.tensor([0, 1]), torch.eye(2, 16), margin(16, 2))
    tensor(0.)
    """
    classes, bits = proxies.shape
    delta, beta = check_setting("delta", delta), check_setting("beta", beta)
    penalty, variant = check_setting("penalty", penalty), check_setting("variant", variant)
    z = check_rows("embeddings", embeddings, bits)
    has_label = make_multi_hot(labels, len(z), classes, z.device)
    with full_precision(z):
        z = torch.tanh(z) if penalty else z
        proxies = proxies.to(z.dtype)
        proxies = torch.tanh(proxies) if variant == "h2q" else proxies
        unit = scale_to_unit(z)
        c = products(unit, scale_to_unit(proxies))
        loss = mean_where(has_label, -c) + mean_where(~has_label, torch.relu(c - delta))
        if beta:
            excess = torch.relu(products(unit, unit) - delta)
            loss = loss + beta * mean_where(_find_dissimilar(has_label, variant), excess)
        return loss + penalty * quantization_l2(z) if penalty else loss


def _find_dissimilar(has_label: torch.Tensor, variant: str) -> torch.Tensor:
    """Return bool (M, M): the pairs to keep apart."""
    rows = len(has_label)
    relation = relate(rows, rows, has_label.device, labels=has_label, same=True)
    dissimilar = relation.grades(0, rows) == 0
    if variant == "original":
        several = has_label.sum(dim=1) > 1
        dissimilar &= several[:, None] & several
    return dissimilar


class HyP2(LossModule):
    """``hyp2_loss`` with its settings and its ``proxies`` (classes, bits), a parameter: give it to
    the optimiser (H2Q: at 1e-3, the model at 1e-5). delta is ``margin(bits, classes)`` unless
    given.

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
        super().__init__(
            bits=bits, classes=classes, beta=beta, delta=choose_delta(delta, bits, classes),
            penalty=penalty, variant=variant,
        )  # fmt: skip
        self.proxies = torch.nn.Parameter(torch.empty(classes, bits))
        torch.nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    @outside_graphs
    def forward(self, embeddings: torch.Tensor, labels: Any) -> torch.Tensor:  # type: ignore[override]
        settings = {n: v for n, v in self.settings.items() if n not in ("bits", "classes")}
        return hyp2_loss(embeddings, labels, self.proxies, **settings)


def make_multi_hot(labels: Any, rows: int, classes: int, device: torch.device) -> torch.Tensor:
    """Return labels as bool (rows, classes); refuse those that do not fit."""
    labels = torch.as_tensor(labels, device=device)
    _check.same_length("labels", len(labels) if labels.ndim else 0, "its embeddings", rows)
    if labels.ndim == 1:
        has_label = labels[:, None] == torch.arange(classes, device=device)
        if not bool(has_label.any(dim=1).all()):
            _check.refuse(f"labels must be whole numbers from 0 to {classes - 1}; some are not.")
        return has_label
    if labels.shape != (rows, classes):
        _check.refuse(
            f"labels must have shape ({rows},) or ({rows}, {classes}); got {tuple(labels.shape)}."
        )
    return labels > 0
