"""The search over a weight by definition: it tries a value between every two flips."""

from __future__ import annotations

import numpy as np

LEAST, GAP = 1e-7, 1e-9


def search_weights(
    kernel: np.ndarray, weights: np.ndarray, starts: np.ndarray, others: np.ndarray,
    costs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    row_of = np.repeat(np.arange(kernel.shape[1]), np.diff(starts))

    def add_costs(value: float) -> float:
        bits = rest + value * kernel[q] > 0
        return float(costs[bits[row_of] != bits[others]].sum()) / 2

    for q in range(len(weights)):
        rest = weights @ kernel - weights[q] * kernel[q]
        moved = kernel[q] != 0
        limits = np.sort(-rest[moved] / kernel[q][moved])
        wide = np.diff(limits) > GAP * (1 + np.abs(limits[:-1]))
        between = ((limits[:-1] + limits[1:]) / 2)[wide]
        tried = np.concatenate([limits[:1] - 1, between, limits[-1:] + 1])
        values = np.array([add_costs(value) for value in tried])
        if len(tried) and values.min() < add_costs(weights[q]) - LEAST:
            weights[q] = tried[values.argmin()]
    return weights, weights @ kernel > 0
