"""Losses in which similar and dissimilar pairs have equal weight: DCH, WGLHH, HashNet.

The head of ``pairs.py`` says what they share with other losses over pairs.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from rankbits.losses.histogram import outside_graphs
from rankbits.losses.pairs import Mean, PairLoss, Tensor, compute_batch_loss, cosines, logistic_loss
from rankbits.losses.penalties import quantization_cauchy
from rankbits.losses.proxies import mean_where, products
from rankbits.losses.settings import LossModule, check_setting


def make_balanced_mean(pair_loss: PairLoss, similar_share: float | None) -> Mean:
    """Make the mean over pairs of ``pair_loss``, weighted by w = s/p + (1-s)/(1-p)."""
    p = check_setting("similar_share", similar_share)

    def mean(z: Tensor, similar: Tensor, counted: Tensor) -> Tensor:
        values = pair_loss(z, similar)
        if p is None:
            return mean_where(counted & similar, values) + mean_where(counted & ~similar, values)
        return mean_where(counted, torch.where(similar, values / p, values / (1 - p)))

    return mean


@outside_graphs
def dch_loss(
    embeddings: Tensor,
    labels: Any = None,
    gamma: float = 10.0,
    *,
    penalty: float = 0.0,
    similar_share: float | None = None,
    variant: str = "original",
    affinity: Any = None,
) -> Tensor:
    """Deep Cauchy hashing: w [s ln(d/gamma) + ln(1 + gamma/d)], d = K (1 - c)/2.

    d is kept in [1e-5, 1 - 1e-5] of its range. The penalty is ln(1 + d(|z|, 1)/gamma).

    >>> dch_loss(torch.eye(2), torch.tensor([0, 1])).round(decimals=4)
    tensor(2.3979)
    """
    gamma = check_setting("gamma", gamma)

    def pair_loss(z: Tensor, similar: Tensor) -> Tensor:
        ratio = z.shape[1] * ((1 - cosines(z)) / 2).clamp(1e-5, 1 - 1e-5) / gamma
        return torch.log1p(torch.where(similar, ratio, 1 / ratio))

    return compute_batch_loss(
        embeddings, labels, affinity, make_balanced_mean(pair_loss, similar_share), penalty,
        variant, lambda z: quantization_cauchy(z, gamma),
    )  # fmt: skip


class DCH(LossModule):
    """``dch_loss`` with its settings."""

    function = dch_loss


@outside_graphs
def wglhh_loss(
    embeddings: Tensor,
    labels: Any = None,
    alpha: float = 0.1,
    *,
    penalty: float = 0.0,
    similar_share: float | None = None,
    variant: str = "original",
    affinity: Any = None,
) -> Tensor:
    """Weighted Gaussian loss: w exp|(c + 1)/2 - s| [s ln(2s/(s+q)) + q ln(2q/(s+q))].

    q = exp(-alpha d^2), d = K (1 - c)/2. The penalty is |z - sgn z|^2 (the authors: .001).
    ``variant="h2q"``: q in place of q ln 2 where s = 0, and (1 + q) ln 2 left out where s = 1.

    >>> wglhh_loss(torch.eye(2), torch.tensor([0, 1])).round(decimals=4)
    tensor(1.0341)
    """
    alpha = check_setting("alpha", alpha)

    def pair_loss(z: Tensor, similar: Tensor) -> Tensor:
        c = cosines(z)
        exponent = -alpha * (z.shape[1] * (1 - c) / 2).square()
        q = torch.exp(exponent)
        near, far = q * exponent - (1 + q) * torch.log1p(q), q
        if variant == "original":
            near, far = near + (1 + q) * math.log(2), far * math.log(2)
        miss = torch.where(similar, (1 - c) / 2, (1 + c) / 2)
        return torch.exp(miss) * torch.where(similar, near, far)

    mean = make_balanced_mean(pair_loss, similar_share)
    return compute_batch_loss(embeddings, labels, affinity, mean, penalty, variant)


class WGLHH(LossModule):
    """``wglhh_loss`` with its settings."""

    function = wglhh_loss


@outside_graphs
def hashnet_loss(
    embeddings: Tensor,
    labels: Any = None,
    beta: float = 1.0,
    *,
    similar_share: float | None = None,
    variant: str = "original",
    affinity: Any = None,
) -> Tensor:
    """HashNet: w [ln(1 + exp theta) - s theta], theta = (10/K) <ui, uj>, u = tanh(beta z).

    There is no penalty: a growing beta drives u to bits.

    >>> hashnet_loss(torch.eye(2), torch.tensor([0, 1]))
    tensor(0.6931)
    """
    beta = check_setting("beta", beta)

    def pair_loss(z: Tensor, similar: Tensor) -> Tensor:
        u = torch.tanh(beta * z)
        return logistic_loss(products(u, u) * (10 / z.shape[1]), similar)

    mean = make_balanced_mean(pair_loss, similar_share)
    return compute_batch_loss(embeddings, labels, affinity, mean, 0.0, variant)


class HashNet(LossModule):
    """``hashnet_loss`` with beta = sqrt(1 + floor(step/200)). The buffer ``step`` counts the calls
    made in training mode, and is saved in ``state_dict``.

    >>> loss = HashNet()
    >>> loss(torch.eye(2), torch.tensor([0, 1])), int(loss.step), loss.beta
    (tensor(0.6931), 1, 1.0)
    """

    step: Tensor

    def __init__(self, similar_share: float | None = None, variant: str = "original") -> None:
        super().__init__(similar_share=similar_share, variant=variant)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @property
    def beta(self) -> float:
        return math.sqrt(1 + int(self.step) // 200)

    @outside_graphs
    def forward(self, embeddings: Tensor, labels: Any = None, *, affinity: Any = None) -> Tensor:
        value = hashnet_loss(embeddings, labels, self.beta, affinity=affinity, **self.settings)
        if self.training:
            self.step += 1
        return value
