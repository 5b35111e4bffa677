"""Losses over the pairs of a batch: ``dpsh_loss(embeddings, labels)``, ``DPSH()(...)`` and others.

What they share. ``embeddings`` z (M, K) are raw outputs. ``labels`` are (M,) or multi-hot (M, C):
s = 1 for rows that share one; or None with ``affinity`` (M, M), s = 1 above zero. Values are means
over the pairs i != j of the batch; a batch without pairs of a kind has 0 for them. ``penalty`` is
lambda, the weight of the method's quantization penalty: at 0, the default, z is taken raw, for a
rotation to make bits of it afterwards (H2Q); above 0 both terms see tanh z. Weights w = s/p +
(1-s)/(1-p), in ``balanced.py``, take p from ``similar_share``, the share of similar pairs in the
training set, or from the batch. ``variant="h2q"`` is what the authors of H2Q ran: a mean over all
M^2 pairs, a row and itself among them, and where a function says so, another formula. c is the
cosine of a pair.

A class has the name of its method and holds the settings of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from rankbits.kernels import SKIP
from rankbits.losses.histogram import full_precision, outside_graphs, rows_of_floats
from rankbits.losses.penalties import directions, quantization_cosh, quantization_l2
from rankbits.losses.proxies import margin_or, mean_where, products
from rankbits.losses.relation import relate
from rankbits.losses.settings import LossModule, check_setting

Tensor = torch.Tensor
Each = Callable[[Tensor, Tensor], Tensor]  # (z, similar) -> (M, M), the loss of each pair
Mean = Callable[[Tensor, Tensor, Tensor], Tensor]  # (z, similar, counted) -> scalar


def mean_of_batch(
    embeddings: Tensor,
    labels: Any,
    affinity: Any,
    mean: Mean,
    penalty: float,
    variant: str = "original",
    quantization: Callable[[Tensor], Tensor] = quantization_l2,
) -> Tensor:
    """``mean(z, similar, counted)`` plus ``penalty`` times the ``quantization`` of z -> scalar.

    ``similar`` and ``counted`` are bool (M, M): who shares a label, and which pairs count.
    """
    penalty, variant = check_setting("penalty", penalty), check_setting("variant", variant)
    z = rows_of_floats("embeddings", embeddings)
    with full_precision(z):
        alone = variant == "original"
        grades = relate(
            len(z), len(z), z.device, labels=labels, affinity=affinity, graded=False,
            database_labels=None if alone else labels, same=alone, self_rows=None,
        ).grades(0, len(z))  # fmt: skip
        z = torch.tanh(z) if penalty else z
        value = mean(z, grades == 1, grades != SKIP)
        return value + penalty * quantization(z) if penalty else value


def mean_over_pairs(each: Each) -> Mean:
    """The plain mean over pairs of ``each(z, similar)`` (M, M)."""
    return lambda z, similar, counted: mean_where(counted, each(z, similar))


def cosines(z: Tensor) -> Tensor:
    """c (M, M)."""
    unit = directions(z)
    return products(unit, unit)


def likelihood(theta: Tensor, similar: Tensor) -> Tensor:
    """ln(1 + exp theta) - s theta, which no theta overflows."""
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

    def each(z: Tensor, similar: Tensor) -> Tensor:
        c = cosines(z)
        return torch.where(similar, 1 - c, torch.relu(c - delta))

    return mean_of_batch(embeddings, labels, affinity, mean_over_pairs(each), penalty, variant)


class CEL(LossModule):
    """``cel_loss`` with its settings; delta is ``margin(bits, classes)``, or given.

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
        delta = margin_or(delta, bits, classes)
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

    def each(z: Tensor, similar: Tensor) -> Tensor:
        theta = products(z, z)
        return likelihood(theta / 2 if variant == "original" else theta, similar)

    return mean_of_batch(embeddings, labels, affinity, mean_over_pairs(each), penalty, variant)


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
    mean = mean_over_pairs(lambda z, similar: likelihood(products(z, z), similar))
    return mean_of_batch(
        embeddings, labels, affinity, mean, penalty, variant,
        lambda z: quantization_cosh(z, variant),
    )  # fmt: skip


class DHN(LossModule):
    """``dhn_loss`` with its settings."""

    function = dhn_loss
