"""Gather one batch from many processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from rankbits import _check


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sizes: tuple[int, ...], factor: float
    ) -> torch.Tensor:
        ctx.start = sum(sizes[: dist.get_rank()])
        ctx.stop, ctx.factor = ctx.start + len(rows), factor
        return _gather(rows, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient[ctx.start : ctx.stop] * ctx.factor, None, None


def _gather(rows: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def gather(
    embeddings: torch.Tensor, labels: torch.Tensor, *, gradients: str = "mean"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather the batch of all processes, in order of rank: ``loss(*gather(embeddings, labels))``.

    Every process computes the loss of the whole batch and sends the gradient to its own rows. So
    loss and gradient equal those of one process with the whole batch, for any loss.
    ``gradients`` says how the gradients of parameters are joined afterwards: "mean" if they are
    averaged (DistributedDataParallel), "sum" if they are summed. Batches may differ in size.
    Without ``torch.distributed`` the arguments are returned unchanged.
    """
    _check.choice("gradients", gradients, ("mean", "sum"))
    _check.same_length("labels", len(labels), "the embeddings", len(embeddings))
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return embeddings, labels
    world = dist.get_world_size()
    count = torch.tensor([len(embeddings)], device=embeddings.device)
    counts = [torch.empty_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    sizes = tuple(int(count) for count in counts)
    factor = float(world) if gradients == "mean" else 1.0
    whole = _GatherRows.apply(embeddings, sizes, factor)
    return whole, _gather(labels.to(embeddings.device), sizes)
