"""Sums over whole places, continued to soft counts: what makes the three forms of TALR's losses.

A tie of c items behind a others takes the places a + 1 .. a + c. The metrics need the mean of 1/t
and of the discount 1/log2(1 + t) over these places; a soft histogram has fractions for a and c.
All functions here are of (a, c), elementwise, and smooth at c = 0 unless they say otherwise.
"""

from __future__ import annotations

import functools
import math

import torch
from torch.autograd.function import once_differentiable

NEAR = 1e-2  # within this of a removable singularity the Taylor series takes over
FAR = 20.0
LN2 = math.log(2)


def mean_reciprocal(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """(psi(a + c + 1) - psi(a + 1)) / c: the mean of 1/t, exact on whole numbers."""
    far = a + 1 > FAR
    small = (c.abs() < NEAR) & ~far
    wide = torch.where(small, 1.0, torch.where(far, c.clamp(min=1e-9), c))
    mean = _digamma_between(a + 1, wide) / wide
    return _patch(mean, small, lambda at: _taylor(a[at] + 1, c[at]))


def _digamma_between(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """psi(x + c) - psi(x); far out by an expansion at z = x - 1/2, which keeps its digits."""
    far = x > FAR
    near = torch.digamma(torch.where(far, 1.0, x) + c) - torch.digamma(torch.where(far, 1.0, x))
    z = torch.where(far, x, FAR) - 0.5
    return torch.where(far, torch.log1p(c / z) + _tail(z + c) - _tail(z), near)


def _tail(z: torch.Tensor) -> torch.Tensor:
    u = 1 / (z * z)
    return u * (1 / 24 + u * (-7 / 960 + u * (31 / 8064 - u * (127 / 30720))))


def tilt(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """(1 - (a + 1) mean_reciprocal(a, c)) / (c - 1), continued through c = 1.

    With d = c - 1 and psi(a + 2 + d) - psi(a + 1) = 1/(a + 1) + d T(d), T the Taylor mean around
    a + 2, the quotient is (1 - (a + 1) T(d)) / (1 + d).
    """
    d = c - 1
    small = d.abs() < NEAR
    away = torch.where(small, 2.0, c)
    value = (1 - (a + 1) * mean_reciprocal(a, away)) / (away - 1)
    return _patch(
        value, small, lambda at: (1 - (a[at] + 1) * _taylor(a[at] + 2, d[at])) / (1 + d[at])
    )


def _taylor(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """(psi(x + h) - psi(x)) / h = zeta(2, x) - zeta(3, x) h + zeta(4, x) h^2 - ...

    Hurwitz zetas, not torch's trigamma, which keeps nine digits only.
    """
    total = torch.zeros_like(h)
    for n in range(6, 1, -1):
        total = torch.special.zeta(float(n), x) - h * total
    return total


def _patch(value: torch.Tensor, where: torch.Tensor, series) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """Series are costly, so they are taken only where they are wanted."""
    at = torch.nonzero(where, as_tuple=True)
    return value.index_put(at, series(at)) if len(at[0]) else value


def log_ratio(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """ln((a + c) / a), Eq. 11's stand-in for the sum of 1/t.

    It is infinite at a = 0, in the first bin that holds anything. Guard: counts below 1/e are taken
    for 1/e, which gives the first place its true weight, 1.
    """
    least = math.exp(-1)
    return torch.log((a + c).clamp(min=least)) - torch.log(a.clamp(min=least))


def reciprocal_of_less_one(c: torch.Tensor, width: float = 0.1) -> torch.Tensor:
    """1 / (c - 1), the pole of Eq. 11. Guard: the line (c - 1)/width^2 within ``width`` of it."""
    d = c - 1
    inside = d.abs() < width
    return torch.where(inside, d / width**2, 1 / torch.where(inside, 1.0, d))


def midpoint_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The discount at the middle place, Eq. 66: 1 / log2(a + c/2 + 3/2)."""
    return 1 / torch.log2(a + c / 2 + 1.5)


def integral_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The mean of 1/log2(1 + t) as an integral, Eq. 12: ln 2 (li(a + c + 1) - li(a + 1)) / c.

    li is infinite at 1, so at a = 0 the integral diverges. Guard: its lower limit is at least the
    one that gives the first place its true weight, 1.
    """
    least = _first_place()
    low, high = (a + 1).clamp(min=least), (a + c + 1).clamp(min=least)
    return LN2 * _mean_between(log_integral, lambda x: 1 / torch.log(x), low, high, c)


def spline_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The mean of 1/log2(1 + t) over the places, exact on whole numbers.

    The cumulative discount is continued by a cubic Hermite spline through its whole values, with
    the mean of neighbouring discounts as slope: one continuous derivative, which is all a gradient
    sees.
    """
    table = cumulative_discount(int(_most(a + c)) + 3, a.device)
    return _mean_between(
        lambda x: _spline(table, x), lambda x: _spline_slope(table, x), a, a + c, c
    )


def cumulative_discount(places: int, device: torch.device) -> torch.Tensor:
    """(places + 1,) float64: the sum of 1/log2(1 + t) over t = 1 .. m, for each m."""
    t = torch.arange(2, places + 2, dtype=torch.float64, device=device)
    return torch.nn.functional.pad((1 / torch.log2(t)).cumsum(0), (1, 0))


def _most(x: torch.Tensor) -> float:
    """The largest value, as a size to allocate for; a nan is not one."""
    return float(x.detach().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


def _mean_between(total, slope, low, high, c):  # type: ignore[no-untyped-def]
    """(total(high) - total(low)) / c, and the slope in the middle where c is next to nothing."""
    tiny = c < 1e-4
    mean = (total(high) - total(low)) / torch.where(tiny, 1.0, c)
    return torch.where(tiny, slope((low + high) / 2), mean)


def _pieces(table: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    knot = x.detach().nan_to_num().floor().clamp(0, len(table) - 3).long()
    step = table[1:] - table[:-1]
    slope = torch.cat([step[:1], (step[1:] + step[:-1]) / 2])
    return table[knot], step[knot], slope[knot], slope[knot + 1], x - knot


def _spline(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    start, step, left, right, u = _pieces(table, x)
    bend = u * (1 - u)
    return start + step * u + bend * ((left - step) * (1 - u) - (right - step) * u)


def _spline_slope(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    _, step, left, right, u = _pieces(table, x)
    inner = (left - step) * (1 - u) - (right - step) * u
    return step + (1 - 2 * u) * inner - u * (1 - u) * (left + right - 2 * step)


class _LogIntegral(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return _li(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return gradient / torch.log(x)


def log_integral(x: torch.Tensor) -> torch.Tensor:
    """li(x) = integral of dt / ln t, for x > 1; its derivative is 1 / ln x."""
    return _LogIntegral.apply(x)


def _li(x: torch.Tensor) -> torch.Tensor:
    """gamma + ln ln x + sum of (ln x)^k / (k k!): for x > 1 all terms of the sum are positive."""
    u = torch.log(x)
    total, term = torch.zeros_like(u), torch.ones_like(u)
    terms = int(3 * _most(u) + 25)
    for k in range(1, terms):
        term = term * u / k
        total = total + term / k
    return 0.57721566490153286 + torch.log(u) + total


@functools.cache
def _first_place() -> float:
    """The lower limit s with ln 2 (li(2) - li(s)) = 1, by bisection."""

    def missing(s: float) -> float:
        ends = torch.tensor([2.0, s], dtype=torch.float64)
        high, low = _li(ends).tolist()
        return LN2 * (high - low) - 1

    low, high = 1 + 1e-9, 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) > 0 else (low, middle)
    return low
