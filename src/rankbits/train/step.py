"""The gradient of one batch: in one pass, or exactly the same in two with a chunk in memory.

A ranking loss looks at the whole batch, so its gradient is not the sum of those of smaller batches.
But it can be split at the embeddings z (FastAP, Sec. 4.1): with g = dL/dz the gradient of the
weights is the sum over chunks of g[chunk] dz[chunk]/dw. So embed in chunks without a graph, take g,
then embed each chunk again with its graph and send its slice of g back.

That is the full batch's gradient only if the second embedding equals the first. Hence ``Replay``:
what a chunk draws (dropout) is a function of the seed, the step and the place of its first row;
what it finds in the model's buffers is put back before its second pass, and what the first pass
left there is put back at the end. Batch normalisation takes its statistics over a chunk, in both
passes, and keeps the first pass's: with ``batch_norm="frozen"`` chunks and processes do not matter
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist

from rankbits import _check
from rankbits.models import find_head
from rankbits.train.config import NetworkSettings

BUCKET = 1 << 23  # numbers that travel together between processes

Embed = Callable[[int, int], torch.Tensor]


def seed_of(*path: int) -> int:
    """63 bits for a place in the run: (seed, step, row). Near paths give unrelated seeds.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Replay:
    """Puts back what a chunk's first pass saw: its random numbers and the model's buffers."""

    def __init__(self, model: torch.nn.Module, *path: int) -> None:
        # few launches: a network has some hundred buffers, and those of one kind go together
        kinds = {(buffer.dtype, buffer.device): None for buffer in model.buffers()}
        self.buffers = [[b for b in model.buffers() if (b.dtype, b.device) == k] for k in kinds]
        self.path = path
        self.seen: dict[int, list[list[torch.Tensor]]] = {}

    def first(self, start: int) -> None:
        self.seen[start] = self.kept()
        self.draw(start)

    def second(self, start: int) -> None:
        self.put(self.seen[start])
        self.draw(start)

    def kept(self) -> list[list[torch.Tensor]]:
        copies = [[torch.empty_like(buffer) for buffer in kind] for kind in self.buffers]
        _copy(self.buffers, copies)
        return copies

    def draw(self, start: int) -> None:
        seed = seed_of(*self.path, start)
        if torch.cuda.is_initialized():
            torch.manual_seed(seed)
        else:  # the other call would note a stack trace, for the day a GPU is used: 4 ms of it
            torch.default_generator.manual_seed(seed)

    def put(self, values: list[list[torch.Tensor]]) -> None:
        _copy(values, self.buffers)


@torch.no_grad()
def _copy(values: list[list[torch.Tensor]], places: list[list[torch.Tensor]]) -> None:
    for of_a_kind, there in zip(values, places, strict=True):
        torch._foreach_copy_(there, of_a_kind)


def batch_gradient(
    embed: Embed,
    rows: int,
    loss: Callable[[torch.Tensor], torch.Tensor],
    replay: Replay,
    *,
    chunk: int | None = None,
    first: int = 0,
    own: Sequence[torch.Tensor] = (),
    scale: Callable[[torch.Tensor], torch.Tensor] = lambda value: value,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradient of ``loss(z)`` to the parameters -> (the loss, z (rows, width)), detached.

    ``embed(start, stop)`` embeds those rows of the batch; ``loss`` takes all their embeddings.
    ``chunk`` rows are embedded at a time (``None``: all at once, one pass). ``first`` is the place
    of this process's first row in the batch of all processes: what a row draws must not depend on
    who embeds it. ``own`` are parameters of the loss itself (proxies), ``scale`` a GradScaler's.

    >>> model, x = torch.nn.Linear(3, 2), torch.eye(3)
    >>> whole, z = batch_gradient(
    ...     lambda a, b: model(x[a:b]), 3, lambda z: z.square().sum(), Replay(model, 0), chunk=2
    ... )
    >>> wanted = torch.autograd.grad(model(x).square().sum(), model.weight)[0]
    >>> torch.allclose(model.weight.grad, wanted), z.shape
    (True, torch.Size([3, 2]))
    """
    with torch.autograd.set_multithreading_enabled(False):  # the way to another thread takes longer
        return _find_gradient(embed, rows, loss, replay, chunk, first, own, scale)


def _find_gradient(
    embed: Embed,
    rows: int,
    loss: Callable[[torch.Tensor], torch.Tensor],
    replay: Replay,
    chunk: int | None,
    first: int,
    own: Sequence[torch.Tensor],
    scale: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    chunk = max(rows, 1) if chunk is None else _check.whole("chunk", chunk, 1)
    starts = range(0, rows, chunk)
    kept = []
    for start in starts:
        (replay.draw if len(starts) == 1 else replay.first)(first + start)
        with nullcontext() if len(starts) == 1 else torch.no_grad():
            kept.append(embed(start, min(start + chunk, rows)))
    graph = torch.cat(kept) if len(kept) > 1 else kept[0] if kept else embed(0, 0)
    kept.clear()
    half = graph.dtype in (torch.float16, torch.bfloat16)  # ranks are made in full precision
    z = (graph.detach().float() if half else graph.detach()).requires_grad_()
    value = loss(z)
    slopes = torch.autograd.grad(scale(value), [z, *own], allow_unused=True)
    for parameter, its in zip(own, slopes[1:], strict=True):
        if its is not None:
            parameter.grad = its if parameter.grad is None else parameter.grad + its
    slope = torch.zeros_like(z) if slopes[0] is None else slopes[0]
    if len(starts) == 1:
        graph.backward(slope.to(graph.dtype))
    elif len(starts) > 1:
        left = replay.kept()
        del graph
        for start in starts:
            replay.second(first + start)
            part = slice(start, min(start + chunk, rows))
            again = embed(part.start, part.stop)
            again.backward(slope[part].to(again.dtype))
        replay.put(left)
    return value.detach(), z.detach()


def freeze_statistics(model: torch.nn.Module) -> None:
    """Put batch normalisation into evaluation mode, so that its statistics do not change."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()


def set_training_mode(model: torch.nn.Module, config: NetworkSettings) -> None:
    """Put a network into training mode, but for what the settings freeze."""
    model.train()
    head = find_head(model)
    if config.freeze and head is not None:
        model.eval()
        head.train()
        before = getattr(model, "dropout", None)  # what an Embedder drops is the head's
        if isinstance(before, torch.nn.Module):
            before.train()
    elif config.batch_norm == "frozen":
        freeze_statistics(model)


def sum_gradients(parameters: Sequence[torch.Tensor]) -> None:
    """Add up each parameter's gradient over all processes, a few large messages at a time."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    waiting: list[torch.Tensor] = []
    for i, parameter in enumerate(parameters):
        assert parameter.grad is not None
        waiting.append(parameter.grad)
        if i + 1 == len(parameters) or sum(g.numel() for g in waiting) >= BUCKET:
            flat = torch.cat([g.reshape(-1) for g in waiting])
            dist.all_reduce(flat)
            for g, summed in zip(waiting, flat.split([g.numel() for g in waiting]), strict=True):
                g.copy_(summed.view_as(g))
            waiting = []


def precision(amp: str, device: torch.device) -> AbstractContextManager[None]:
    """Autocast as ``amp`` says: 'off', 'bf16' or 'fp16'."""
    if amp == "off":
        return nullcontext()
    kind = torch.bfloat16 if amp == "bf16" else torch.float16
    return torch.autocast(device.type, kind)


def choose_precision(amp: str, device: torch.device) -> str:
    """What 'auto' means on this device."""
    if amp != "auto":
        return amp
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "off"
