"""Exact search of codes by questions of integer planes: the nearest k.

As for Hamming distances (``codes.py``), the search first asks whether a run of codes holds anything
near enough, and goes through it item by item only then.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.cpu.candidates import LARGEST, finish, offer, share_search
from rankbits.kernels.cpu.counting import make_read_only
from rankbits.kernels.cpu.lengths import measure_lengths, sum_rows
from rankbits.kernels.cpu.planes import any_below, sum_planes
from rankbits.kernels.cpu.weights import weigh_rows, weights_topk

__all__ = ["measure_lengths", "planes_topk", "sum_rows", "weigh_rows", "weights_topk"]

BLOCK_BYTES = 32_768  # of the database, which stay in the first-level cache for a tile


@njit(nogil=True, cache=True)
def _scale(run, slope, base, inverses, out):
    for j in range(out.shape[0]):
        out[j] = min((slope * np.float32(run[j]) - base) * inverses[j], LARGEST)


@njit(nogil=True, cache=True)
def _search_tile(planes, signs, x, start, stop, k, run, block, slopes, bases, inverses, ids, out):
    """Search rows start to stop; without ``inverses`` the sums themselves are the distances."""
    many, keep = planes.shape[0], min(k, stop - start)
    room = min(k + max(k, 16), stop - start)
    distances = np.empty((many, room), np.float64)
    rows = np.empty((many, room), np.int64)
    fill = np.zeros(many, np.int64)
    plain, size = inverses.shape[0] == 0, run.shape[0]
    limit = np.full(many, np.float64(1 << 40) if plain else np.inf)
    scaled = np.empty(0 if plain else size, np.float32)
    for b in range(start, stop, block):
        last = min(b + block, stop)
        for i in range(many):
            p, s, near, filled = planes[i], signs[i], limit[i], fill[i]
            for first in range(b, last, size):
                end = min(first + size, last)
                part = run[: end - first]
                if plain:
                    if not any_below(p, s, x, first, end, np.int64(near), run):
                        continue
                    sum_planes(p, s, x, first, end, run)
                    filled, near = offer(part, first, near, filled, keep, distances[i], rows[i])
                else:
                    sum_planes(p, s, x, first, end, run)
                    far = scaled[: end - first]
                    _scale(part, slopes[i], bases[i], inverses[first:end], far)
                    filled, near = offer(far, first, near, filled, keep, distances[i], rows[i])
            limit[i], fill[i] = near, filled
    finish(distances, rows, fill, keep, ids, out)


def planes_topk(
    planes: np.ndarray,
    signs: np.ndarray,
    words: np.ndarray,
    k: int,
    bits: int,
    scale: tuple[np.ndarray, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    slopes, bases, inverses = scale or (np.empty(0, np.float32),) * 3
    missing = -planes.shape[1] % 3
    planes = np.pad(planes, ((0, 0), (0, missing), (0, 0)))
    planes, signs, words, inverses = make_read_only(planes, signs, words, inverses)
    size = max(256, min(1024, 4096 // len(words)))
    block = max(size, BLOCK_BYTES // 8 // len(words))
    kind = np.uint16 if 64 * len(words) << planes.shape[1] < 1 << 16 else np.uint32

    def work(start, stop, tile, ids, distances):  # type: ignore[no-untyped-def]
        _search_tile(
            planes[tile], signs[tile], words, start, stop, k, np.empty(size, kind), block,
            slopes[tile], bases[tile], inverses, ids, distances,
        )  # fmt: skip

    kind_out = np.int64 if scale is None else np.float32
    return share_search(work, len(planes), words.shape[1], k, kind_out)
