"""Losses over the pairs of a batch, and DTSH over its triplets: ``loss(embeddings, labels)``.

What they share. ``embeddings`` z (M, K) are raw outputs. ``labels`` are (M,) or multi-hot (M, C):
s = 1 for rows that share one; or None with ``affinity`` (M, M), s = 1 above zero. Values are means
over the pairs i != j of the batch; a batch without pairs of a kind has 0 for them. ``penalty`` is
lambda, the weight of the method's quantization penalty: at 0, the default, z is taken raw, for a
rotation to make bits of it afterwards (H2Q); above 0 both terms see tanh z. Weights w = s/p +
(1-s)/(1-p) take p from ``similar_share``, the share of similar pairs in the training set, or from
the batch. ``variant="h2q"`` is what the authors of H2Q ran: a mean over all M^2 pairs, a row and
itself among them, and where a class says so, another formula. c is the cosine of a pair.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import torch
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from rankbits import _check
from rankbits.kernels import SKIP
from rankbits.losses import penalties
from rankbits.losses.histogram import full_precision, outside_graphs, rows_of_floats
from rankbits.losses.proxies import margin_or, mean_where, products
from rankbits.losses.relation import relate

TRIPLETS = 2**24


class _OfPairs(torch.nn.Module, abc.ABC):
    """A mean over the similar and dissimilar pairs, plus ``penalty`` times ``_quantization``."""

    options: tuple[str, ...] = ("penalty", "variant")

    def __init__(self, penalty: float = 0.0, variant: str = "original") -> None:
        super().__init__()
        self.penalty = penalties.weight_of("penalty", penalty)
        self.variant = _check.choice("variant", variant, penalties.VARIANTS)

    @outside_graphs
    def forward(
        self, embeddings: torch.Tensor, labels: Any = None, *, affinity: Any = None
    ) -> torch.Tensor:
        z = rows_of_floats("embeddings", embeddings)
        with full_precision(z):
            alone = self.variant == "original"
            grades = relate(
                len(z), len(z), z.device, labels=labels, affinity=affinity, graded=False,
                database_labels=None if alone else labels, same=alone, self_rows=None,
            ).grades(0, len(z))  # fmt: skip
            similar, counted = grades == 1, grades != SKIP
            z = torch.tanh(z) if self.penalty else z
            loss = self._mean(z, similar, counted)
            return loss + self.penalty * self._quantization(z) if self.penalty else loss

    @abc.abstractmethod
    def _mean(self, z: torch.Tensor, similar: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        """The similarity part, from who is similar and which pairs count, both (M, M)."""

    def _quantization(self, z: torch.Tensor) -> torch.Tensor:
        return penalties.quantization_l2(z)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.options)


class _Pairwise(_OfPairs):
    """The plain mean of ``_each`` pair's loss."""

    def _mean(self, z: torch.Tensor, similar: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        return mean_where(counted, self._each(z, similar))

    @abc.abstractmethod
    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        """(M, M): the loss of each pair."""


class _Balanced(_Pairwise):
    """Pairs weighted by w = s/p + (1-s)/(1-p)."""

    options: tuple[str, ...] = ("penalty", "similar_share", "variant")

    def __init__(
        self, penalty: float = 0.0, similar_share: float | None = None, variant: str = "original"
    ) -> None:
        super().__init__(penalty, variant)
        if similar_share is not None and not 0 < _check.number("similar_share", similar_share) < 1:
            _check.refuse(f"similar_share must lie between 0 and 1; got {similar_share}.")
        self.similar_share = similar_share

    def _mean(self, z: torch.Tensor, similar: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        each = self._each(z, similar)
        near, far = counted & similar, counted & ~similar
        if self.similar_share is None:
            return mean_where(near, each) + mean_where(far, each)
        p = self.similar_share
        return mean_where(counted, torch.where(similar, each / p, each / (1 - p)))


def _cosines(z: torch.Tensor) -> torch.Tensor:
    unit = penalties.directions(z)
    return products(unit, unit)


def _likelihood(theta: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
    """ln(1 + exp theta) - s theta, which no theta overflows."""
    return -logsigmoid(torch.where(similar, theta, -theta))


class CEL(_Pairwise):
    """Cosine embedding loss: s (1 - c) + (1 - s) max(0, c - delta).

    delta is ``margin(bits, classes)``, or given. The penalty is |z - sgn z|^2 (H2Q: .01).

    >>> CEL(bits=16, classes=10)(torch.eye(3, 16), torch.tensor([0, 0, 1]))
    tensor(0.3333)
    """

    options = ("delta", "penalty", "variant")

    def __init__(
        self,
        bits: int | None = None,
        classes: int | None = None,
        *,
        delta: float | None = None,
        penalty: float = 0.0,
        variant: str = "original",
    ) -> None:
        super().__init__(penalty, variant)
        self.delta = margin_or(delta, bits, classes)

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        c = _cosines(z)
        return torch.where(similar, 1 - c, torch.relu(c - self.delta))


class DPSH(_Pairwise):
    """Deep pairwise-supervised hashing: ln(1 + exp theta) - s theta, theta = <zi, zj>/2.

    The penalty is |z - sgn z|^2. ``variant="h2q"``: theta = <zi, zj>.

    >>> DPSH()(torch.eye(2), torch.tensor([0, 1]))
    tensor(0.6931)
    """

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        theta = products(z, z)
        return _likelihood(theta / 2 if self.variant == "original" else theta, similar)


class DHN(_Pairwise):
    """Deep hashing network: ln(1 + exp<zi, zj>) - s <zi, zj>, penalty sum ln cosh(|z| - 1).

    ``variant="h2q"``: the penalty is ln cosh|z| - 1, which pulls to 0.

    >>> DHN(penalty=0.1)(torch.eye(2), torch.tensor([0, 1])).round(decimals=4)
    tensor(0.7393)
    """

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        return _likelihood(products(z, z), similar)

    def _quantization(self, z: torch.Tensor) -> torch.Tensor:
        return penalties.quantization_cosh(z, self.variant)


class DCH(_Balanced):
    """Deep Cauchy hashing: w [s ln(d/gamma) + ln(1 + gamma/d)], d = K (1 - c)/2.

    d is kept in [1e-5, 1 - 1e-5] of its range. The penalty is ln(1 + d(|z|, 1)/gamma).

    >>> DCH()(torch.eye(2), torch.tensor([0, 1])).round(decimals=4)
    tensor(2.3979)
    """

    options = ("gamma", *_Balanced.options)

    def __init__(
        self,
        gamma: float = 10.0,
        *,
        penalty: float = 0.0,
        similar_share: float | None = None,
        variant: str = "original",
    ) -> None:
        super().__init__(penalty, similar_share, variant)
        self.gamma = _above_zero("gamma", gamma)

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        ratio = z.shape[1] * ((1 - _cosines(z)) / 2).clamp(1e-5, 1 - 1e-5) / self.gamma
        return torch.log1p(torch.where(similar, ratio, 1 / ratio))

    def _quantization(self, z: torch.Tensor) -> torch.Tensor:
        return penalties.quantization_cauchy(z, self.gamma)


class WGLHH(_Balanced):
    """Weighted Gaussian loss: w exp|(c + 1)/2 - s| [s ln(2s/(s+q)) + q ln(2q/(s+q))].

    q = exp(-alpha d^2), d = K (1 - c)/2. The penalty is |z - sgn z|^2 (the authors: .001).
    ``variant="h2q"``: q in place of q ln 2 where s = 0, and (1 + q) ln 2 left out where s = 1.

    >>> WGLHH()(torch.eye(2), torch.tensor([0, 1])).round(decimals=4)
    tensor(1.0341)
    """

    options = ("alpha", *_Balanced.options)

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        penalty: float = 0.0,
        similar_share: float | None = None,
        variant: str = "original",
    ) -> None:
        super().__init__(penalty, similar_share, variant)
        self.alpha = _above_zero("alpha", alpha)

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        c = _cosines(z)
        exponent = -self.alpha * (z.shape[1] * (1 - c) / 2).square()
        q = torch.exp(exponent)
        near, far = q * exponent - (1 + q) * torch.log1p(q), q
        if self.variant == "original":
            near, far = near + (1 + q) * math.log(2), far * math.log(2)
        miss = torch.where(similar, (1 - c) / 2, (1 + c) / 2)
        return torch.exp(miss) * torch.where(similar, near, far)


class HashNet(_Balanced):
    """HashNet: w [ln(1 + exp theta) - s theta], theta = (10/K) <ui, uj>, u = tanh(beta z).

    beta = sqrt(1 + floor(step/200)) drives u to bits, so that there is no penalty; the buffer
    ``step`` counts the calls made in training mode, and travels with ``state_dict``.

    >>> loss = HashNet()
    >>> loss(torch.eye(2), torch.tensor([0, 1])), int(loss.step), loss.beta
    (tensor(0.6931), 1, 1.0)
    """

    options = ("similar_share", "variant")
    step: torch.Tensor

    def __init__(self, similar_share: float | None = None, variant: str = "original") -> None:
        super().__init__(0.0, similar_share, variant)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @property
    def beta(self) -> float:
        return math.sqrt(1 + int(self.step) // 200)

    def _each(self, z: torch.Tensor, similar: torch.Tensor) -> torch.Tensor:
        u = torch.tanh(self.beta * z)
        if self.training:
            self.step += 1
        return _likelihood(products(u, u) * (10 / z.shape[1]), similar)


class DTSH(_OfPairs):
    """Deep triplet-supervised hashing: -ln sigmoid(theta_ij - theta_ik - margin).

    Mean over all triplets (i, j similar to i, k not), theta = <zi, zj>/2, ``margin`` K/2 unless
    given; the penalty is |z - sgn z|^2. Memory is quadratic in M, time cubic.

    >>> DTSH()(torch.eye(3), torch.tensor([0, 0, 1])).round(decimals=4)
    tensor(1.7014)
    """

    options = ("margin", "penalty")

    def __init__(self, margin: float | None = None, *, penalty: float = 0.0) -> None:
        super().__init__(penalty)
        self.margin = None if margin is None else _check.number("margin", margin)

    def _mean(self, z: torch.Tensor, similar: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        least = z.shape[1] / 2 if self.margin is None else self.margin
        theta, far = products(z, z) / 2, counted & ~similar
        step = max(1, TRIPLETS // max(1, len(z)) ** 2)
        parts = [
            checkpoint(_triplets, *part, least, use_reentrant=False, preserve_rng_state=False)
            for part in zip(theta.split(step), similar.split(step), far.split(step), strict=True)
        ]
        return torch.stack(parts).sum() / (similar.sum(dim=1) * far.sum(dim=1)).sum().clamp(min=1)


def _triplets(
    theta: torch.Tensor, similar: torch.Tensor, far: torch.Tensor, least: float
) -> torch.Tensor:
    """The sum over the triplets of some anchors, all of theta's columns at hand."""
    anchor, near = similar.nonzero(as_tuple=True)
    each = -logsigmoid(theta[anchor, near][:, None] - theta[anchor] - least)
    return torch.where(far[anchor], each, 0).sum()


def _above_zero(name: str, value: float) -> float:
    found = _check.number(name, value)
    if found <= 0:
        _check.refuse(f"{name} must be above zero; got {found}.")
    return found
