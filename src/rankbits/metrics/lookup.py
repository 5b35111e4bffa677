"""Precision and recall within a distance, and along the whole ranking."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.metrics.cutoffs import precision_at, recall_at
from rankbits.metrics.ties import divide, mark_undefined
from rankbits.types import Ranking


def precision_within(ranking: Ranking, radius: float) -> np.ndarray:
    """Precision among items at distance ``radius`` or less, (Q,); 0 where there are none. The order
    of ties plays no part.

    >>> from rankbits import rank
    >>> precision_within(rank([[1, 2, 3]], [[1, 0, 1]]), radius=2)
    array([0.5])
    """
    n, p = _count_within(ranking, radius)
    return mark_undefined(ranking, divide(p, n))


def recall_within(ranking: Ranking, radius: float) -> np.ndarray:
    """Recall among items at distance ``radius`` or less, (Q,).

    >>> from rankbits import rank
    >>> recall_within(rank([[1, 2, 3]], [[1, 0, 1]]), radius=2)
    array([0.5])
    """
    _, p = _count_within(ranking, radius)
    return mark_undefined(ranking, divide(p, ranking.relevant))


def _count_within(ranking: Ranking, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Items and relevant items of each query at distance ``radius`` or less, (Q,) float64."""
    radius = _check.number("radius", radius)
    distances = ranking.distances
    if distances is None:
        distances = np.arange(ranking.counts.shape[1])[None]
    near = distances <= radius  # False for nan, which marks levels that a query lacks
    return (
        np.where(near, ranking.items, 0).sum(axis=1).astype(np.float64),
        np.where(near, ranking.positives, 0).sum(axis=1).astype(np.float64),
    )


def precision_recall_curve(
    ranking: Ranking, k: Any = None, ties: str = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall, two (Q, points) arrays.

    Without ``k`` there is a point for each level, from near to far (with codes: lookup within
    radius 0, 1, .., bits). It takes in whole ties, whose order cannot matter; a point before the
    first item has precision 0. With ``k`` there is a point for each of these cutoffs, under
    ``ties``.

    >>> from rankbits import rank
    >>> precision, recall = precision_recall_curve(rank([[1, 1, 2]], [[1, 0, 1]]))
    >>> precision.round(4), recall
    (array([[0.5   , 0.6667]]), array([[0.5, 1. ]]))
    """
    _check.ties(ties)
    if k is not None:
        points = _check.cutoffs(k)
        return (
            np.stack([precision_at(ranking, at, ties) for at in points], axis=1),
            np.stack([recall_at(ranking, at, ties) for at in points], axis=1),
        )
    n = np.cumsum(ranking.items, axis=1).astype(np.float64)
    p = np.cumsum(ranking.positives, axis=1).astype(np.float64)
    defined = ranking.relevant[:, None] > 0
    recall = divide(p, np.broadcast_to(ranking.relevant[:, None], p.shape))
    return np.where(defined, divide(p, n), np.nan), np.where(defined, recall, np.nan)
