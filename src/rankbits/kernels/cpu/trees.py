"""Boosted trees in numba: a histogram of weights for each feature and node."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import make_read_only

ROWS = 64  # rows of one task
ASIDE = 255
LEAST = 1e-12  # the least improvement by a split


@njit(nogil=True, cache=True)
def _split_level(bins, wanted, weights, node, columns, used, histogram, best, features, cuts):
    """Find the best feature, among ``columns``, and cut of each node of a level."""
    nodes = best.shape[0]
    rows = wanted.shape[0]
    for column in columns:
        histogram[:nodes] = 0
        row_bins = bins[column]
        for i in range(rows):
            histogram[node[i], row_bins[i], np.int64(wanted[i])] += weights[i]
        for k in range(nodes):
            left_minus, left_plus, right_minus, right_plus = 0.0, 0.0, 0.0, 0.0
            for b in range(used):
                right_minus += histogram[k, b, 0]
                right_plus += histogram[k, b, 1]
            for b in range(used - 1):
                left_minus += histogram[k, b, 0]
                left_plus += histogram[k, b, 1]
                right_minus -= histogram[k, b, 0]
                right_plus -= histogram[k, b, 1]
                value = np.sqrt(left_minus * left_plus) + np.sqrt(
                    max(right_minus, 0.0) * max(right_plus, 0.0)
                )
                if value < best[k] - LEAST:
                    best[k], features[k], cuts[k] = value, column, b


@njit(nogil=True, cache=True)
def _boost(bins, wanted, columns, used, features, cuts, leaves, losses):
    rounds, depth, _ = columns.shape
    rows = wanted.shape[0]
    margins, weights = np.zeros(rows), np.empty(rows)
    node = np.empty(rows, np.int64)
    histogram = np.empty((1 << (depth - 1), used, 2))
    minus, plus = np.empty(1 << depth), np.empty(1 << depth)
    for turn in range(rounds + 1):
        total = 0.0
        for i in range(rows):
            weights[i] = np.exp(-margins[i] if wanted[i] else margins[i])
            total += weights[i]
        losses[turn] = total / rows
        if turn == rounds:
            break
        for i in range(rows):
            weights[i] /= total
        node[:] = 0
        for level in range(depth + 1):
            nodes, first = 1 << level, (1 << level) - 1
            minus[:nodes] = 0
            plus[:nodes] = 0
            for i in range(rows):
                if wanted[i]:
                    plus[node[i]] += weights[i]
                else:
                    minus[node[i]] += weights[i]
            if level == depth:
                break
            feature, cut = features[turn, first : first + nodes], cuts[turn, first : first + nodes]
            best = np.sqrt(minus[:nodes] * plus[:nodes])
            _split_level(
                bins, wanted, weights, node, columns[turn, level], used, histogram, best, feature,
                cut,
            )  # fmt: skip
            for i in range(rows):
                k = node[i]
                node[i] = 2 * k + (1 if bins[feature[k], i] > cut[k] else 0)
        for k in range(1 << depth):
            leaves[turn, k] = 0.5 * np.log((plus[k] + 1 / rows) / (minus[k] + 1 / rows))
        for i in range(rows):
            margins[i] += leaves[turn, node[i]]


def boost_trees(bins, wanted, columns):  # type: ignore[no-untyped-def]
    rounds, depth, _ = columns.shape
    nodes = (1 << depth) - 1
    features, cuts = np.zeros((rounds, nodes), np.int32), np.full((rounds, nodes), ASIDE, np.uint8)
    leaves, losses = np.empty((rounds, nodes + 1), np.float32), np.empty(rounds + 1)
    used = int(bins.max(initial=0)) + 1
    bins, wanted, columns = make_read_only(bins, wanted, columns)
    _boost(bins, wanted, columns, used, features, cuts, leaves, losses)
    return features, cuts, leaves, losses


@njit(nogil=True, cache=True)
def _score_tile(rows, features, thresholds, leaves, out):
    bits, rounds, nodes = features.shape
    for bit in range(bits):
        for i in range(rows.shape[0]):
            total = 0.0
            for turn in range(rounds):
                at = 0
                while at < nodes:
                    above = rows[i, features[bit, turn, at]] > thresholds[bit, turn, at]
                    at = 2 * at + (2 if above else 1)
                total += leaves[bit, turn, at - nodes]
            out[i, bit] = total


def score_trees(rows, features, thresholds, leaves):  # type: ignore[no-untyped-def]
    rows, features, thresholds, leaves = make_read_only(rows, features, thresholds, leaves)
    out = np.empty((len(rows), len(features)), np.float32)

    def work(start):  # type: ignore[no-untyped-def]
        part = slice(start, start + ROWS)
        _score_tile(rows[part], features, thresholds, leaves, out[part])

    run_tasks(work, range(0, len(rows), ROWS))
    return out
