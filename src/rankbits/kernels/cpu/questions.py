"""Exact search of codes by questions of integer planes: the nearest k.

As for Hamming distances (``codes.py``), a run of codes is first asked whether it holds anything
near enough, and only such a run is looked at item by item.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.cpu.candidates import finish, offer, share_search
from rankbits.kernels.cpu.counting import read_only
from rankbits.kernels.cpu.lengths import lengths, sums_of_rows
from rankbits.kernels.cpu.planes import any_below, plane_sums
from rankbits.kernels.cpu.weights import weights_of_rows, weights_topk

__all__ = [
    "lengths",
    "planes_topk",
    "scaled_planes_topk",
    "sums_of_rows",
    "weights_of_rows",
    "weights_topk",
]

BLOCK_BYTES = 32_768  # of the database, reused by every question of a tile from the nearest cache


@njit(nogil=True, cache=True)
def _planes_tile(planes, signs, x, start, stop, k, run, block, ids, out):
    many, keep = planes.shape[0], min(k, stop - start)
    room = min(k + max(k, 16), stop - start)
    found = np.empty((many, room), np.float64)
    rows = np.empty((many, room), np.int64)
    fill = np.zeros(many, np.int64)
    limit = np.full(many, np.float64(1 << 40))
    size = run.shape[0]
    for b in range(start, stop, block):
        last = min(b + block, stop)
        for i in range(many):
            for s in range(b, last, size):
                e = min(s + size, last)
                if any_below(planes[i], signs[i], x, s, e, np.int64(limit[i]), run):
                    plane_sums(planes[i], signs[i], x, s, e, run)
                    fill[i], limit[i] = offer(
                        run[: e - s], s, limit[i], fill[i], keep, found[i], rows[i]
                    )
    finish(found, rows, fill, keep, ids, out)


@njit(nogil=True, cache=True)
def _scale(run, slope, base, inverses, out):
    for j in range(out.shape[0]):
        out[j] = (slope * np.float32(run[j]) - base) * inverses[j]


@njit(nogil=True, cache=True)
def _scaled_tile(planes, signs, x, start, stop, k, run, block, slopes, bases, inverses, ids, out):
    many, keep = planes.shape[0], min(k, stop - start)
    room = min(k + max(k, 16), stop - start)
    found = np.empty((many, room), np.float64)
    rows = np.empty((many, room), np.int64)
    fill = np.zeros(many, np.int64)
    limit = np.full(many, np.inf)
    size = run.shape[0]
    scaled = np.empty(size, np.float32)
    for b in range(start, stop, block):
        last = min(b + block, stop)
        for i in range(many):
            for s in range(b, last, size):
                e = min(s + size, last)
                plane_sums(planes[i], signs[i], x, s, e, run)
                _scale(run[: e - s], slopes[i], bases[i], inverses[s:e], scaled[: e - s])
                fill[i], limit[i] = offer(
                    scaled[: e - s], s, limit[i], fill[i], keep, found[i], rows[i]
                )
    finish(found, rows, fill, keep, ids, out)


def _run_and_block(planes: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, int]:
    size = max(256, min(1024, 4096 // len(words)))
    most = 64 * len(words) << planes.shape[1]
    run = np.empty(size, np.uint16 if most < 1 << 16 else np.uint32)
    return run, max(size, BLOCK_BYTES // 8 // len(words))


def _in_threes(planes: np.ndarray) -> np.ndarray:
    missing = -planes.shape[1] % 3
    if not missing:
        return planes
    return np.ascontiguousarray(np.pad(planes, ((0, 0), (0, missing), (0, 0))))


def planes_topk(
    planes: np.ndarray, signs: np.ndarray, words: np.ndarray, k: int, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    planes, signs, words = read_only(_in_threes(planes), signs, words)

    def work(start, stop, tile, ids, found):  # type: ignore[no-untyped-def]
        run, block = _run_and_block(planes, words)
        _planes_tile(planes[tile], signs[tile], words, start, stop, k, run, block, ids, found)

    return share_search(work, len(planes), words.shape[1], k, np.int64)


def scaled_planes_topk(
    planes: np.ndarray,
    signs: np.ndarray,
    words: np.ndarray,
    k: int,
    bits: int,
    slopes: np.ndarray,
    bases: np.ndarray,
    inverses: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    planes, signs, words, inverses = read_only(_in_threes(planes), signs, words, inverses)

    def work(start, stop, tile, ids, found):  # type: ignore[no-untyped-def]
        run, block = _run_and_block(planes, words)
        scale = slopes[tile], bases[tile], inverses
        _scaled_tile(
            planes[tile], signs[tile], words, start, stop, k, run, block, *scale, ids, found
        )

    return share_search(work, len(planes), words.shape[1], k, np.float32)
