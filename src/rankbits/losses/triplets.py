"""DTSH, a loss over the triplets of a batch. The head of ``pairs.py`` says what it shares with
losses over pairs."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from rankbits.losses.histogram import outside_graphs
from rankbits.losses.pairs import Tensor, compute_batch_loss
from rankbits.losses.proxies import products
from rankbits.losses.settings import LossModule, check_setting

TRIPLETS = 2**24  # terms in memory at a time


@outside_graphs
def dtsh_loss(
    embeddings: Tensor,
    labels: Any = None,
    margin: float | None = None,
    *,
    penalty: float = 0.0,
    affinity: Any = None,
) -> Tensor:
    """Deep triplet-supervised hashing: -ln sigmoid(theta_ij - theta_ik - margin).

    The mean over all triplets (i, j similar to i, k not), with theta = <zi, zj>/2; ``margin`` is
    K/2 by default. The penalty is |z - sgn z|^2. Memory is quadratic in M, time cubic.

    >>> dtsh_loss(torch.eye(3), torch.tensor([0, 0, 1])).round(decimals=4)
    tensor(1.7014)
    """
    margin = check_setting("margin", margin)

    def mean(z: Tensor, similar: Tensor, counted: Tensor) -> Tensor:
        least = z.shape[1] / 2 if margin is None else margin
        theta, far = products(z, z) / 2, counted & ~similar
        step = max(1, TRIPLETS // max(1, len(z)) ** 2)
        sums = [
            checkpoint(_sum_triplets, *part, least, use_reentrant=False, preserve_rng_state=False)
            for part in zip(theta.split(step), similar.split(step), far.split(step), strict=True)
        ]
        return torch.stack(sums).sum() / (similar.sum(dim=1) * far.sum(dim=1)).sum().clamp(min=1)

    return compute_batch_loss(embeddings, labels, affinity, mean, penalty)


def _sum_triplets(theta: Tensor, similar: Tensor, far: Tensor, least: float) -> Tensor:
    """Sum the terms of all triplets of some anchors; theta (anchors, M) has all columns."""
    anchor, near = similar.nonzero(as_tuple=True)
    values = -logsigmoid(theta[anchor, near][:, None] - theta[anchor] - least)
    return torch.where(far[anchor], values, 0).sum()


class DTSH(LossModule):
    """``dtsh_loss`` with its settings."""

    function = dtsh_loss
