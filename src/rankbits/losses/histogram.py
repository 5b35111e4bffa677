"""Losses over soft histograms as one autograd node, in memory linear in the batch.

The losses check their arguments and call ``compute_histogram_loss`` with a formula. Checks that all
losses share are here too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch.autograd.function import once_differentiable

from rankbits import _check
from rankbits.kernels import (
    Recording,
    Setting,
    find_recording,
    histogram_loss,
    scale_rows,
    scale_rows_backward,
)
from rankbits.losses.relation import Relation, relate

Function = TypeVar("Function", bound=Callable[..., Any])


class _HistogramLoss(torch.autograd.Function):
    """Computes the loss and, where it is needed, its gradient at the scaled rows; the backward pass
    carries that gradient to the rows before scaling."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        y: torch.Tensor | None,
        relation: Relation,
        setting: Setting,
        alpha: float | None,
    ) -> torch.Tensor:
        to_x, to_y = ctx.needs_input_grad[:2]
        same = y is None and relation.symmetric
        with full_precision(x):
            rows = scale_rows(x, alpha)
            others = rows if y is None else scale_rows(y, alpha)
            loss, at_x, at_y = histogram_loss(
                rows, others, relation.pairs, setting,
                to_x=to_x, to_y=to_y or (to_x and y is None and not same), same=same,
            )  # fmt: skip
            if y is None and at_x is not None and at_y is not None:
                at_x.add_(at_y)
        ctx.alpha = alpha
        of_x = (None,) * 3 if at_x is None else (at_x, x, rows)
        of_y = (None,) * 3 if y is None else (at_y, y, others)
        ctx.save_for_backward(*of_x, *of_y)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        with full_precision(gradient):
            at_x, at_y = (
                None if at is None else scale_rows_backward(at, x, rows, ctx.alpha, gradient)
                for at, x, rows in (saved[:3], saved[3:])
            )
        return at_x, at_y, None, None, None


class _ReplayedLoss(torch.autograd.Function):
    """The same for small batches of classes on a GPU: a recording gives the loss together with its
    gradient at the rows before scaling."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        labels: torch.Tensor,
        recording: Recording,
        alpha: float | None,
    ) -> torch.Tensor:
        loss, slopes = recording.run(x, labels, alpha)
        ctx.save_for_backward(slopes)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return gradient * slopes, None, None, None


def compute_histogram_loss(
    formula: str,
    x: torch.Tensor,
    database: torch.Tensor | None,
    bins: int,
    alpha: float | None,
    grading: dict[str, Any],
) -> torch.Tensor:
    """Compute the loss of a ``formula`` (``kernels.histogram.FORMULAS``) over rows tanh(alpha x),
    or over x scaled to unit length where alpha is None; ``grading`` are arguments of ``relate``."""
    y, scale = database, 1 if alpha is None else x.shape[1]
    replayed = _replay(Setting(formula, 2, bins, scale), x, y, alpha, **grading)
    if replayed is not None:
        return replayed
    if y is not None:
        y = check_rows("database", y, x.shape[1])
        y = y if y.dtype == x.dtype else y.to(x.dtype)
    rows, columns = x.shape[0], (x if y is None else y).shape[0]
    with full_precision(x):
        graded = formula.startswith("ndcg")
        relation = relate(rows, columns, x.device, graded=graded, same=y is None, **grading)
        gains = None if relation.values is None else torch.exp2(relation.values.double()) - 1
    setting = Setting(formula, relation.levels, bins, scale, gains)
    if not torch.is_grad_enabled():  # the node cannot tell, and would compute an unused gradient
        x, y = x.detach(), None if y is None else y.detach()
    return _HistogramLoss.apply(x, y, relation, setting, alpha)


def _replay(
    setting: Setting,
    x: torch.Tensor,
    database: torch.Tensor | None,
    alpha: float | None,
    *,
    labels: Any,
    **others: Any,
) -> torch.Tensor | None:
    """Compute the loss by a recording, if there is one for batches like this."""
    if not (x.is_cuda and x.requires_grad and torch.is_grad_enabled() and database is None):
        return None
    if not isinstance(labels, torch.Tensor) or any(other is not None for other in others.values()):
        return None
    with full_precision(x):
        recording = find_recording(x, labels, setting, relaxed=alpha is not None)
        if recording is None:
            return None
        loss: torch.Tensor = _ReplayedLoss.apply(x, labels, recording, alpha)
        return loss


def full_precision(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off: counts and their gradients need float32 or better."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def outside_graphs(function: Function) -> Function:
    """Keep ``torch.compile`` from compiling a function; it runs between two graphs.

    ``torch.compiler.disable`` loads the compiler, which takes more than a second, so it is called
    only where something else, such as ``torch.compile``, has loaded the compiler.
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


def check_rows(name: str, value: Any, dim: int | None = None) -> torch.Tensor:
    """Return a tensor (n, dim) as float32 or float64; refuse anything else. Half precision is
    widened."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim != 2:
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else value
        got = got if isinstance(got, str) else type(value).__name__
        _check.refuse(f"{name} must be a float tensor of shape (n, dim); got {got}.")
    if value.shape[1] == 0 or (dim is not None and value.shape[1] != dim):
        _check.refuse(f"{name} must have dim {dim or 'at least 1'}; got {value.shape[1]}.")
    return value if value.dtype in (torch.float32, torch.float64) else value.float()
