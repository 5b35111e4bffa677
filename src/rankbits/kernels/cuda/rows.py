"""Rows of unit length, and the way back, in Triton: sums of a row are taken in float64."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.launch import on_device


@triton.jit
def _scale_kernel(x, out, norms, dim, tiny, DIM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((DIM,), tl.float64)
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        part = tl.load(x + row * dim + column, mask=column < dim, other=0.0).to(tl.float64)
        total += part * part
    norm = tl.sqrt(tl.sum(total, axis=0))
    dead = norm <= tiny
    inverse = tl.where(dead, 0.0, 1 / tl.where(dead, 1.0, norm))
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        part = tl.load(x + row * dim + column, mask=column < dim, other=0.0).to(tl.float64)
        tl.store(out + row * dim + column, part * inverse, mask=column < dim)
    tl.store(norms + row, tl.where(dead, 0.0, norm))


@triton.jit
def _scale_back_kernel(gradient, rows, norms, out, dim, DIM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((DIM,), tl.float64)
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        at, inside = row * dim + column, column < dim
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float64)
        total += g * tl.load(rows + at, mask=inside, other=0.0)
    along = tl.sum(total, axis=0)
    norm = tl.load(norms + row).to(tl.float64)
    dead = norm == 0
    inverse = tl.where(dead, 0.0, 1 / tl.where(dead, 1.0, norm))
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        at, inside = row * dim + column, column < dim
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float64)
        u = tl.load(rows + at, mask=inside, other=0.0).to(tl.float64)
        tl.store(out + at, (g - u * along) * inverse, mask=inside)


def scale(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.contiguous()
    count, dim = x.shape
    out, norms = torch.empty_like(x), x.new_empty(count, 1)
    tiny = torch.finfo(x.dtype).tiny ** 0.5
    if count:
        with on_device(x):
            _scale_kernel[(count,)](x, out, norms, dim, tiny, DIM=_choose_width(dim), num_warps=4)
    return out, norms


def scale_backward(gradient: torch.Tensor, rows: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    count, dim = rows.shape
    out = torch.empty_like(gradient)
    if count:
        with on_device(rows):
            _scale_back_kernel[(count,)](
                gradient, rows, norms, out, dim, DIM=_choose_width(dim), num_warps=4
            )
    return out


def _choose_width(dim: int) -> int:
    return min(1024, max(128, triton.next_power_of_2(dim)))
