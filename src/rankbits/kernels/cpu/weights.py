"""Search of codes by float weights, as a question's distance is defined.

For each byte of a code, a table holds what its 256 values add to the sum. They are added in
float64, byte by byte, so that a code's distance has the same digits wherever it is computed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.candidates import LARGEST, finish, offer, share_search
from rankbits.kernels.cpu.counting import cut_tiles, make_read_only
from rankbits.kernels.cpu.popcount import popcount

RUN = 1024


@njit(nogil=True, cache=True)
def _make_tables(weights):
    """float64 (bytes, 256): for each byte of a code the sum of |weights| where signs differ."""
    bits = weights.shape[0]
    out = np.zeros((-(-bits // 8), 256), np.float64)
    for place in range(out.shape[0]):
        agree, above = 0, np.zeros(8, np.float64)
        for i in range(8):
            if place * 8 + i < bits:
                above[7 - i] = abs(weights[place * 8 + i])
                agree |= (weights[place * 8 + i] > 0) << (7 - i)
        for value in range(1, 256):
            lowest = popcount(np.uint64((value & -value) - 1))
            out[place, value] = out[place, value & (value - 1)] + above[lowest]
        out[place] = out[place][np.arange(256) ^ agree]
    return out


@njit(nogil=True, cache=True)
def _weigh(tables, x, row):
    """The sum of one code, float64: byte by byte, always in the same order."""
    total = 0.0
    for place in range(tables.shape[0]):
        value = (x[place // 8, row] >> np.uint64(8 * (place % 8))) & np.uint64(255)
        total += tables[place, value]
    return total


@njit(nogil=True, cache=True)
def _search_tile(weights, x, start, stop, k, bases, inverses, ids, out):
    keep = min(k, stop - start)
    room = min(k + max(k, 16), stop - start)
    distances = np.empty((weights.shape[0], room), np.float64)
    rows = np.empty((weights.shape[0], room), np.int64)
    fill = np.zeros(weights.shape[0], np.int64)
    run = np.empty(RUN, np.float32)
    for i in range(weights.shape[0]):
        tables, near = _make_tables(weights[i]), np.inf
        for s in range(start, stop, RUN):
            e = min(s + RUN, stop)
            for j in range(s, e):
                run[j - s] = _scale_sum(_weigh(tables, x, j), bases[i], inverses, j)
            fill[i], near = offer(run[: e - s], s, near, fill[i], keep, distances[i], rows[i])
    finish(distances, rows, fill, keep, ids, out)


@njit(nogil=True, cache=True)
def _scale_sum(total, base, inverses, row):
    """The float32 distance of a row from its sum; with ``inverses``, scaled."""
    far = (2 * total - base) * inverses[row] if len(inverses) else total
    return np.float32(min(far, LARGEST))


@njit(nogil=True, cache=True)
def _weigh_tile(weights, x, rows, bases, inverses, out):
    for i in range(weights.shape[0]):
        tables = _make_tables(weights[i])
        for j in range(rows.shape[1]):
            row = rows[i, j]
            out[i, j] = _scale_sum(_weigh(tables, x, row), bases[i], inverses, row)


def weights_topk(
    weights: np.ndarray,
    words: np.ndarray,
    k: int,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    factors = np.empty(0, np.float32) if inverses is None else inverses
    weights, words, factors = make_read_only(weights, words, factors)

    def work(start, stop, tile, ids, distances):  # type: ignore[no-untyped-def]
        _search_tile(weights[tile], words, start, stop, k, bases[tile], factors, ids, distances)

    return share_search(work, len(weights), words.shape[1], k, np.float32)


def weigh_rows(
    weights: np.ndarray,
    words: np.ndarray,
    rows: np.ndarray,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> np.ndarray:
    factors = np.empty(0, np.float32) if inverses is None else inverses
    weights, words, factors = make_read_only(weights, words, factors)
    rows, out = np.ascontiguousarray(rows, np.int64), np.empty(rows.shape, np.float32)
    run_tasks(
        lambda tile: _weigh_tile(weights[tile], words, rows[tile], bases[tile], factors, out[tile]),
        cut_tiles(len(weights)),
    )
    return out
