"""Numbers about rankings: closed forms over counts, exact under ties. No gradient, no file.

Every metric takes a ``Ranking`` and gives (Q,) float64, nan for a query with nothing relevant.
``ties="mean"`` averages over all orders of tied items, ``"best"`` and ``"worst"`` are the extremes
that some order reaches.
"""

from rankbits.metrics.gain import dcg, ndcg
from rankbits.metrics.precision import (
    average_precision,
    hit_at,
    map_at_r,
    precision_at,
    precision_recall_curve,
    precision_within,
    r_precision,
    recall_at,
    recall_within,
    reciprocal_rank,
)
from rankbits.metrics.ranking import rank, rank_codes

__all__ = [
    "average_precision",
    "dcg",
    "hit_at",
    "map_at_r",
    "ndcg",
    "precision_at",
    "precision_recall_curve",
    "precision_within",
    "r_precision",
    "rank",
    "rank_codes",
    "recall_at",
    "recall_within",
    "reciprocal_rank",
]
