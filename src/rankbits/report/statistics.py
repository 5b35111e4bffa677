"""Measure judged codes for a page: precision and recall, distances, bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbits.evaluate.rankings import rank_by_counts
from rankbits.metrics import precision_recall_curve
from rankbits.types import Codes, Evidence

POINTS = 40  # cutoffs of a curve, evenly spaced in their logarithm
MOST_ROWS = 50_000  # codes whose bits are counted


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a page shows of codes besides their figures.

    ``cutoffs``, ``precision``, ``recall``: (P,), means over queries under random tie orders.
    ``neighbours``, ``others``: (bits + 1,), the share of all (query, item) pairs of either kind at
    each Hamming distance. ``ones``: (bits,) share of ones; ``correlation``: (bits, bits), 0 where a
    bit never changes.
    """

    cutoffs: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    neighbours: np.ndarray
    others: np.ndarray
    ones: np.ndarray
    correlation: np.ndarray


def measure_codes(evidence: Evidence) -> Statistics | None:
    """Measure curves, distances and bits; None without codes, labels or neighbours.

    >>> import rankbits as rb
    >>> codes = rb.pack([[1, 1], [1, -1], [-1, -1]])
    >>> measured = measure_codes(Evidence({}, (codes[:1], codes), ([7], [7, 7, 3])))
    >>> measured.neighbours, measured.others, measured.precision.round(2)
    (array([0.5, 0.5, 0. ]), array([0., 0., 1.]), array([1.  , 1.  , 0.67]))
    """
    if evidence.codes is None or evidence.labels is None:
        return None
    items = len(evidence.codes[1]) - evidence.exclude_self
    if items < 1 or not len(evidence.codes[0]):
        return None
    cutoffs = np.unique(np.geomspace(1, items, POINTS).round().astype(np.int64))
    near = np.zeros(evidence.codes[0].bits + 1, np.int64)
    far = near.copy()
    sums, defined = np.zeros((2, len(cutoffs))), 0
    rankings = rank_by_counts(
        *evidence.codes, *evidence.labels, evidence.relevance, evidence.exclude_self
    )
    for ranking in rankings:
        near += ranking.positives.sum(axis=0)
        far += (ranking.items - ranking.positives).sum(axis=0)
        has_relevant = ranking.relevant > 0
        defined += int(has_relevant.sum())
        for total, values in zip(sums, precision_recall_curve(ranking, cutoffs), strict=True):
            total += values[has_relevant].sum(axis=0)
    if not defined:
        return None
    return Statistics(
        cutoffs, sums[0] / defined, sums[1] / defined, near / near.sum(), far / max(1, far.sum()),
        *_measure_bits(evidence.codes[1]),
    )  # fmt: skip


def _measure_bits(database: Codes) -> tuple[np.ndarray, np.ndarray]:
    """Measure the share of ones (bits,) and the correlation of the bits (bits, bits)."""
    step = max(1, len(database) // MOST_ROWS)
    signs = database[::step].signs().astype(np.float32)
    mean = signs.mean(axis=0)
    spread = np.sqrt(np.maximum(1 - mean.astype(np.float64) ** 2, 0))
    product = signs.T @ signs / len(signs) - np.outer(mean, mean)
    scale = np.outer(spread, spread)
    correlation = np.divide(product, scale, out=np.zeros_like(scale), where=scale > 1e-9)
    return (mean + 1) / 2, np.clip(correlation, -1, 1)
