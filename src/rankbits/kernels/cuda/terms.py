"""What a bin adds to average precision, and its derivatives, in Triton: relaxed and exact forms.

The closed forms are those of ``kernels/cpu/quality.py``. ``g`` of the ``c`` items in the bin are
relevant; ``a`` items, ``p`` of them relevant, lie before it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _expand_tail(z):
    # constants are written in the formulas: Triton rounds a constant with a name to float32
    u = 1 / (z * z)
    value = 31.0 / 8064 + u * (-127.0 / 30720 + u * (511.0 / 67584))
    value = u * (1.0 / 24 + u * (-7.0 / 960 + u * value))
    first = 31.0 / 1344 + u * (-127.0 / 3840 + u * (2555.0 / 33792))
    first = u * (1.0 / 12 + u * (-7.0 / 240 + u * first))
    second = 31.0 / 192 + u * (-381.0 / 1280 + u * (2555.0 / 3072))
    second = u * (1.0 / 4 + u * (-7.0 / 48 + u * second))
    return value, -first / z, second * u


@triton.jit
def _log_mean(z, c):
    """ln(1 + c / z) / c, by its series where c / z is small."""
    r = c / z
    near = tl.abs(r) < 1e-3
    series = 1 - r * (0.5 - r * (1.0 / 3 - r * (0.25 - r * (0.2 - r * (1.0 / 6)))))
    return tl.where(near, series / z, tl.log(1 + tl.where(near, 1.0, r)) / tl.where(near, 1.0, c))


@triton.jit
def _mean_reciprocal(a, c):
    c = tl.where(tl.abs(c) < 1e-12, 1e-12, c)
    value = tl.zeros_like(a)
    at_a = tl.zeros_like(a)
    at_c = tl.zeros_like(a)
    for i in range(8):
        p = 1 / (a + (1 + i))
        q = 1 / (a + c + (1 + i))
        value += p * q
        at_c -= p * q * q
        at_a -= p * q * (p + q)
    z = a + 8.5
    end = z + c
    low, low1, low2 = _expand_tail(z)
    high, high1, _ = _expand_tail(end)
    small = tl.abs(c) < 1e-4
    far = _log_mean(z, c) + tl.where(small, low1 + c / 2 * low2, (high - low) / c)
    flat = low2 / 2 - 1 / (2 * z * z) + 2 * c / (3 * z * z * z)
    at_c += tl.where(small, flat, (1 / end + high1 - far) / c)
    at_a += tl.where(small, low2, (high1 - low1) / c) - 1 / (z * end)
    return value + far, at_a, at_c


@triton.jit
def exact_ap(g, c, p, a):
    many = c >= 0.5
    few = c < 0.5
    # where c is past a half everything follows from R(a + 1, c - 1), which has no pole
    r, r_a, r_c = _mean_reciprocal(tl.where(few, a, a + 1), tl.where(few, c, c - 1))
    first = 1 / (a + 1)
    whole = tl.where(many, c, 1.0)
    mean = tl.where(many, (first + (c - 1) * r) / whole, r)
    mean_a = tl.where(many, ((c - 1) * r_a - first * first) / whole, r_a)
    mean_c = tl.where(many, (r + (c - 1) * r_c - mean) / whole, r_c)
    below = tl.where(many, c, c - 1)
    tilt = (1 - (a + 1) * r) / below
    tilt_a = -(r + (a + 1) * r_a) / below
    tilt_c = (-(a + 1) * r_c - tilt) / below
    value = g * ((g - 1) * tilt + (p + 1) * mean)
    by_g = (2 * g - 1) * tilt + (p + 1) * mean
    by_c = g * ((g - 1) * tilt_c + (p + 1) * mean_c)
    by_a = g * ((g - 1) * tilt_a + (p + 1) * mean_a)
    return value, by_g, by_c, g * mean, by_a


@triton.jit
def _integral_reciprocal(a, c):
    """The mean of min(1, 1/t) over (a, a + c), and its derivatives by a and c."""
    end = a + c
    tiny = c < 1e-4
    items = tl.where(tiny, 1.0, c)
    past = tl.where(a < 1, 1.0, a)
    stop = tl.where(end < 1, 1.0, end)
    # from a place past the first
    r = c / past
    near = r < 1e-3
    mean = _log_mean(past, c)
    series = -0.5 + r * (2.0 / 3 - r * (0.75 - r * (0.8 - r * (5.0 / 6))))
    mean_c = tl.where(near, series / (past * past), (1 / stop - mean) / items)
    mean_a = -1 / (past * stop)
    # from within the first place to past it; a bin that is nearly empty has the value in its middle
    middle = tl.where(a + c / 2 < 1, 1.0, a + c / 2)
    bend = tl.where(a + c / 2 > 1, -1 / (middle * middle), 0.0)
    across = tl.where(tiny, 1 / middle, (1 - a + tl.log(stop)) / items)
    across_a = tl.where(tiny, bend, (1 / stop - 1) / items)
    across_c = tl.where(tiny, bend / 2, (1 / stop - across) / items)
    inside = end <= 1
    first = a < 1
    mean = tl.where(first, tl.where(inside, 1.0, across), mean)
    mean_a = tl.where(first, tl.where(inside, 0.0, across_a), mean_a)
    mean_c = tl.where(first, tl.where(inside, 0.0, across_c), mean_c)
    return mean, mean_a, mean_c


@triton.jit
def relaxed_ap(g, c, p, a):
    d = c - 1
    inside = tl.abs(d) < 0.5
    far = tl.where(inside, 1.0, d)
    pole = tl.where(inside, d * 4, 1 / far)
    pole_c = tl.where(inside, 4.0, -1 / (far * far))
    share = 1 - (c - g) * pole
    share_c = -pole - (c - g) * pole_c
    mean, mean_a, mean_c = _integral_reciprocal(a, c)
    inner = p + 1 - share * (a + 1)
    each = share + inner * mean
    left = 1 - (a + 1) * mean
    by_c = g * (share_c * left + inner * mean_c)
    return g * each, each + g * pole * left, by_c, g * mean, g * (inner * mean_a - share * mean)
