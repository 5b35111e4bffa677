"""Embed large batches of texts in chunks, twice, and get the gradient of the whole batch.

This is the two-pass gradient of ``train/step.py`` for sentence-transformers' trainer. That trainer
calls ``backward`` on the loss, and the second pass runs then. The random numbers of a chunk
(dropout) are the same in both passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch

Column = dict[str, Any]  # tokens of a batch of texts: a row for each
Embed = Callable[[Column], torch.Tensor]


def compute_loss_in_chunks(
    embed: Embed,
    columns: Sequence[Column],
    loss: Callable[[list[torch.Tensor]], torch.Tensor],
    chunk: int,
) -> torch.Tensor:
    """``loss`` of the embeddings of each column; at most ``chunk`` texts have a graph at a time.

    The loss that is returned has no graph. Its ``backward`` embeds the chunks again and adds the
    gradient of the whole batch to the parameters.
    """
    chunks = [list(_split(column, chunk)) for column in columns]
    states: list[list[_State]] = []
    outputs = []
    with torch.no_grad():
        for column in chunks:
            states.append([])
            embeddings = []
            for _, part in column:
                states[-1].append(_State(part))
                embeddings.append(embed(part))
            order = torch.argsort(torch.cat([rows for rows, _ in column]))
            outputs.append(torch.cat(embeddings)[order.to(embeddings[0].device)])
    if not torch.is_grad_enabled():
        return loss(outputs)
    leaves = [output.float().requires_grad_() for output in outputs]
    value = loss(leaves)
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)

    def embed_again(scale: torch.Tensor) -> None:
        for column, column_states, gradient in zip(chunks, states, gradients, strict=True):
            if gradient is None:
                continue
            for (rows, part), state in zip(column, column_states, strict=True):
                with torch.enable_grad(), state:
                    again = embed(part)
                again.backward((gradient[rows.to(gradient.device)] * scale).to(again.dtype))

    result = value.detach().requires_grad_()
    result.register_hook(embed_again)
    return result


def _split(column: Column, chunk: int) -> Iterator[tuple[torch.Tensor, Column]]:
    """The rows and the tokens of each chunk: texts of similar length, without needless padding."""
    mask = column.get("attention_mask")
    size = next(len(value) for value in column.values() if isinstance(value, torch.Tensor))
    lengths = None if mask is None else mask.sum(1).cpu()
    order = torch.arange(size) if lengths is None else torch.argsort(lengths, stable=True)
    padded_right = mask is not None and bool((mask[:, :1] != 0).all())
    for rows in order.split(chunk):
        width = int(lengths[rows].max()) if lengths is not None and padded_right else None
        part = {}
        for name, value in column.items():
            if isinstance(value, torch.Tensor):
                value = value[rows.to(value.device)]
                if width is not None and mask is not None and value.shape[1:2] == mask.shape[1:]:
                    value = value[:, :width]
            part[name] = value
        yield rows, part


class _State:
    """The random state and the precision at this moment; ``with`` restores them for its block."""

    def __init__(self, part: Column) -> None:
        device = next(v.device for v in part.values() if isinstance(v, torch.Tensor))
        self.kind = device.type
        self.devices = [device] if device.type == "cuda" else []
        self.cpu = torch.get_rng_state()
        self.others = [torch.cuda.get_rng_state(d) for d in self.devices]
        self.autocast = torch.is_autocast_enabled(self.kind)
        self.dtype = torch.get_autocast_dtype(self.kind)

    def __enter__(self) -> None:
        self._contexts = ExitStack()
        self._contexts.enter_context(torch.random.fork_rng(self.devices))
        self._contexts.enter_context(torch.autocast(self.kind, self.dtype, enabled=self.autocast))
        torch.set_rng_state(self.cpu)
        for device, state in zip(self.devices, self.others, strict=True):
            torch.cuda.set_rng_state(state, device)

    def __exit__(self, *error: Any) -> None:
        self._contexts.close()
