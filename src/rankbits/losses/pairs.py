"""Losses over the pairs of a batch: ``dpsh_loss(embeddings, labels)``, ``DPSH()(...)`` and others.

All of them share the following. ``embeddings`` z (M, K) are raw outputs. ``labels`` are (M,) or
multi-hot (M, C), and s = 1 for rows that share one; or they are None, and s = 1 where ``affinity``
(M, M) is above zero. c is the cosine of a pair. Values are means over the pairs i != j of the
batch; a batch without pairs of a kind has 0 for them. ``penalty`` is lambda, the weight of the
method's quantization penalty. At 0, the default, z is used raw, and a rotation makes bits of it
afterwards (H2Q); above 0 both terms see tanh z. The weights w = s/p + (1-s)/(1-p) of
``balanced.py`` take p from ``similar_share``, the share of similar pairs in the training set, or
from the batch. ``variant="h2q"`` is what the authors of H2Q ran: a mean over all M^2 pairs,
including each row with itself, and, where a function says so, another formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from rankbits.kernels import SKIP
from rankbits.losses.histogram import check_rows, full_precision, outside_graphs
from rankbits.losses.penalties import quantization_cosh, quantization_l2, scale_to_unit
from rankbits.losses.proxies import choose_delta, mean_where, products
from rankbits.losses.relation import relate
from rankbits.losses.settings import LossModule, check_setting

Tensor = torch.Tensor
PairLoss = Callable[[Tensor, Tensor], Tensor]  # (z, similar) -> (M, M), the loss of each pair
Mean = Callable[[Tensor, Tensor, Tensor], Tensor]  # (z, similar, counted) -> scalar


def compute_batch_loss(
    embeddings: Tensor,
    labels: Any,
    affinity: Any,
    mean: Mean,
    penalty: float,
    variant: str = "original",
    quantization: Callable[[Tensor], Tensor] = quantization_l2,
) -> Tensor:
    """Compute ``mean(z, similar, counted)`` plus ``penalty`` times ``quantization(z)`` -> scalar.

    ``similar`` and ``counted`` are bool (M, M): which rows share a label, and which pairs count.
    """
    penalty, variant = check_setting("penalty", penalty), check_setting("variant", variant)
    z = check_rows("embeddings", embeddings)
    with full_precision(z):
        alone = variant == "original"
        grades = relate(
            len(z), len(z), z.device, labels=labels, affinity=affinity,
            database_labels=None if alone else labels, same=alone,
        ).grades(0, len(z))  # fmt: skip
        z = torch.tanh(z) if penalty else z
        value = mean(z, grades == 1, grades != SKIP)
        return value + penalty * quantization(z) if penalty else value


def make_pair_mean(pair_loss: PairLoss) -> Mean:
    """Make the plain mean over pairs of ``pair_loss``."""
    return lambda z, similar, counted: mean_where(counted, pair_loss(z, similar))


def cosines(z: Tensor) -> Tensor:
    """The cosines of all pairs of rows, (M, M)."""
    unit = scale_to_unit(z)
    return products(unit, unit)


def logistic_loss(theta: Tensor, similar: Tensor) -> Tensor:
    """ln(1 + exp theta) - s theta, without overflow."""
    return -logsigmoid(torch.where(similar, theta, -theta))


@outside_graphs
def cel_loss(
    embeddings: Tensor,
    labels: Any = None,
    delta: float = 0.0,
    *,
    penalty: float = 0.0,
    variant: str = "original",
    affinity: Any = None,
) -> Tensor:
    """Cosine embedding loss: s (1 - c) + (1 - s) max(0, c - delta).

    ``margin(bits, classes)`` is a good delta. The penalty is |z - sgn z|^2 (H2Q: .01).

    >>> cel_loss(torch.eye(3, 16), torch.tensor([0, 0, 1]))
    tensor(0.3333)
    """
    delta = check_setting("delta", delta)

    def pair_loss(z: Tensor, similar: Tensor) -> Tensor:
        c = cosines(z)
        return torch.where(similar, 1 - c, torch.relu(c - delta))

    mean = make_pair_mean(pair_loss)
    return compute_batch_loss(embeddings, labels, affinity, mean, penalty, variant)


class CEL(LossModule):
    """``cel_loss`` with its settings; delta is ``margin(bits, classes)`` unless given.

    >>> CEL(bits=16, classes=10)
    CEL(delta=0.0, penalty=0.0, variant='original')
    """

    function = cel_loss
    delta: float

    def __init__(
        self,
        bits: int | None = None,
        classes: int | None = None,
        *,
        delta: float | None = None,
        penalty: float = 0.0,
        variant: str = "original",
    ) -> None:
        delta = choose_delta(delta, bits, classes)
        super().__init__(delta=delta, penalty=penalty, variant=variant)


@outside_graphs
def dpsh_loss(
    embeddings: Tensor,
    labels: Any = None,
    penalty: float = 0.0,
    variant: str = "original",
    *,
    affinity: Any = None,
) -> Tensor:
    """Deep pairwise-supervised hashing: ln(1 + exp theta) - s theta, theta = <zi, zj>/2.

    The penalty is |z - sgn z|^2. ``variant="h2q"``: theta = <zi, zj>.

    >>> dpsh_loss(torch.eye(2), torch.tensor([0, 1]))
    tensor(0.6931)
    """

    def pair_loss(z: Tensor, similar: Tensor) -> Tensor:
        theta = products(z, z)
        return logistic_loss(theta / 2 if variant == "original" else theta, similar)

    mean = make_pair_mean(pair_loss)
    return compute_batch_loss(embeddings, labels, affinity, mean, penalty, variant)


class DPSH(LossModule):
    """``dpsh_loss`` with its settings."""

    function = dpsh_loss


@outside_graphs
def dhn_loss(
    embeddings: Tensor,
    labels: Any = None,
    penalty: float = 0.0,
    variant: str = "original",
    *,
    affinity: Any = None,
) -> Tensor:
    """Deep hashing network: ln(1 + exp<zi, zj>) - s <zi, zj>, penalty sum ln cosh(|z| - 1).

    ``variant="h2q"``: the penalty is ln cosh|z| - 1, which pulls to 0.

    >>> dhn_loss(torch.eye(2), torch.tensor([0, 1]), penalty=0.1).round(decimals=4)
    tensor(0.7393)
    """
    mean = make_pair_mean(lambda z, similar: logistic_loss(products(z, z), similar))
    return compute_batch_loss(
        embeddings, labels, affinity, mean, penalty, variant,
        lambda z: quantization_cosh(z, variant),
    )  # fmt: skip


class DHN(LossModule):
    """``dhn_loss`` with its settings."""

    function = dhn_loss
