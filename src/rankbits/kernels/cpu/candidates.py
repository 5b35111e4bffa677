"""The k nearest out of runs of distances: a short list in the order candidates come, cut back to k
by a stable sort when it is full, so that equal distances stay in the order of their rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks, threads
from rankbits.kernels.cpu.counting import tiles
from rankbits.kernels.cpu.planes import any_less

LARGEST = np.float32(np.finfo(np.float32).max)  # a distance past it is as far
PIECE = 64  # distances looked at together within a run that holds something near
SPLIT = 100_000  # rows worth a thread of their own when there are fewer questions than threads


@njit(nogil=True, cache=True)
def _cut(found, rows, fill, keep):
    """Order the first ``fill`` candidates by distance, equal ones as they stood; keep ``keep``."""
    order = np.argsort(found[:fill], kind="mergesort")[:keep]
    found[: order.shape[0]] = found[order]
    rows[: order.shape[0]] = rows[order]
    return order.shape[0]


@njit(nogil=True, cache=True)
def offer(run, first, near, filled, keep, found, rows):
    """Put what is nearer than ``near`` on the list; how full it is, and what is near from now."""
    room = found.shape[0]
    for a in range(0, run.shape[0], PIECE):
        piece = run[a : min(a + PIECE, run.shape[0])]
        if not any_less(piece, near):
            continue
        for j in range(piece.shape[0]):
            if piece[j] < near:
                found[filled] = piece[j]
                rows[filled] = first + a + j
                filled += 1
                if filled == room and room > keep:
                    filled = _cut(found, rows, room, keep)
                    near = found[keep - 1]
    return filled, near


@njit(nogil=True, cache=True)
def finish(found, rows, fill, keep, ids, out):
    for i in range(found.shape[0]):
        _cut(found[i], rows[i], fill[i], keep)
        ids[i, :keep] = rows[i, :keep]
        out[i, :keep] = found[i, :keep]


def share_search(
    work: Callable[[int, int, slice, np.ndarray, np.ndarray], None],
    questions: int,
    rows: int,
    k: int,
    kind: type,
) -> tuple[np.ndarray, np.ndarray]:
    """Share questions, or rows where questions are few, among threads, and merge what they find:
    ``work(start, stop, tile, ids, distances)`` searches rows start to stop."""
    parts = 1
    if questions < threads():
        parts = max(1, min(threads(), rows // max(SPLIT, k)))
    bounds = np.linspace(0, rows, parts + 1).astype(np.int64)
    ids = np.full((parts, questions, k), -1, np.int64)
    top = np.inf if kind is np.float32 else np.iinfo(kind).max
    found: np.ndarray = np.full((parts, questions, k), top, kind)

    def run(task: tuple[int, slice]) -> None:
        part, tile = task
        work(bounds[part], bounds[part + 1], tile, ids[part, tile], found[part, tile])

    run_tasks(run, [(part, tile) for part in range(parts) for tile in tiles(questions)])
    if parts == 1:
        return ids[0], found[0]
    all_ids, all_found = np.concatenate(ids, axis=1), np.concatenate(found, axis=1)
    order = np.argsort(all_found, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_ids, order, 1), np.take_along_axis(all_found, order, 1)
