"""Give a loss more rows than this process's: those of other processes and of past batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rankbits.losses import HSWD, gather
from rankbits.losses.protocol import takes_database, takes_rows


class Memory(torch.nn.Module):
    """The last ``size`` embeddings with their labels: cross-batch memory, first in, first out.

    >>> memory = Memory(3)
    >>> memory.add(torch.tensor([[1.0], [2.0]]), torch.tensor([7, 8]))
    >>> memory.add(torch.tensor([[3.0], [4.0]]), torch.tensor([9, 9]))
    >>> memory.rows.T, memory.labels
    (tensor([[2., 3., 4.]]), tensor([8, 9, 9]))
    """

    rows: torch.Tensor
    labels: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("rows", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        if self.size == 0:
            return
        if len(self) == 0:
            self.rows, self.labels = rows[-self.size :], labels[-self.size :]
            return
        self.rows = torch.cat([self.rows, rows.to(self.rows)])[-self.size :]
        self.labels = torch.cat([self.labels, labels.to(self.labels)])[-self.size :]


class BatchLoss(torch.nn.Module):
    """Computes ``loss`` over the batch of all processes, with past batches as further database.

    A loss that takes a database ranks the batch and the memory for each row of the batch. Other
    losses see both as one batch, in which the memory's rows get no gradient. A call stores the
    whole batch in ``seen``; ``remember`` adds it to the memory after the step.
    """

    def __init__(self, loss: Callable[..., torch.Tensor], memory: int = 0, hswd: float = 0.0):
        super().__init__()
        self.loss = loss
        self.memory = Memory(memory)
        self.penalty = HSWD(hswd, seed=0) if hswd else None
        self.seen: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, z: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Compute the loss from this process's part of the batch: ``z`` (m, width), ``labels`` and
        ``rows``, the numbers of the training rows."""
        z, labels = gather(z, labels, gradients="sum")
        self.seen = (z.detach(), labels)
        value = self._compute_loss(z, labels, rows)
        return value if self.penalty is None else value + self.penalty(z)

    def _compute_loss(
        self, z: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        if takes_rows(self.loss):
            rows = rows.to(z.device, non_blocking=True)
            return self.loss(z, labels, gather(z.detach()[: len(rows)], rows)[1])
        if len(self.memory) == 0:
            return self.loss(z, labels)
        database = torch.cat([z, self.memory.rows.to(z)])
        database_labels = torch.cat([labels, self.memory.labels.to(labels)])
        if takes_database(self.loss):
            options: dict[str, Any] = {"database": database, "database_labels": database_labels}
            return self.loss(z, labels, self_rows=torch.arange(len(z), device=z.device), **options)
        return self.loss(database, database_labels)

    def remember(self) -> None:
        """Add the batch of the last call to the memory."""
        if self.seen is not None:
            self.memory.add(*self.seen)
