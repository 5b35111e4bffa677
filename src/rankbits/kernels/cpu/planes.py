"""Runs of plane sums: sum_p 2^p popcount(plane_p & (code ^ sign)), three planes at a time.

The functions take slices, never offsets, so that LLVM vectorises (see ``popcount.py``). ``p`` is
(3, W) and ``s`` (W,) of one question, ``x`` (W, n) the codes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.cpu.popcount import popcount


@njit(nogil=True, cache=True, inline="always")
def _sum_three(a, b, c, s, x):
    """int64: the sum over three planes of one word of one code."""
    differing = x ^ s
    low = np.int64(popcount(a & differing))
    middle = np.int64(popcount(b & differing))
    high = np.int64(popcount(c & differing))
    return low + (middle << 1) + (high << 2)


@njit(nogil=True, cache=True)
def _add1(p, s, x0, shift, out):
    a0, b0, c0, s0 = p[0, 0], p[1, 0], p[2, 0], s[0]
    for j in range(out.shape[0]):
        out[j] += _sum_three(a0, b0, c0, s0, x0[j]) << shift


@njit(nogil=True, cache=True)
def _add2(p, s, x0, x1, shift, out):
    a0, b0, c0, s0 = p[0, 0], p[1, 0], p[2, 0], s[0]
    a1, b1, c1, s1 = p[0, 1], p[1, 1], p[2, 1], s[1]
    for j in range(out.shape[0]):
        out[j] += (_sum_three(a0, b0, c0, s0, x0[j]) + _sum_three(a1, b1, c1, s1, x1[j])) << shift


@njit(nogil=True, cache=True, inline="always")
def _count_four(a, b, c, d, x, y, z, w):
    """Count the ones of four words in one plane."""
    return np.int64(popcount(a & x) + popcount(b & y) + (popcount(c & z) + popcount(d & w)))


@njit(nogil=True, cache=True)
def _add4(p, s, x0, x1, x2, x3, shift, out):
    a0, a1, a2, a3 = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    b0, b1, b2, b3 = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    c0, c1, c2, c3 = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    for j in range(out.shape[0]):
        d0, d1, d2, d3 = x0[j] ^ s0, x1[j] ^ s1, x2[j] ^ s2, x3[j] ^ s3
        high = _count_four(c0, c1, c2, c3, d0, d1, d2, d3) << 1
        middle = _count_four(b0, b1, b2, b3, d0, d1, d2, d3)
        total = ((high + middle) << 1) + _count_four(a0, a1, a2, a3, d0, d1, d2, d3)
        out[j] += total << shift


@njit(nogil=True, cache=True)
def _nearer1(p, s, x0, limit):
    a0, b0, c0, s0 = p[0, 0], p[1, 0], p[2, 0], s[0]
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        signs |= _sum_three(a0, b0, c0, s0, x0[j]) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def _nearer2(p, s, x0, x1, limit):
    a0, b0, c0, s0 = p[0, 0], p[1, 0], p[2, 0], s[0]
    a1, b1, c1, s1 = p[0, 1], p[1, 1], p[2, 1], s[1]
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        signs |= _sum_three(a0, b0, c0, s0, x0[j]) + _sum_three(a1, b1, c1, s1, x1[j]) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def _nearer4(p, s, x0, x1, x2, x3, limit):
    a0, a1, a2, a3 = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    b0, b1, b2, b3 = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    c0, c1, c2, c3 = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        d0, d1, d2, d3 = x0[j] ^ s0, x1[j] ^ s1, x2[j] ^ s2, x3[j] ^ s3
        high = _count_four(c0, c1, c2, c3, d0, d1, d2, d3) << 1
        middle = _count_four(b0, b1, b2, b3, d0, d1, d2, d3)
        signs |= ((high + middle) << 1) + _count_four(a0, a1, a2, a3, d0, d1, d2, d3) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def sum_planes(p, s, x, start, stop, out):
    """Write the sums of question p (P, W), s (W,) to x[:, start:stop] into ``out``; P must be a
    multiple of 3."""
    out = out[: stop - start]
    out[:] = 0
    count = s.shape[0]
    for group in range(0, p.shape[0], 3):
        three = p[group : group + 3]
        w = 0
        while w + 4 <= count:
            _add4(
                three[:, w : w + 4], s[w : w + 4],
                x[w, start:stop], x[w + 1, start:stop], x[w + 2, start:stop],
                x[w + 3, start:stop], group, out,
            )  # fmt: skip
            w += 4
        if w + 2 <= count:
            parts = three[:, w : w + 2], s[w : w + 2], x[w, start:stop], x[w + 1, start:stop]
            _add2(*parts, group, out)
            w += 2
        if w < count:
            _add1(three[:, w : w + 1], s[w : w + 1], x[w, start:stop], group, out)


@njit(nogil=True, cache=True)
def any_below(p, s, x, start, stop, limit, run):
    """Whether the sum of any code in x[:, start:stop] is below ``limit``.

    The common widths neither store sums nor take a minimum: they collect the sign bits of
    (sum - limit).
    """
    count = s.shape[0]
    if p.shape[0] == 3 and count == 4:
        return _nearer4(
            p, s, x[0, start:stop], x[1, start:stop], x[2, start:stop], x[3, start:stop], limit
        )
    if p.shape[0] == 3 and count == 2:
        return _nearer2(p, s, x[0, start:stop], x[1, start:stop], limit)
    if p.shape[0] == 3 and count == 1:
        return _nearer1(p, s, x[0, start:stop], limit)
    sum_planes(p, s, x, start, stop, run)
    return any_less(run[: stop - start], limit)


@njit(nogil=True, cache=True)
def any_less(values, limit):
    hits = np.int64(0)
    for j in range(values.shape[0]):
        hits |= np.int64(values[j] < limit)
    return hits > 0
