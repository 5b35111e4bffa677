"""MIHash: mutual information between being a neighbour and the Hamming distance."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import outside_graphs
from rankbits.losses.talr import compute_code_loss


@outside_graphs
def mihash_loss(
    activations: torch.Tensor,
    labels: Any = None,
    alpha: float = 1.0,
    bins: int | None = None,
    affinity: Any = None,
    database: torch.Tensor | None = None,
    database_labels: Any = None,
    *,
    self_rows: Any = None,
) -> torch.Tensor:
    """-I(neighbour; distance) in nats, mean over queries that have neighbours and others -> scalar.

    It lies between -ln 2 and 0, and is lower the better distances tell neighbours from others.
    Distances are those of the relaxed codes tanh(alpha f), in soft histograms, and every argument
    is as in ``tie_aware_ap_loss``. A batch in which no query has both gives 0 with gradient 0.

    >>> f = torch.tensor([[9.0, 9.0], [9.0, 9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    >>> mihash_loss(f, torch.tensor([0, 0, 0, 1, 1])).round(decimals=4)
    tensor(-0.6408)
    >>> mihash_loss(f, torch.tensor([0, 1, 0, 1, 0])).round(decimals=4)
    tensor(-0.1033)
    """
    return compute_code_loss(
        "mihash", activations, alpha, bins, database,
        labels=labels, database_labels=database_labels, affinity=affinity, self_rows=self_rows,
    )  # fmt: skip


class MIHash(torch.nn.Module):
    """``mihash_loss`` as a module: ``MIHash(alpha=1.0, bins=None)(embeddings, labels)``.

    >>> MIHash(bins=16)
    MIHash(alpha=1.0, bins=16)
    """

    takes_alpha = takes_database = True  # see losses/protocol.py

    def __init__(self, alpha: float = 1.0, bins: int | None = None) -> None:
        super().__init__()
        self.alpha = _check.number("alpha", alpha)
        self.bins = None if bins is None else _check.whole("bins", bins, 1)

    def forward(
        self, activations: torch.Tensor, labels: Any = None, **options: Any
    ) -> torch.Tensor:
        return mihash_loss(activations, labels, self.alpha, self.bins, **options)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, bins={self.bins}"
