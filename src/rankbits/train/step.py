"""The gradient of one batch: in one pass, or in two passes with one chunk in memory at a time.

A ranking loss looks at the whole batch, so its gradient is not the sum of those of smaller batches.
But it can be split at the embeddings z (FastAP, Sec. 4.1): with g = dL/dz the gradient of the
weights is the sum over chunks of g[chunk] dz[chunk]/dw. So the first pass embeds all chunks without
a graph, and g is computed; the second pass embeds each chunk again with its graph and sends its
slice of g back.

That is the full batch's gradient only if the second embedding equals the first. ``Replay`` makes
sure of it: the random numbers of a chunk (dropout) depend only on the seed, the step and the place
of its first row; the model's buffers are restored before a chunk's second pass, and at the end to
what the first pass left. Batch normalisation uses the statistics of a chunk in both passes, and
keeps those of the first; with ``batch_norm="frozen"`` the result does not depend on chunks or
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist

from rankbits import _check
from rankbits.models import find_head
from rankbits.train.config import TrainConfig

BUCKET = 1 << 23  # numbers sent together between processes

Embed = Callable[[int, int], torch.Tensor]


def derive_seed(*path: int) -> int:
    """Return 63 random bits for a place in the run, (seed, step, row). Similar paths give unrelated
    seeds.

    >>> derive_seed(0, 1) == derive_seed(0, 1), derive_seed(0, 1) == derive_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Replay:
    """Restores what a chunk's first pass saw: its random numbers and the model's buffers."""

    def __init__(self, model: torch.nn.Module, *path: int) -> None:
        # a network has some hundred buffers: those of one kind are copied in one launch
        kinds = {(buffer.dtype, buffer.device): None for buffer in model.buffers()}
        self.buffers = [[b for b in model.buffers() if (b.dtype, b.device) == k] for k in kinds]
        self.path = path
        self.before: dict[int, list[list[torch.Tensor]]] = {}  # the buffers before each chunk

    def start_first_pass(self, start: int) -> None:
        self.before[start] = self.copy_buffers()
        self.set_seed(start)

    def start_second_pass(self, start: int) -> None:
        self.restore_buffers(self.before[start])
        self.set_seed(start)

    def set_seed(self, start: int) -> None:
        seed = derive_seed(*self.path, start)
        if torch.cuda.is_initialized():
            torch.manual_seed(seed)
        else:  # before CUDA is used, torch.manual_seed takes 4 ms to record a stack trace for it
            torch.default_generator.manual_seed(seed)

    def copy_buffers(self) -> list[list[torch.Tensor]]:
        copies = [[torch.empty_like(buffer) for buffer in kind] for kind in self.buffers]
        _copy(self.buffers, copies)
        return copies

    def restore_buffers(self, copies: list[list[torch.Tensor]]) -> None:
        _copy(copies, self.buffers)


@torch.no_grad()
def _copy(sources: list[list[torch.Tensor]], targets: list[list[torch.Tensor]]) -> None:
    for source, target in zip(sources, targets, strict=True):
        torch._foreach_copy_(target, source)


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

    ``embed(start, stop)`` embeds those rows of the batch; ``loss`` takes the embeddings of all
    rows. ``chunk`` rows are embedded at a time (``None``: all at once, in one pass). ``first`` is
    the place of this process's first row in the batch of all processes, because the random numbers
    of a row must not depend on the process that embeds it. ``own`` are the parameters of the loss
    itself (proxies), ``scale`` is that of a GradScaler.

    >>> model, x = torch.nn.Linear(3, 2), torch.eye(3)
    >>> whole, z = batch_gradient(
    ...     lambda a, b: model(x[a:b]), 3, lambda z: z.square().sum(), Replay(model, 0), chunk=2
    ... )
    >>> wanted = torch.autograd.grad(model(x).square().sum(), model.weight)[0]
    >>> torch.allclose(model.weight.grad, wanted), z.shape
    (True, torch.Size([3, 2]))
    """
    chunk = max(rows, 1) if chunk is None else _check.whole("chunk", chunk, 1)
    starts = range(0, rows, chunk)
    one_pass = len(starts) == 1
    with torch.autograd.set_multithreading_enabled(False):  # switching threads costs more time
        outputs = []
        for start in starts:
            (replay.set_seed if one_pass else replay.start_first_pass)(first + start)
            with nullcontext() if one_pass else torch.no_grad():
                outputs.append(embed(start, min(start + chunk, rows)))
        whole = torch.cat(outputs) if len(outputs) > 1 else outputs[0] if outputs else embed(0, 0)
        outputs.clear()
        half = whole.dtype in (torch.float16, torch.bfloat16)  # ranks need full precision
        z = (whole.detach().float() if half else whole.detach()).requires_grad_()
        value = loss(z)
        slope, *own_slopes = torch.autograd.grad(scale(value), [z, *own], allow_unused=True)
        for parameter, own_slope in zip(own, own_slopes, strict=True):
            if own_slope is not None:
                parameter.grad = own_slope if parameter.grad is None else parameter.grad + own_slope
        slope = torch.zeros_like(z) if slope is None else slope
        if one_pass:
            whole.backward(slope.to(whole.dtype))
        elif len(starts) > 1:
            after = replay.copy_buffers()
            del whole
            for start in starts:
                replay.start_second_pass(first + start)
                part = slice(start, min(start + chunk, rows))
                again = embed(part.start, part.stop)
                again.backward(slope[part].to(again.dtype))
            replay.restore_buffers(after)
        return value.detach(), z.detach()


def freeze_statistics(model: torch.nn.Module) -> None:
    """Put batch normalisation into evaluation mode, so that its statistics do not change."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()


def set_training_mode(model: torch.nn.Module, config: TrainConfig) -> None:
    """Put a network into training mode, except the parts that the settings freeze."""
    model.train()
    head = find_head(model)
    if config.freeze and head is not None:
        model.eval()
        head.train()
        dropout = getattr(model, "dropout", None)  # an Embedder's dropout belongs to its head
        if isinstance(dropout, torch.nn.Module):
            dropout.train()
    elif config.batch_norm == "frozen":
        freeze_statistics(model)


def sum_gradients(parameters: Sequence[torch.Tensor]) -> None:
    """Add up each parameter's gradient over all processes, in a few large messages."""
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
    """Return ``amp``, or what 'auto' means on this device."""
    if amp != "auto":
        return amp
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "off"
