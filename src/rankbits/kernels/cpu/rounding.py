"""Weights of questions rounded to whole numbers, one question after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import count_threads, run_tasks
from rankbits.kernels.cpu.counting import make_read_only

CELLS = 1 << 16  # the fewest weights of a task: fewer are not worth another thread


@njit(nogil=True, cache=True, fastmath={"reassoc"})  # sums in float64 may be taken in any order
def _find_error(weights, step, levels):
    total = 0.0
    for i in range(weights.shape[0]):
        whole = min(max(np.rint(weights[i] / step), -levels), levels)
        error = np.float64(weights[i] - whole * step)
        total += error * error
    return total


@njit(nogil=True, cache=True)
def _round_tile(weights, clips, levels, whole, steps):
    for i in range(weights.shape[0]):
        largest = np.float32(0)
        for j in range(weights.shape[1]):
            largest = max(largest, abs(weights[i, j]))
        if largest == 0:
            largest = np.float32(1)
        least = np.inf
        for clip in clips:
            error = _find_error(weights[i], clip * largest, levels)
            if error < least:
                least, steps[i] = error, clip * largest
        for j in range(weights.shape[1]):
            whole[i, j] = min(max(np.rint(weights[i, j] / steps[i]), -levels), levels)


def round_weights(
    weights: np.ndarray, clips: np.ndarray, levels: int
) -> tuple[np.ndarray, np.ndarray]:
    (weights,) = make_read_only(weights)
    whole, steps = np.empty(weights.shape, np.int8), np.empty(len(weights), np.float32)
    size = max(1, CELLS // weights.shape[1], -(-len(weights) // count_threads()))

    def work(start: int) -> None:
        tile = slice(start, start + size)
        _round_tile(weights[tile], clips, np.float32(levels), whole[tile], steps[tile])

    run_tasks(work, range(0, len(weights), size))
    return whole, steps
