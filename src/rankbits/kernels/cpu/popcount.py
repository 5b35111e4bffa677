"""Runs of Hamming distances: the innermost loops, over contiguous slices so that LLVM vectorises.

The functions are small and take slices, never offsets: with ``x[s + j]`` inside the loop LLVM
cannot prove that accesses are contiguous (5 to 12 times slower when tried).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic


@intrinsic
def popcount(context: Any, value: Any) -> Any:
    """Count the ones of a word (``llvm.ctpop``), in functions that ask for the widest vectors.

    LLVM prefers 256-bit vectors on most x86 chips even where 512-bit ones exist; for these loops
    512 is up to twice as fast. A function attribute asks for them. Llvmlite does not list it, so it
    is added to the underlying set. Other chips ignore it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        attributes = builder.function.attributes
        if isinstance(attributes, set):
            set.add(attributes, '"prefer-vector-width"="512"')
        return builder.ctpop(arguments[0])

    return value(value), generate


@njit(nogil=True, cache=True)
def _set1(q0, x0, out):
    for j in range(out.shape[0]):
        out[j] = popcount(q0 ^ x0[j])


@njit(nogil=True, cache=True)
def _set2(q0, q1, x0, x1, out):
    for j in range(out.shape[0]):
        out[j] = popcount(q0 ^ x0[j]) + popcount(q1 ^ x1[j])


@njit(nogil=True, cache=True)
def _set4(q0, q1, q2, q3, x0, x1, x2, x3, out):
    for j in range(out.shape[0]):
        out[j] = (
            popcount(q0 ^ x0[j])
            + popcount(q1 ^ x1[j])
            + popcount(q2 ^ x2[j])
            + popcount(q3 ^ x3[j])
        )


@njit(nogil=True, cache=True)
def _add1(q0, x0, out):
    for j in range(out.shape[0]):
        out[j] += popcount(q0 ^ x0[j])


@njit(nogil=True, cache=True)
def _add4(q0, q1, q2, q3, x0, x1, x2, x3, out):
    for j in range(out.shape[0]):
        out[j] += (
            popcount(q0 ^ x0[j])
            + popcount(q1 ^ x1[j])
            + popcount(q2 ^ x2[j])
            + popcount(q3 ^ x3[j])
        )


@njit(nogil=True, cache=True, inline="always")
def measure_distances(q, x, start, stop, out):
    """Write the Hamming distances of query q (W,) to x[:, start:stop], x (W, n), into ``out``."""
    count = q.shape[0]
    out = out[: stop - start]
    if count == 1:
        _set1(q[0], x[0, start:stop], out)
        return
    if count < 4:
        _set2(q[0], q[1], x[0, start:stop], x[1, start:stop], out)
        if count == 3:
            _add1(q[2], x[2, start:stop], out)
        return
    _set4(
        q[0], q[1], q[2], q[3],
        x[0, start:stop], x[1, start:stop], x[2, start:stop], x[3, start:stop], out,
    )  # fmt: skip
    w = 4
    while w + 4 <= count:
        _add4(
            q[w], q[w + 1], q[w + 2], q[w + 3],
            x[w, start:stop], x[w + 1, start:stop], x[w + 2, start:stop], x[w + 3, start:stop], out,
        )  # fmt: skip
        w += 4
    while w < count:
        _add1(q[w], x[w, start:stop], out)
        w += 1


@njit(nogil=True, cache=True)
def _nearer1(q0, x0, limit):
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        signs |= np.int64(popcount(q0 ^ x0[j])) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def _nearer2(q0, q1, x0, x1, limit):
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        signs |= np.int64(popcount(q0 ^ x0[j]) + popcount(q1 ^ x1[j])) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def _nearer4(q0, q1, q2, q3, x0, x1, x2, x3, limit):
    signs = np.int64(0)
    for j in range(x0.shape[0]):
        near = popcount(q0 ^ x0[j]) + popcount(q1 ^ x1[j])
        far = popcount(q2 ^ x2[j]) + popcount(q3 ^ x3[j])
        signs |= np.int64(near + far) - limit
    return signs < 0


@njit(nogil=True, cache=True)
def find_least(values):
    least = values[0]
    for j in range(values.shape[0]):
        least = min(least, values[j])
    return least


@njit(nogil=True, cache=True, inline="always")
def any_nearer(q, x, start, stop, limit, run):
    """Whether any code in x[:, start:stop] is nearer to q than ``limit``.

    The common widths neither store distances nor take a minimum, whose vector instruction is slow:
    they collect the sign bits of (distance - limit).
    """
    count = q.shape[0]
    if count == 1:
        return _nearer1(q[0], x[0, start:stop], limit)
    if count == 2:
        return _nearer2(q[0], q[1], x[0, start:stop], x[1, start:stop], limit)
    if count == 4:
        return _nearer4(
            q[0], q[1], q[2], q[3],
            x[0, start:stop], x[1, start:stop], x[2, start:stop], x[3, start:stop], limit,
        )  # fmt: skip
    measure_distances(q, x, start, stop, run)
    return find_least(run[: stop - start]) < limit


@njit(nogil=True, cache=True)
def _shared1(q0, x0, most, out):
    for j in range(out.shape[0]):
        out[j] = min(popcount(q0 & x0[j]), most)


@njit(nogil=True, cache=True)
def _shared_add(q0, x0, most, out):
    for j in range(out.shape[0]):
        out[j] = min(out[j] + popcount(q0 & x0[j]), most)


@njit(nogil=True, cache=True, inline="always")
def count_common(q, x, start, stop, most, out):
    """Write how many members set q (L,) shares with x[:, start:stop], at most ``most``, into
    ``out``."""
    limit = np.uint64(most)
    _shared1(q[0], x[0, start:stop], limit, out[: stop - start])
    for w in range(1, q.shape[0]):
        _shared_add(q[w], x[w, start:stop], limit, out[: stop - start])
