"""FastAP: average precision of quantised Euclidean distances (Deep Metric Learning to Rank)."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import (
    full_precision,
    mean_loss,
    outside_graphs,
    rows_of_floats,
    soft_histogram,
)
from rankbits.losses.relation import relate


@outside_graphs
def fastap_loss(
    embeddings: torch.Tensor,
    labels: Any = None,
    bins: int = 10,
    database: torch.Tensor | None = None,
    database_labels: Any = None,
    *,
    affinity: Any = None,
    self_rows: Any = None,
) -> torch.Tensor:
    """1 - FastAP, the mean over queries that have a neighbour -> scalar (Eq. 13-14).

    ``embeddings`` (M, dim) are scaled to unit length here. Each row queries the rest of the batch,
    or ``database`` (N, dim), a memory bank or a gathered batch; ``self_rows`` (M,) then names the
    row that is the query itself. ``labels`` are (M,) or multi-hot (M, C), sharing one makes a
    neighbour; or None with ``affinity`` (M, M or N), neighbours above zero. ``bins`` = L: L + 1
    centres 0, 4/L, .., 4. Memory is linear in M; a batch without any neighbours gives 0 with
    gradient 0.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> fastap_loss(x, torch.tensor([0, 0, 1, 1])), fastap_loss(x, torch.tensor([0, 1, 0, 1]))
    (tensor(0.), tensor(0.6522))
    """
    bins = _check.whole("bins", bins, 1)
    with full_precision(embeddings if isinstance(embeddings, torch.Tensor) else torch.empty(0)):
        x = _unit(rows_of_floats("embeddings", embeddings))
        y = None
        if database is not None:
            y = _unit(rows_of_floats("database", database, x.shape[1]).to(x.dtype))
        relation = relate(
            len(x), len(x) if y is None else len(y), x.device,
            labels=labels, database_labels=database_labels, affinity=affinity,
            graded=False, same=y is None, self_rows=self_rows,
        )  # fmt: skip
        counts = soft_histogram(x, y, relation, bins, 1.0).double()
        positive = counts[:, 1]
        neighbours = positive.detach().sum(dim=1).round()
        quality = _fastap(positive, counts.sum(dim=1), neighbours)
        return mean_loss(quality, neighbours).to(x.dtype)


def _fastap(positive: torch.Tensor, every: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """(M,): (1/N+) sum of h+_j H+_j / H_j, Eq. 14."""
    up_to, all_up_to = positive.cumsum(dim=1), every.cumsum(dim=1)
    empty = all_up_to == 0
    precision = torch.where(empty, 0, up_to) / torch.where(empty, 1, all_up_to)
    return (positive * precision).sum(dim=1) / neighbours.clamp(min=1)


def _unit(rows: torch.Tensor) -> torch.Tensor:
    """Rows of length 1. A row of zeros stays zero, with gradient 0 rather than a huge one."""
    norm = rows.norm(dim=1, keepdim=True)
    alive = norm > torch.finfo(rows.dtype).tiny ** 0.5
    return torch.where(alive | norm.isnan(), rows, 0) / torch.where(alive, norm, 1)


class FastAP(torch.nn.Module):
    """``fastap_loss`` as a module: ``FastAP(bins=10)(embeddings, labels)``.

    >>> FastAP(bins=4)
    FastAP(bins=4)
    """

    takes_database = True  # what the trainer may ask: losses/protocol.py

    def __init__(self, bins: int = 10) -> None:
        super().__init__()
        self.bins = _check.whole("bins", bins, 1)

    def forward(self, embeddings: torch.Tensor, labels: Any = None, **options: Any) -> torch.Tensor:
        return fastap_loss(embeddings, labels, self.bins, **options)

    def extra_repr(self) -> str:
        return f"bins={self.bins}"
