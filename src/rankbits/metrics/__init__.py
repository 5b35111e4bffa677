"""Numbers about rankings, by formulas over counts that are exact under ties.

Every metric takes a ``Ranking`` and returns (Q,) float64, nan for a query with nothing relevant.
``ties="mean"`` averages over all orders of tied items; ``"best"`` and ``"worst"`` are the extremes
over these orders.
"""

from rankbits.metrics.average import average_precision, map_at_r
from rankbits.metrics.cutoffs import hit_at, precision_at, r_precision, recall_at
from rankbits.metrics.gain import dcg, ndcg
from rankbits.metrics.lookup import precision_recall_curve, precision_within, recall_within
from rankbits.metrics.ranking import rank, rank_codes
from rankbits.metrics.reciprocal import reciprocal_rank

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
