"""Losses: ``loss(embeddings, labels)`` -> scalar. A function computes each; the class of the same
name holds its settings."""

from rankbits.losses.balanced import DCH, WGLHH, HashNet, dch_loss, hashnet_loss, wglhh_loss
from rankbits.losses.discrete import ADSH, adsh_loss
from rankbits.losses.fastap import FastAP, fastap_loss
from rankbits.losses.gather import gather
from rankbits.losses.mutual import MIHash, mihash_loss
from rankbits.losses.neighbours import Neighbours, neighbour_grades, neighbour_thresholds
from rankbits.losses.nested import Nested
from rankbits.losses.pairs import CEL, DHN, DPSH, cel_loss, dhn_loss, dpsh_loss
from rankbits.losses.penalties import (
    HSWD,
    hswd,
    quantization_cauchy,
    quantization_cosh,
    quantization_l1,
    quantization_l2,
)
from rankbits.losses.proxies import HyP2, hyp2_loss, margin
from rankbits.losses.talr import (
    TieAwareAP,
    TieAwareNDCG,
    tie_aware_ap_loss,
    tie_aware_ndcg_loss,
)
from rankbits.losses.triplets import DTSH, dtsh_loss

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
    "Nested",
    "TieAwareAP",
    "TieAwareNDCG",
    "adsh_loss",
    "cel_loss",
    "dch_loss",
    "dhn_loss",
    "dpsh_loss",
    "dtsh_loss",
    "fastap_loss",
    "gather",
    "hashnet_loss",
    "hswd",
    "hyp2_loss",
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
    "wglhh_loss",
]
