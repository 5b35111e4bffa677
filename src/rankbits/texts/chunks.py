"""Large batches of texts: embedded in chunks twice, with the gradient of the whole batch.

As in ``train/step.py``, but inside the convention of sentence-transformers' trainer, which calls
``backward`` on what a loss returns: the second pass runs when that happens. What a chunk draws at
random (dropout) is put back before its second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Column = dict[str, Any]  # tokens of a batch of texts: a row for each
Embed = Callable[[Column], torch.Tensor]


def two_pass(
    embed: Embed,
    columns: Sequence[Column],
    loss: Callable[[list[torch.Tensor]], torch.Tensor],
    chunk: int,
) -> torch.Tensor:
    """``loss`` of the embeddings of each column; at most ``chunk`` texts have a graph at a time.

    The loss that comes back has no graph of its own. Its ``backward`` embeds the chunks again and
    adds the gradient of the whole batch to the parameters.
    """
    parts = [list(_split(column, chunk)) for column in columns]
    states: list[list[_State]] = []
    outputs = []
    with torch.no_grad():
        for column in parts:
            states.append([])
            rows, kept = [], []
            for where, part in column:
                states[-1].append(_State(part))
                rows.append(where)
                kept.append(embed(part))
            back = torch.argsort(torch.cat(rows)).to(kept[0].device)
            outputs.append(torch.cat(kept)[back])
    if not torch.is_grad_enabled():
        return loss(outputs)
    leaves = [output.float().requires_grad_() for output in outputs]
    value = loss(leaves)
    slopes = torch.autograd.grad(value, leaves, allow_unused=True)

    def embed_again(scale: torch.Tensor) -> None:
        for column, its_states, slope in zip(parts, states, slopes, strict=True):
            if slope is None:
                continue
            for (where, part), state in zip(column, its_states, strict=True):
                with torch.enable_grad(), state:
                    again = embed(part)
                again.backward((slope[where.to(slope.device)] * scale).to(again.dtype))

    result = value.detach().requires_grad_()
    result.register_hook(embed_again)
    return result


def _split(column: Column, chunk: int) -> Iterator[tuple[torch.Tensor, Column]]:
    """Rows and their tokens, texts of one length together, without the padding they do not need."""
    mask = column.get("attention_mask")
    size = next(len(value) for value in column.values() if isinstance(value, torch.Tensor))
    lengths = None if mask is None else mask.sum(1).cpu()
    order = torch.arange(size) if lengths is None else torch.argsort(lengths, stable=True)
    right = mask is not None and bool((mask[:, :1] != 0).all())  # the padding is on the right
    for rows in order.split(chunk):
        wide = int(lengths[rows].max()) if lengths is not None and right else None
        part = {}
        for name, value in column.items():
            if isinstance(value, torch.Tensor):
                value = value[rows.to(value.device)]
                if wide is not None and mask is not None and value.shape[1:2] == mask.shape[1:]:
                    value = value[:, :wide]
            part[name] = value
        yield rows, part


class _State:
    """The random numbers and the precision of now, put back while it is entered."""

    def __init__(self, part: Column) -> None:
        device = next(v.device for v in part.values() if isinstance(v, torch.Tensor))
        self.kind = device.type
        self.devices = [device] if device.type == "cuda" else []
        self.cpu = torch.get_rng_state()
        self.others = [torch.cuda.get_rng_state(d) for d in self.devices]
        self.autocast = torch.is_autocast_enabled(self.kind)
        self.dtype = torch.get_autocast_dtype(self.kind)

    def __enter__(self) -> None:
        self._contexts = [
            torch.random.fork_rng(self.devices),
            torch.autocast(self.kind, self.dtype, enabled=self.autocast),
        ]
        for context in self._contexts:
            context.__enter__()
        torch.set_rng_state(self.cpu)
        for device, state in zip(self.devices, self.others, strict=True):
            torch.cuda.set_rng_state(state, device)

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)
