"""Losses: ``loss(embeddings, labels)`` -> scalar. Functions are the truth, classes their shells."""

from rankbits.losses.fastap import FastAP, fastap_loss
from rankbits.losses.gather import gather
from rankbits.losses.talr import (
    TieAwareAP,
    TieAwareNDCG,
    tie_aware_ap_loss,
    tie_aware_ndcg_loss,
)

__all__ = [
    "FastAP",
    "TieAwareAP",
    "TieAwareNDCG",
    "fastap_loss",
    "gather",
    "tie_aware_ap_loss",
    "tie_aware_ndcg_loss",
]
