"""Boosted trees by definition: every feature, bin and node in turn."""

from __future__ import annotations

import numpy as np

ASIDE, LEAST = 255, 1e-12


def boost_trees(
    bins: np.ndarray, wanted: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rounds, depth, _ = columns.shape
    nodes, rows = (1 << depth) - 1, len(wanted)
    features, cuts = np.zeros((rounds, nodes), np.int32), np.full((rounds, nodes), ASIDE, np.uint8)
    leaves, losses = np.empty((rounds, nodes + 1), np.float32), np.empty(rounds + 1)
    margins = np.zeros(rows)
    for turn in range(rounds + 1):
        weights = np.exp(np.where(wanted, -margins, margins))
        losses[turn] = weights.mean()
        if turn == rounds:
            break
        weights /= weights.sum()
        at = np.zeros(rows, int)
        for level in range(depth):
            for node in range((1 << level) - 1, (2 << level) - 1):
                inside = at == node
                best = _measure_impurity(weights, wanted, inside)
                for column in columns[turn, level]:
                    for cut in range(int(bins.max(initial=0))):
                        right = inside & (bins[column] > cut)
                        value = _measure_impurity(weights, wanted, inside & ~right)
                        value += _measure_impurity(weights, wanted, right)
                        if value < best - LEAST:
                            best, features[turn, node], cuts[turn, node] = value, column, cut
            above = bins[features[turn, at], np.arange(rows)] > cuts[turn, at]
            at = 2 * at + 1 + above
        plus, minus = (
            np.bincount(at - nodes, weights * (wanted == sign), nodes + 1) for sign in (True, False)
        )
        leaves[turn] = np.log((plus + 1 / rows) / (minus + 1 / rows)) / 2
        margins += leaves[turn, at - nodes]
    return features, cuts, leaves, losses


def _measure_impurity(weights: np.ndarray, wanted: np.ndarray, inside: np.ndarray) -> float:
    return float(np.sqrt(weights[inside & wanted].sum() * weights[inside & ~wanted].sum()))


def score_trees(
    rows: np.ndarray, features: np.ndarray, thresholds: np.ndarray, leaves: np.ndarray
) -> np.ndarray:
    bits, rounds, nodes = features.shape
    out = np.zeros((len(rows), bits))
    for bit in range(bits):
        for turn in range(rounds):
            at = np.zeros(len(rows), int)
            for _ in range(nodes.bit_length()):
                value = rows[np.arange(len(rows)), features[bit, turn, at]]
                at = 2 * at + 1 + (value > thresholds[bit, turn, at])
            out[:, bit] += leaves[bit, turn, at - nodes]
    return out.astype(np.float32)
