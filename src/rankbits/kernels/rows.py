"""Rows as a histogram loss wants them: of unit length, or relaxed codes; and the way back."""

from __future__ import annotations

import torch

from rankbits.kernels import backend


def scale_rows(x: torch.Tensor, alpha: float | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(rows, norms): tanh(alpha x) and None; or, where alpha is None, x of unit length and |x|.

    x (n, dim) is of any float dtype, rows are float32 or float64. A row of zeros stays zero, with
    norm 0, which makes its gradient 0 rather than a huge one.
    """
    if alpha is None and _has_kernel(x):
        from rankbits.kernels.cuda import rows

        return rows.scale(x)
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if alpha is not None:
        return torch.tanh(x if alpha == 1 else alpha * x), None
    norms = x.norm(dim=1, keepdim=True)
    dead = norms <= torch.finfo(x.dtype).tiny ** 0.5
    norms = norms.masked_fill(dead, 0)
    return x.masked_fill(dead, 0) / norms.masked_fill(dead, 1), norms


def scale_rows_backward(
    gradient: torch.Tensor, rows: torch.Tensor, norms: torch.Tensor | None, alpha: float | None
) -> torch.Tensor:
    """The gradient at x of what has this ``gradient`` at the rows that ``scale_rows`` returned."""
    if norms is None:
        found = torch.ops.aten.tanh_backward(gradient, rows)
        return found if alpha == 1 else found * alpha
    if _has_kernel(rows):
        from rankbits.kernels.cuda import rows as kernels

        return kernels.scale_backward(gradient, rows, norms)
    along = (gradient * rows).sum(dim=1, keepdim=True)
    dead = norms == 0
    return ((gradient - rows * along) / norms.masked_fill(dead, 1)).masked_fill(dead, 0)


def _has_kernel(x: torch.Tensor) -> bool:
    return x.is_cuda and backend.has_triton() and backend.chosen("cuda") == "cuda"
