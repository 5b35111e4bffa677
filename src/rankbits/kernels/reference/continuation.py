"""Sums over whole places, continued to soft counts: the three forms of TALR's losses differ here.

A tie of c items behind a others takes the places a + 1 .. a + c. The metrics need the mean of 1/t
and of the discount 1/log2(1 + t) over these places; a soft histogram has fractions for a and c.
The functions take (a, c), elementwise, and are smooth at c = 0 unless they say otherwise.
"""

from __future__ import annotations

import math

import torch
from torch.autograd.function import once_differentiable

SHIFT = 8  # terms of the harmonic sums that are added one by one; an expansion gives the rest
LN2 = math.log(2)
EULER = 0.57721566490153286
LI2 = 1.0451637801174927848  # li(2)
LI_TERMS = tuple(1 / (k * math.factorial(k)) for k in range(1, 65))  # enough for ten million places


def mean_reciprocal(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """(psi(a + c + 1) - psi(a + 1)) / c: the mean of 1/t, exact on whole numbers, for c > -1.

    With x = a + 1 it is the sum of 1 / ((x + i)(x + i + c)) over i < 8, where nothing cancels, and
    the same mean from x + 8 on, by the expansion of psi at z = x + 8 - 1/2. Smooth through c = 0.
    """
    return _MeanReciprocal.apply(a, c)


class _MeanReciprocal(torch.autograd.Function):
    """Compute the value and both slopes in one pass: no terms are kept for the gradient."""

    @staticmethod
    def forward(ctx, a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        c = torch.where(c.abs() < 1e-12, 1e-12, c)
        small = c.abs() < 1e-4
        value, at_a, at_c = (torch.zeros_like(a) for _ in range(3))
        for i in range(SHIFT):
            p = 1 / (a + (1 + i))
            q = 1 / (a + c + (1 + i))
            value += p * q
            at_c -= p * q * q
            at_a -= p * q * (p + q)
        z = a + (SHIFT + 0.5)
        end = z + c
        (low, low1, low2), (high, high1, _) = _expand_tail(z), _expand_tail(end)
        far = torch.log1p(c / z) / c + torch.where(small, low1 + c / 2 * low2, (high - low) / c)
        flat = low2 / 2 - 1 / (2 * z * z) + 2 * c / (3 * z**3)  # the slope where c is near 0
        value += far
        at_c += torch.where(small, flat, (1 / end + high1 - far) / c)
        at_a += torch.where(small, low2, (high1 - low1) / c) - 1 / (z * end)
        ctx.save_for_backward(at_a, at_c)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):  # type: ignore[no-untyped-def]
        at_a, at_c = ctx.saved_tensors
        return gradient * at_a, gradient * at_c


def _expand_tail(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """psi(z + 1/2) - ln z = 1/(24 z^2) - 7/(960 z^4) + ..., and its first two derivatives."""
    u = 1 / (z * z)
    value, first, second = (torch.zeros_like(z) for _ in range(3))
    terms = (1 / 24, -7 / 960, 31 / 8064, -127 / 30720, 511 / 67584)
    for n, term in reversed(list(enumerate(terms, 1))):
        value = u * (value + term)
        first = u * (first - 2 * n * term)
        second = u * (second + 2 * n * (2 * n + 1) * term)
    return value, first / z, second * u


def tilt(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """(1 - (a + 1) mean_reciprocal(a, c)) / (c - 1), whose pole at c = 1 is removable.

    As c mean_reciprocal(a, c) = 1/(a + 1) + (c - 1) mean_reciprocal(a + 1, c - 1), it is also
    (1 - (a + 1) mean_reciprocal(a + 1, c - 1)) / c: this one for c past a half.
    """
    many = c >= 0.5
    few_c, many_c = torch.where(many, 0.0, c), torch.where(many, c, 1.0)
    below = (1 - (a + 1) * mean_reciprocal(a, few_c)) / (few_c - 1)
    above = (1 - (a + 1) * mean_reciprocal(a + 1, many_c - 1)) / many_c
    return torch.where(many, above, below)


def integral_reciprocal(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The mean of 1/t over (a, a + c), Eq. 11: ln((a + c) / a) / c.

    It is infinite at a = 0, in the first bin that holds anything. Guard: no place weighs more than
    the first, so 1/t is 1 for t below 1. Everything past the first place is Eq. 11.
    """
    return _mean_between(_capped_log, _capped_reciprocal, a, a + c, c)


def _capped_log(x: torch.Tensor) -> torch.Tensor:
    """The integral of the capped reciprocal from 0 to x: x up to the first place, then by ln."""
    return torch.where(x < 1, x, 1 + torch.log(x.clamp(min=1)))


def _capped_reciprocal(x: torch.Tensor) -> torch.Tensor:
    return 1 / x.clamp(min=1)


def share_of_others(g: torch.Tensor, c: torch.Tensor, width: float = 0.5) -> torch.Tensor:
    """(g - 1) / (c - 1) of Eq. 11: the share that is relevant of the other items in a tie.

    It is 1 - (c - g) / (c - 1), so a tie without irrelevant items has no pole at c = 1. Guard for
    the others: within ``width`` of the pole, 1 / (c - 1) is the line (c - 1) / width^2.
    """
    d = c - 1
    inside = d.abs() < width
    return 1 - (c - g) * torch.where(inside, d / width**2, 1 / torch.where(inside, 1.0, d))


def midpoint_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The discount at the middle place, Eq. 66: 1 / log2(a + c/2 + 3/2)."""
    return 1 / torch.log2(a + c / 2 + 1.5)


def integral_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The mean of 1/log2(1 + t) over (a, a + c), Eq. 12: ln 2 (li(a + c + 1) - li(a + 1)) / c.

    The integrand is infinite at t = 0, so at a = 0 the integral diverges. Guard: no place has a
    greater discount than the first, so the integrand is 1 for t below 1. Everything past the first
    place is Eq. 12; the first place weighs 1, as a whole or in parts.
    """
    return _mean_between(_capped_integral, _capped_discount, a, a + c, c)


def _capped_integral(x: torch.Tensor) -> torch.Tensor:
    """The integral of the capped discount from 0 to x: x up to the first place, then by li."""
    first = x < 1
    past = 1 + LN2 * (log_integral(1 + torch.where(first, 1, x)) - LI2)
    return torch.where(first, x, past)


def _capped_discount(x: torch.Tensor) -> torch.Tensor:
    return LN2 / torch.log1p(torch.where(x < 1, 1, x))


def spline_discount(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The mean of 1/log2(1 + t) over the places, exact on whole numbers.

    The cumulative discount is continued by a cubic Hermite spline through its whole values, with
    the mean of neighbouring discounts as slope: one continuous derivative, which is all a gradient
    sees.
    """
    table = cumulative_discount(int(_find_most(a + c)) + 3, a.device)
    return _mean_between(
        lambda x: _spline(table, x), lambda x: _spline_slope(table, x), a, a + c, c
    )


def cumulative_discount(places: int, device: torch.device) -> torch.Tensor:
    """(places + 1,) float64: the sum of 1/log2(1 + t) over t = 1 .. m, for each m."""
    t = torch.arange(2, places + 2, dtype=torch.float64, device=device)
    return torch.nn.functional.pad((1 / torch.log2(t)).cumsum(0), (1, 0))


def _find_most(x: torch.Tensor) -> float:
    """The largest value that is not nan or infinite, for the size of a table."""
    return float(x.detach().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


def _mean_between(total, slope, low, high, c):  # type: ignore[no-untyped-def]
    """(total(high) - total(low)) / c, and the slope in the middle where c is near 0."""
    tiny = c < 1e-4
    mean = (total(high) - total(low)) / torch.where(tiny, 1.0, c)
    return torch.where(tiny, slope((low + high) / 2), mean)


def _find_pieces(table: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    knot = x.detach().nan_to_num().floor().clamp(0, len(table) - 3).long()
    step = table[1:] - table[:-1]
    slope = torch.cat([step[:1], (step[1:] + step[:-1]) / 2])
    return table[knot], step[knot], slope[knot], slope[knot + 1], x - knot


def _spline(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    start, step, left, right, u = _find_pieces(table, x)
    bend = u * (1 - u)
    return start + step * u + bend * ((left - step) * (1 - u) - (right - step) * u)


def _spline_slope(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    _, step, left, right, u = _find_pieces(table, x)
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
    total = torch.zeros_like(u)
    for term in reversed(LI_TERMS):
        total = (total + term) * u
    return EULER + torch.log(u) + total
