"""Exact search over packed codes: the nearest k and all within a radius.

The search first asks whether a run of codes holds anything near enough, and goes through it item by
item only then, which is rare after the first few thousand items. Candidates go
on a short list in the order they come. A stable counting sort cuts a full list back to k, so that
equal distances stay in the order of their rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.candidates import share_search
from rankbits.kernels.cpu.counting import (
    JOINT,
    RUN,
    count_classes,
    count_distances,
    count_grades,
    count_shared,
    cut_tiles,
    make_read_only,
)
from rankbits.kernels.cpu.popcount import any_nearer, find_least, measure_distances

__all__ = [
    "count_classes",
    "count_grades",
    "count_shared",
    "hamming",
    "hamming_topk",
    "hamming_within",
]

BLOCK_BYTES = 32_768  # of the database, which stay in the first-level cache for a tile of queries
FEW = 128  # a database of at most this many times k is counted before it is searched
PIECE = 128  # distances looked at together within a run that holds something near


@njit(nogil=True, cache=True)
def _sort_stable(distances, rows, fill, keep, scratch):
    """Order the first ``fill`` candidates by distance, equal ones as they stood; keep ``keep``."""
    begin, spare_distances, spare_rows = scratch
    begin[:] = 0
    for j in range(fill):
        begin[distances[j] + 1] += 1
    for d in range(1, begin.shape[0]):
        begin[d] += begin[d - 1]
    for j in range(fill):
        place = begin[distances[j]]
        begin[distances[j]] += 1
        if place < keep:
            spare_distances[place] = distances[j]
            spare_rows[place] = rows[j]
    kept = min(fill, keep)
    for j in range(kept):
        distances[j] = spare_distances[j]
        rows[j] = spare_rows[j]
    return kept


@njit(nogil=True, cache=True)
def _find_limits(queries, x, start, stop, keep, run, limit):
    """Set the limit of each query just above its k-th distance, which its histogram gives."""
    levels = limit[0]
    joint = np.zeros(JOINT, np.uint16)
    tables = np.zeros((4, levels), np.uint32)
    short_run = np.empty(RUN, np.uint8)
    for i in range(queries.shape[0]):
        counts = np.zeros(levels, np.int64)
        count_distances(queries[i], x, start, stop, short_run, run, joint, tables, counts)
        limit[i] = 0
        reached = 0
        while reached < keep:
            reached += counts[limit[i]]
            limit[i] += 1


@njit(nogil=True, cache=True)
def _search_tile(queries, x, start, stop, k, bits, run, block, ids, out):
    many = queries.shape[0]
    room = min(k + max(k, 16), stop - start)
    keep = min(k, stop - start)
    distances = np.empty((many, room), np.int32)
    rows = np.empty((many, room), np.int64)
    fill = np.zeros(many, np.int64)
    limit = np.full(many, bits + 1, np.int64)
    scratch = np.empty(bits + 2, np.int64), np.empty(keep, np.int32), np.empty(keep, np.int64)
    size = run.shape[0]
    if keep < stop - start <= FEW * k:
        _find_limits(queries, x, start, stop, keep, run, limit)

    for b in range(start, stop, block):
        last = min(b + block, stop)
        for i in range(many):
            near, filled = limit[i], fill[i]
            for s in range(b, last, size):
                e = min(s + size, last)
                if not any_nearer(queries[i], x, s, e, near, run):
                    continue
                measure_distances(queries[i], x, s, e, run)
                for a in range(0, e - s, PIECE):
                    piece = run[a : min(a + PIECE, e - s)]
                    if find_least(piece) >= near:
                        continue
                    for j in range(piece.shape[0]):
                        if piece[j] < near:
                            distances[i, filled] = piece[j]
                            rows[i, filled] = s + a + j
                            filled += 1
                            if filled == room and room > keep:
                                filled = _sort_stable(distances[i], rows[i], room, keep, scratch)
                                near = distances[i, keep - 1]
            limit[i], fill[i] = near, filled
    for i in range(many):
        _sort_stable(distances[i], rows[i], fill[i], keep, scratch)
        ids[i, :keep] = rows[i, :keep]
        out[i, :keep] = distances[i, :keep]


@njit(nogil=True, cache=True)
def _count_within(queries, x, radius, run, counts):
    """Add to ``counts`` (Q,) how many rows lie within the radius."""
    size = run.shape[0]
    for s in range(0, x.shape[1], size):
        e = min(s + size, x.shape[1])
        for i in range(queries.shape[0]):
            measure_distances(queries[i], x, s, e, run)
            near = 0
            for j in range(e - s):
                near += run[j] <= radius
            counts[i] += near


@njit(nogil=True, cache=True)
def _collect(query, x, radius, bits, run, ids, out):
    """Write the rows within the radius and their distances, by distance, then by row."""
    size = run.shape[0]
    fill = 0
    for s in range(0, x.shape[1], size):
        e = min(s + size, x.shape[1])
        if not any_nearer(query, x, s, e, radius + 1, run):
            continue
        measure_distances(query, x, s, e, run)
        for j in range(e - s):
            if run[j] <= radius:
                out[fill] = run[j]
                ids[fill] = s + j
                fill += 1
    scratch = np.empty(bits + 2, np.int64), np.empty(fill, np.int32), np.empty(fill, np.int64)
    _sort_stable(out, ids, fill, fill, scratch)


@njit(nogil=True, cache=True)
def _measure_tile(queries, x, out):
    for i in range(queries.shape[0]):
        measure_distances(queries[i], x, 0, x.shape[1], out[i])


def _make_run(words: np.ndarray, size: int) -> np.ndarray:
    """Room for ``size`` distances of codes with this many words."""
    return np.empty(size, np.uint16 if len(words) < 1024 else np.uint32)


def hamming(queries: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
    queries, words = make_read_only(queries, words)
    run_tasks(lambda tile: _measure_tile(queries[tile], words, out[tile]), cut_tiles(len(queries)))


def hamming_topk(
    queries: np.ndarray, words: np.ndarray, k: int, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    queries, words = make_read_only(queries, words)
    size = max(256, min(1024, 4096 // len(words)))
    block = max(size, BLOCK_BYTES // 8 // len(words))

    def work(start, stop, tile, ids, distances):  # type: ignore[no-untyped-def]
        run = _make_run(words, size)
        _search_tile(queries[tile], words, start, stop, k, bits, run, block, ids, distances)

    return share_search(work, len(queries), words.shape[1], k, np.int32)


def hamming_within(
    queries: np.ndarray, words: np.ndarray, radius: int, bits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    queries, words = make_read_only(queries, words)
    counts = np.zeros(len(queries), np.int64)
    size = max(256, 4096 // len(words))

    def count(tile: slice) -> None:
        _count_within(queries[tile], words, radius, _make_run(words, size), counts[tile])

    run_tasks(count, cut_tiles(len(queries)))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = np.empty(offsets[-1], np.int64)
    distances = np.empty(offsets[-1], np.int32)

    def work(i: int) -> None:
        span = slice(offsets[i], offsets[i + 1])
        if counts[i]:
            run = _make_run(words, size)
            _collect(queries[i], words, radius, bits, run, ids[span], distances[span])

    run_tasks(work, range(len(queries)))
    return offsets, ids, distances
