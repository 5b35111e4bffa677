"""The k nearest out of runs of distances: candidates go on a short list in the order they come. A
stable sort cuts a full list back to k, so that equal distances stay in the order of their rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from rankbits.kernels.backend import count_threads, run_tasks
from rankbits.kernels.cpu.counting import cut_tiles
from rankbits.kernels.cpu.planes import any_less

LARGEST = np.float32(np.finfo(np.float32).max)  # greater distances become this one
PIECE = 64  # distances that are compared with the limit together
SPLIT = 100_000  # the fewest rows for a thread when there are fewer questions than threads


@njit(nogil=True, cache=True)
def _cut(distances, rows, fill, keep):
    """Order the first ``fill`` candidates by distance, equal ones as they stood; keep ``keep``."""
    order = np.argsort(distances[:fill], kind="mergesort")[:keep]
    distances[: order.shape[0]] = distances[order]
    rows[: order.shape[0]] = rows[order]
    return order.shape[0]


@njit(nogil=True, cache=True)
def offer(run, first, near, filled, keep, distances, rows):
    """Put what is nearer than ``near`` on the list; return its new length and the new ``near``."""
    room = distances.shape[0]
    for a in range(0, run.shape[0], PIECE):
        piece = run[a : min(a + PIECE, run.shape[0])]
        if not any_less(piece, near):
            continue
        for j in range(piece.shape[0]):
            if piece[j] < near:
                distances[filled] = piece[j]
                rows[filled] = first + a + j
                filled += 1
                if filled == room and room > keep:
                    filled = _cut(distances, rows, room, keep)
                    near = distances[keep - 1]
    return filled, near


@njit(nogil=True, cache=True)
def finish(distances, rows, fill, keep, ids, out):
    """Write the ``keep`` nearest of each query's list into ``ids`` and ``out``."""
    for i in range(distances.shape[0]):
        _cut(distances[i], rows[i], fill[i], keep)
        ids[i, :keep] = rows[i, :keep]
        out[i, :keep] = distances[i, :keep]


def share_search(
    work: Callable[[int, int, slice, np.ndarray, np.ndarray], None],
    questions: int,
    rows: int,
    k: int,
    kind: type,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k nearest on all threads, which share the questions, or the rows where questions are
    few. ``work(start, stop, tile, ids, distances)`` searches rows start to stop for a tile of
    questions and fills its last two arguments."""
    parts = 1
    if questions < count_threads():
        parts = max(1, min(count_threads(), rows // max(SPLIT, k)))
    bounds = np.linspace(0, rows, parts + 1).astype(np.int64)
    ids = np.full((parts, questions, k), -1, np.int64)
    top = np.inf if kind is np.float32 else np.iinfo(kind).max
    distances: np.ndarray = np.full((parts, questions, k), top, kind)

    def run(task: tuple[int, slice]) -> None:
        part, tile = task
        work(bounds[part], bounds[part + 1], tile, ids[part, tile], distances[part, tile])

    run_tasks(run, [(part, tile) for part in range(parts) for tile in cut_tiles(questions)])
    if parts == 1:
        return ids[0], distances[0]
    all_ids, all_distances = np.concatenate(ids, axis=1), np.concatenate(distances, axis=1)
    order = np.argsort(all_distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_ids, order, 1), np.take_along_axis(all_distances, order, 1)
