"""FastAP: average precision of quantised Euclidean distances (Deep Metric Learning to Rank)."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows, compute_histogram_loss, outside_graphs


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
    or ``database`` (N, dim), such as a memory bank or a gathered batch; ``self_rows`` (M,) then
    names the row of the database that is the query itself. ``labels`` are (M,) or multi-hot (M, C),
    and rows that share one are neighbours; or they are None, and ``affinity`` (M, M or N) is above
    zero for neighbours. ``bins`` = L: L + 1 centres 0, 4/L, .., 4. Memory is linear in M. A batch
    without neighbours gives 0 with gradient 0.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> fastap_loss(x, torch.tensor([0, 0, 1, 1])), fastap_loss(x, torch.tensor([0, 1, 0, 1]))
    (tensor(0.), tensor(0.6522))
    """
    bins = _check.whole("bins", bins, 1)
    grading = {
        "labels": labels, "database_labels": database_labels, "affinity": affinity,
        "self_rows": self_rows,
    }  # fmt: skip
    x = check_rows("embeddings", embeddings)
    return compute_histogram_loss("fastap", x, database, bins, None, grading)


class FastAP(torch.nn.Module):
    """``fastap_loss`` as a module: ``FastAP(bins=10)(embeddings, labels)``.

    >>> FastAP(bins=4)
    FastAP(bins=4)
    """

    takes_database = True  # see losses/protocol.py

    def __init__(self, bins: int = 10) -> None:
        super().__init__()
        self.bins = _check.whole("bins", bins, 1)

    def forward(self, embeddings: torch.Tensor, labels: Any = None, **options: Any) -> torch.Tensor:
        return fastap_loss(embeddings, labels, self.bins, **options)

    def extra_repr(self) -> str:
        return f"bins={self.bins}"
