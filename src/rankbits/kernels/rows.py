"""Rows as a histogram loss needs them, of unit length or relaxed codes, and their gradient."""

from __future__ import annotations

import torch

from rankbits.kernels import backend


def scale_rows(x: torch.Tensor, alpha: float | None) -> torch.Tensor:
    """tanh(alpha x); or, where alpha is None, x of unit length. x (n, dim) is float32 or float64.

    A row of zeros stays zero, and its gradient is 0 rather than a huge one.
    """
    if alpha is not None:
        return torch.tanh(x if alpha == 1 else alpha * x)
    if backend.uses_triton(x):
        return backend.load("cuda", "rows").scale(x)
    norms, dead = _find_norms(x)
    return x.masked_fill(dead, 0) / norms


def scale_rows_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    rows: torch.Tensor,
    alpha: float | None,
    factor: torch.Tensor,
) -> torch.Tensor:
    """Turn the ``gradient`` of a loss at ``rows``, which are ``scale_rows(x, alpha)``, into its
    gradient at x, times ``factor`` ()."""
    # Triton passes numbers as float32, which has too few digits of alpha for a float64 gradient
    if backend.uses_triton(x) and (alpha is None or x.dtype == torch.float32):
        triton_rows = backend.load("cuda", "rows")
        return triton_rows.scale_backward(gradient.contiguous(), x, rows, alpha, factor)
    if alpha is not None:
        return torch.ops.aten.tanh_backward(gradient, rows).mul_(alpha * factor)
    norms, dead = _find_norms(x)
    along = (gradient * rows).sum(dim=1, keepdim=True)
    return ((gradient - rows * along) / norms).masked_fill_(dead, 0).mul_(factor)


def _find_norms(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Norms (n, 1), 1 for rows of zeros, and which rows (n, 1) these are."""
    norms = x.norm(dim=1, keepdim=True)
    dead = norms <= torch.finfo(x.dtype).tiny ** 0.5
    return norms.masked_fill(dead, 1), dead
