"""Quantization penalties: how far outputs are from the bits they will become.

Each takes ``embeddings`` z (M, K), adds over the bits of a row and averages over rows; without rows
it is 0. The bit of z is 1 where z > 0 and -1 elsewhere, as in ``rb.pack``. So an output of 0 has
the bit -1, is a whole unit away from it, and its gradient leads there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows, outside_graphs
from rankbits.losses.settings import check_setting, check_weight


def quantization_l2(embeddings: torch.Tensor) -> torch.Tensor:
    """Mean over rows of |z - sgn z|^2: the penalty of DPSH, DTSH, WGLHH (H2Q Eq. 3.5) -> scalar.

    >>> quantization_l2(torch.tensor([[1.0, -0.5], [0.0, 3.0]]))
    tensor(2.6250)
    """
    return _mean_over_rows(_excess(embeddings).square())


def quantization_l1(embeddings: torch.Tensor) -> torch.Tensor:
    """Mean over rows of the L1 norm of z - sgn z, the penalty of DSH -> scalar.

    >>> quantization_l1(torch.tensor([[1.0, -0.5], [0.0, 3.0]]))
    tensor(1.7500)
    """
    return _mean_over_rows(_excess(embeddings).abs())


def quantization_cosh(embeddings: torch.Tensor, variant: str = "original") -> torch.Tensor:
    """Mean over rows of the sum of ln cosh(|z| - 1), the smooth L1 penalty of DHN -> scalar.

    ``variant="h2q"`` is ln cosh|z| - 1, the formula of H2Q's code. It pulls outputs to 0, not to 1,
    and exists only to reproduce H2Q's numbers.

    >>> quantization_cosh(torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
    tensor(0.2169)
    """
    check_setting("variant", variant)
    excess = _excess(embeddings)
    if variant == "h2q":
        return _mean_over_rows(log_cosh(excess + 1) - 1)
    return _mean_over_rows(log_cosh(excess))


def quantization_cauchy(embeddings: torch.Tensor, gamma: float = 10.0) -> torch.Tensor:
    """Mean over rows of ln(1 + d(|z|, 1)/gamma), d = K (1 - cos)/2: the penalty of DCH -> scalar.

    Only the direction of a row counts. A row of zeros has cos = 0, and gradient 0.

    >>> quantization_cauchy(torch.tensor([[2.0, -2.0], [1.0, 0.0]])).round(decimals=4)
    tensor(0.0144)
    """
    gamma = check_setting("gamma", gamma)
    unit = scale_to_unit(check_rows("embeddings", embeddings))
    bits = unit.shape[1]
    distance = bits * (1 - unit.abs().sum(dim=1) / math.sqrt(bits)) / 2
    return _mean_over_rows(torch.log1p(distance / gamma)[:, None])


@outside_graphs
def hswd(embeddings: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Mean over rows and bits of (sorted outputs - sorted random signs)^2 -> scalar (HSWD).

    The squared Wasserstein distance of each bit's outputs to fair coins: it is least where outputs
    are -1 and 1, equally often. ``generator`` makes the coins repeatable. It takes raw outputs,
    without tanh; its weight in the H2Q paper is .1.

    >>> hswd(torch.zeros(4, 2))
    tensor(1.)
    """
    z = check_rows("embeddings", embeddings)
    device = z.device if generator is None else generator.device
    coins = torch.randint(0, 2, z.shape, generator=generator, device=device).to(z.device)
    coins = (2 * coins - 1).sort(dim=0).values
    return (z.sort(dim=0).values - coins).square().sum() / max(z.numel(), 1)


class HSWD(torch.nn.Module):
    """``weight`` times ``hswd``, with new coins at each call: ``loss(z, y) + HSWD()(z)``.

    With a ``seed`` the n-th call tosses the same coins in every run. The buffer ``step`` counts the
    calls made in training mode, so that a resumed run goes on with the right coins.

    >>> penalty = HSWD(seed=0)
    >>> penalty
    HSWD(weight=0.1, seed=0)
    >>> z = torch.zeros(4, 2)
    >>> penalty(z), int(penalty.step)
    (tensor(0.1000), 1)
    """

    step: torch.Tensor

    def __init__(self, weight: float = 0.1, seed: int | None = None) -> None:
        super().__init__()
        self.weight = check_weight("weight", weight)
        self.seed = None if seed is None else _check.whole("seed", seed, 0)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, embeddings: torch.Tensor, labels: Any = None) -> torch.Tensor:
        generator = None
        if self.seed is not None:
            # a CPU generator reads only 32 bits of its seed, so both numbers are mixed
            mixed = np.random.SeedSequence([self.seed, int(self.step)]).generate_state(1)
            generator = torch.Generator().manual_seed(int(mixed[0]))
        if self.training:
            self.step += 1
        return self.weight * hswd(embeddings, generator)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, seed={self.seed}"


def log_cosh(x: torch.Tensor) -> torch.Tensor:
    """ln cosh x, without the overflow of cosh."""
    return x - torch.nn.functional.logsigmoid(2 * x) - math.log(2)


def scale_to_unit(rows: torch.Tensor) -> torch.Tensor:
    """Scale rows of any size to length 1. A row of zeros stays zero, with gradient 0."""
    size = rows.detach().abs().amax(dim=1, keepdim=True)
    alive = size > torch.finfo(rows.dtype).tiny ** 0.5
    scaled = torch.where(alive | size.isnan(), rows, 0) / torch.where(alive, size, 1)
    return scaled / torch.where(alive, scaled.norm(dim=1, keepdim=True), 1)


def _excess(embeddings: torch.Tensor) -> torch.Tensor:
    """|z| - 1, whose slope at 0 leads to the bit of 0, which is -1."""
    z = check_rows("embeddings", embeddings)
    return torch.where(z > 0, z, -z) - 1


def _mean_over_rows(values: torch.Tensor) -> torch.Tensor:
    return values.sum() / max(len(values), 1)
