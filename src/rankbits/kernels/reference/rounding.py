"""Weights of questions rounded to whole numbers: every clip tried on every weight."""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 20  # cells in memory at a time


def round_weights(
    weights: np.ndarray, clips: np.ndarray, levels: int
) -> tuple[np.ndarray, np.ndarray]:
    whole, steps = np.empty(weights.shape, np.int8), np.empty(len(weights), np.float32)
    size = max(1, AT_ONCE // (len(clips) * weights.shape[1]))
    for start in range(0, len(weights), size):
        part = weights[start : start + size]
        largest = np.abs(part).max(axis=1)
        tried = clips[:, None, None] * np.where(largest > 0, largest, np.float32(1))[:, None]
        rounded = np.minimum(np.maximum(np.rint(part / tried), -levels), levels)
        error = (part - rounded * tried).astype(np.float64)
        best = np.einsum("cqb,cqb->cq", error, error).argmin(axis=0)
        rows = np.arange(len(part))
        whole[start : start + size] = rounded[best, rows]
        steps[start : start + size] = tried[best, rows, 0]
    return whole, steps
