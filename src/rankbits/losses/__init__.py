"""Losses: ``loss(embeddings, labels)`` -> scalar. Functions are the truth, classes their shells."""

from rankbits.losses.discrete import ADSH
from rankbits.losses.fastap import FastAP, fastap_loss
from rankbits.losses.gather import gather
from rankbits.losses.mutual import MIHash, mihash_loss
from rankbits.losses.neighbours import Neighbours, neighbour_grades, neighbour_thresholds
from rankbits.losses.pairs import CEL, DCH, DHN, DPSH, DTSH, WGLHH, HashNet
from rankbits.losses.penalties import (
    HSWD,
    hswd,
    quantization_cauchy,
    quantization_cosh,
    quantization_l1,
    quantization_l2,
)
from rankbits.losses.proxies import HyP2, margin
from rankbits.losses.talr import (
    TieAwareAP,
    TieAwareNDCG,
    tie_aware_ap_loss,
    tie_aware_ndcg_loss,
)

__all__ = [
    "ADSH",
    "CEL",
    "DCH",
    "DHN",
    "DPSH",
    "DTSH",
    "HSWD",
    "WGLHH",
    "FastAP",
    "HashNet",
    "HyP2",
    "MIHash",
    "Neighbours",
    "TieAwareAP",
    "TieAwareNDCG",
    "fastap_loss",
    "gather",
    "hswd",
    "margin",
    "mihash_loss",
    "neighbour_grades",
    "neighbour_thresholds",
    "quantization_cauchy",
    "quantization_cosh",
    "quantization_l1",
    "quantization_l2",
    "tie_aware_ap_loss",
    "tie_aware_ndcg_loss",
]
