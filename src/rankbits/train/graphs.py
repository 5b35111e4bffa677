"""A network's forward and backward pass replayed as two CUDA graphs.

A pass of a small network or chunk spends its time on launches: the CPU starts some thousand kernels
one by one. A graph starts them all at once. It holds addresses, so inputs, outputs and gradients of
the weights stay in one place, and each shape of inputs has its own graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

MOST = 3  # shapes of inputs that are recorded: each keeps its memory
WARM = 3  # passes before a graph is recorded: libraries choose their kernels in the first ones


class Precision(Protocol):
    def __call__(self) -> AbstractContextManager[None]: ...


class GraphedNetwork:
    """Runs ``model`` by graphs, which are recorded once for each shape of inputs, in the model's
    mode at that time. ``passes`` runs it while a graph is recorded, such as the compiled model.

    ``p.grad`` of every trained weight must stay the same tensor: set gradients to zero, not to
    None. The model's random numbers follow the CUDA generator's seed at each call, and its buffers
    change as without graphs.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        precision: Precision,
        passes: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.model, self.precision, self.passes = model, precision, passes or model
        self.anchor = torch.zeros((), requires_grad=True)  # makes autograd call ``backward``
        self.recorded: dict[torch.Size, _Graphs] = {}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape not in self.recorded:
            if len(self.recorded) == MOST or not len(x):
                with self.precision():
                    return self.passes(x)
            self.recorded[x.shape] = _Graphs(self, x)
        return _Replayed.apply(self.anchor, x, self.recorded[x.shape])


class _Graphs:
    """A forward and a backward pass over inputs of one shape."""

    def __init__(self, network: GraphedNetwork, x: torch.Tensor) -> None:
        model, self.precision, self.passes = network.model, network.precision, network.passes
        self.x = torch.empty_like(x, memory_format=_find_format(model)).copy_(x)
        trained = [p for p in model.parameters() if p.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        changed = [*model.buffers(), *(p.grad for p in trained if p.grad is not None)]
        before = [value.clone() for value in changed]
        state = torch.cuda.get_rng_state(x.device)
        with torch.enable_grad():
            self._record(trained)
        with torch.no_grad():
            for value, old in zip(changed, before, strict=True):
                value.copy_(old)
        torch.cuda.set_rng_state(state, x.device)

    def _record(self, trained: list[torch.nn.Parameter]) -> None:
        here, side = torch.cuda.current_stream(self.x.device), torch.cuda.Stream(self.x.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(WARM):
                z = self._go_forward()
                self.slope = torch.zeros_like(z)
                self._go_back(z, trained)
        here.wait_stream(side)
        del z
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward, stream=side):
            self.z = self._go_forward()
        with torch.cuda.graph(self.backward, pool=self.forward.pool(), stream=side):
            self._go_back(self.z, trained)

    def _go_forward(self) -> torch.Tensor:
        with self.precision():
            return self.passes(self.x)

    def _go_back(self, z: torch.Tensor, trained: list[torch.nn.Parameter]) -> None:
        slopes = torch.autograd.grad(z, trained, self.slope, allow_unused=True)
        for parameter, slope in zip(trained, slopes, strict=True):
            if parameter.grad is not None and slope is not None:
                parameter.grad.add_(slope)

    def replay_forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x.copy_(x)
        self.forward.replay()
        return self.z.detach().clone()

    def replay_backward(self, slope: torch.Tensor) -> None:
        self.slope.copy_(slope)
        self.backward.replay()


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, x: torch.Tensor, graphs: _Graphs) -> torch.Tensor:
        ctx.graphs = graphs
        return graphs.replay_forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[None, None, None]:
        ctx.graphs.replay_backward(slope)
        return None, None, None


def _find_format(model: torch.nn.Module) -> torch.memory_format:
    """Return the memory format of the network's weights: channels last, or plain."""
    for weight in model.parameters():
        if weight.ndim == 4:
            last = weight.is_contiguous(memory_format=torch.channels_last)
            return torch.channels_last if last else torch.contiguous_format
    return torch.contiguous_format
