"""Rows of unit length, and gradients through scaled rows, in Triton; sums are in float64."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from rankbits.kernels.cuda.launch import Launch, divide_up, find_power

SIZE = 1024  # numbers that one program scales


@triton.jit(do_not_specialize=["dim"])
def _scale_kernel(x, out, dim, TINY: tl.constexpr, EVEN: tl.constexpr, DIM: tl.constexpr):
    if EVEN:  # the compiler may then load several numbers at once
        dim = dim // 16 * 16
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((DIM,), tl.float64)
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        part = tl.load(x + row * dim + column, mask=column < dim, other=0.0).to(tl.float64)
        total += part * part
    norm = tl.sqrt(tl.sum(total, axis=0))
    dead = norm <= TINY
    inverse = tl.where(dead, 0.0, 1 / tl.where(dead, 1.0, norm))
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        part = tl.load(x + row * dim + column, mask=column < dim, other=0.0).to(tl.float64)
        tl.store(out + row * dim + column, part * inverse, mask=column < dim)


@triton.jit(do_not_specialize=["dim"])
def _scale_back_kernel(
    gradient, x, factor, out, dim, TINY: tl.constexpr, EVEN: tl.constexpr, DIM: tl.constexpr
):
    if EVEN:
        dim = dim // 16 * 16
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((DIM,), tl.float64)
    product = tl.zeros((DIM,), tl.float64)
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        at, inside = row * dim + column, column < dim
        part = tl.load(x + at, mask=inside, other=0.0).to(tl.float64)
        total += part * part
        product += part * tl.load(gradient + at, mask=inside, other=0.0)
    norm = tl.sqrt(tl.sum(total, axis=0))
    dead = norm <= TINY
    inverse = tl.where(dead, 0.0, 1 / tl.where(dead, 1.0, norm))
    along = tl.sum(product, axis=0) * inverse * inverse
    inverse *= tl.load(factor).to(tl.float64)
    for start in range(0, dim, DIM):
        column = start + tl.arange(0, DIM)
        at, inside = row * dim + column, column < dim
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float64)
        part = tl.load(x + at, mask=inside, other=0.0).to(tl.float64)
        tl.store(out + at, (g - part * along) * inverse, mask=inside)


@triton.jit(do_not_specialize=["number", "alpha"])
def _relax_back_kernel(gradient, rows, factor, out, number, alpha, SIZE: tl.constexpr):
    """gradient (1 - rows^2) alpha factor."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < number
    value = tl.load(rows + at, mask=inside, other=0.0)
    steepness = alpha.to(value.dtype) * tl.load(factor).to(value.dtype)
    g = tl.load(gradient + at, mask=inside, other=0.0)
    tl.store(out + at, g * (1 - value * value) * steepness, mask=inside)


def scale(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    _run(_scale_kernel, x, out)
    return out


def scale_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    rows: torch.Tensor,
    alpha: float | None,
    factor: torch.Tensor,
) -> torch.Tensor:
    out = torch.empty_like(gradient)
    if alpha is None:
        _run(_scale_back_kernel, gradient, x.contiguous(), factor, out)
    elif out.numel():
        _plan_relaxed(out.numel(), alpha)(gradient, rows.contiguous(), factor, out)
    return out


def _run(kernel: Any, *tensors: torch.Tensor) -> None:
    count, dim = tensors[0].shape
    if count:
        _plan(kernel, count, dim, tensors[0].dtype)(*tensors)


@functools.lru_cache(4096)
def _plan(kernel: Any, count: int, dim: int, dtype: torch.dtype) -> Launch:
    """One program a row."""
    width = min(1024, max(128, find_power(dim)))
    constants = {"TINY": torch.finfo(dtype).tiny ** 0.5, "EVEN": dim % 16 == 0, "DIM": width}
    return Launch(kernel, (count,), (dim,), constants)


@functools.lru_cache(4096)
def _plan_relaxed(number: int, alpha: float) -> Launch:
    return Launch(
        _relax_back_kernel, (divide_up(number, SIZE),), (number, float(alpha)), {"SIZE": SIZE}
    )
