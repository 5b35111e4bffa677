"""The most violated order by dynamic programming over relevant items and others before them."""

from __future__ import annotations

import numpy as np


def find_violated(
    distances: np.ndarray, gains: np.ndarray, own: np.ndarray, ndcg: bool
) -> tuple[np.ndarray, np.ndarray]:
    out, losses = np.zeros(distances.shape, np.float32), np.zeros(len(distances))
    for q, row in enumerate(distances):
        order = np.argsort(row, kind="stable")
        order = order[order != own[q]]
        relevant, others = order[gains[q, order] > 0], order[gains[q, order] <= 0]
        if len(relevant) and len(others):
            losses[q] = _violate(row, gains[q], relevant, others, ndcg, out[q])
    return out, losses


def _violate(
    row: np.ndarray, gains: np.ndarray, relevant: np.ndarray, others: np.ndarray, ndcg: bool,
    out: np.ndarray,
) -> float:  # fmt: skip
    p, n = len(relevant), len(others)
    counts = np.arange(n + 1)
    sums = np.concatenate([[0.0], np.cumsum(row[others])])
    lost = np.empty((p, n + 1))
    ideal = (np.sort(gains[relevant])[::-1] / np.log2(2 + np.arange(p))).sum()
    for m, item in enumerate(relevant):
        fall = 1 / np.log2(2 + m) - 1 / np.log2(2 + m + counts)
        lost[m] = gains[item] * fall / ideal if ndcg else counts / (p * n)
    value = lost - (sums - counts * row[relevant][:, None]) / (p * n)
    best = np.empty((p, n + 1))  # best[m, c]: of items up to m, where m has c others before it
    for m in range(p):
        before = np.maximum.accumulate(best[m - 1]) if m else 0
        best[m] = value[m] + before
    chosen, most = np.empty(p, int), n
    for m in range(p - 1, -1, -1):
        chosen[m] = most = int(best[m, : most + 1].argmax())
    out[relevant] = -chosen / (p * n)
    out[others] = (chosen[:, None] > np.arange(n)).sum(axis=0) / (p * n)
    return float(lost[np.arange(p), chosen].sum())
