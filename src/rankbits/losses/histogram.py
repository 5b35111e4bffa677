"""Soft histograms of pairwise distances per affinity grade, under autograd.

Everything a histogram loss needs of its batch: (M, grades, bins + 1) soft counts, differentiable
at the embeddings on both sides, in memory linear in M. The losses themselves are short formulas
over these.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.autograd.function import once_differentiable

from rankbits import _check
from rankbits.kernels import soft_counts, soft_counts_backward
from rankbits.losses.relation import Relation

Function = TypeVar("Function", bound=Callable[..., Any])


class _SoftHistogram(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        y: torch.Tensor | None,
        relation: Relation,
        bins: int,
        scale: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        ctx.relation, ctx.scale = relation, scale
        other = x if y is None else y
        with full_precision(x):
            counts, ctx.kept = soft_counts(
                x, other, relation.pairs, relation.levels, bins, scale,
                keep=any(ctx.needs_input_grad),
            )  # fmt: skip
        return counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, y = ctx.saved_tensors
        other = x if y is None else y
        same = y is None and ctx.relation.symmetric
        with full_precision(x):
            at_x, at_y = soft_counts_backward(
                x, other, ctx.relation.pairs, gradient, ctx.scale, ctx.kept,
                to_x=ctx.needs_input_grad[0],
                to_y=ctx.needs_input_grad[1] or (y is None and not same),
                same=same,
            )  # fmt: skip
        if y is None and not same:
            assert at_x is not None and at_y is not None
            return at_x + at_y, None, None, None, None
        return at_x, at_y, None, None, None


def soft_histogram(
    x: torch.Tensor, y: torch.Tensor | None, relation: Relation, bins: int, scale: float
) -> torch.Tensor:
    """(M, grades, bins + 1) soft counts of the rows of y, or of x itself where y is None."""
    return _SoftHistogram.apply(x, y, relation, bins, scale)


def full_precision(x: torch.Tensor) -> torch.autocast:
    """Autocast off: counts and their gradients are float32 or better whatever the model runs in."""
    return torch.autocast(x.device.type, enabled=False)


def outside_graphs(function: Function) -> Function:
    """Under ``torch.compile`` a loss runs as it is, between two graphs.

    ``torch.compiler.disable`` loads the compiler, which takes more than a second; so it is called
    only once something else has loaded it, as ``torch.compile`` does.
    """
    disabled: list[Any] = []

    @functools.wraps(function)
    def plain(*arguments: Any, **options: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*arguments, **options)

    return plain  # type: ignore[return-value]


def rows_of_floats(name: str, value: Any, dim: int | None = None) -> torch.Tensor:
    """(n, dim) as float32 or float64; half precision is widened."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim != 2:
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else value
        got = got if isinstance(got, str) else type(value).__name__
        _check.refuse(f"{name} must be a float tensor of shape (n, dim); got {got}.")
    if value.shape[1] == 0 or (dim is not None and value.shape[1] != dim):
        _check.refuse(f"{name} must have dim {dim or 'at least 1'}; got {value.shape[1]}.")
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def mean_loss(quality: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """1 - the mean quality of queries that have a neighbour; 0, with gradient 0, where none has."""
    valid = neighbours > 0
    count = valid.sum()
    total = torch.where(valid, 1 - quality, quality * 0).sum()
    return total / count.clamp(min=1)
