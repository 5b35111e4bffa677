"""rankbits: learn to rank, in bits.

Train embeddings and binary codes for the ranking metric itself, turn any embedding into bits,
search the bits exactly, and judge rankings with ties counted exactly.
"""

from rankbits import _threads as _threads  # before torch
from rankbits import report as report
from rankbits._check import Refusal
from rankbits._version import VERSION
from rankbits.account import Account, Curve, account, measure_bytes
from rankbits.encoder import Encoder, evaluate_index, fit_texts, load, make_index, open_index
from rankbits.evaluate import evaluate, evaluate_run
from rankbits.indexes import HammingIndex, Rerank
from rankbits.kernels import hamming, hamming_counts, hamming_topk, hamming_within
from rankbits.losses import fastap_loss, tie_aware_ap_loss, tie_aware_ndcg_loss
from rankbits.metrics import (
    average_precision,
    dcg,
    hit_at,
    map_at_r,
    ndcg,
    precision_at,
    precision_recall_curve,
    precision_within,
    r_precision,
    rank,
    rank_codes,
    recall_at,
    recall_within,
    reciprocal_rank,
)
from rankbits.quantizers import (
    BRE,
    H2Q,
    ITQ,
    FastHash,
    MACHash,
    Projection,
    RandomRotation,
    Reconstruction,
    Sign,
    StructHash,
    SupervisedProjection,
    SupervisedRotation,
)
from rankbits.train import Run, TrainConfig, load_run, train
from rankbits.types import Codes, Questions, Ranking, Report, Results, pack

__version__ = VERSION

__all__ = [
    "BRE",
    "H2Q",
    "ITQ",
    "Account",
    "Codes",
    "Curve",
    "Encoder",
    "FastHash",
    "HammingIndex",
    "MACHash",
    "Projection",
    "Questions",
    "RandomRotation",
    "Ranking",
    "Reconstruction",
    "Refusal",
    "Report",
    "Rerank",
    "Results",
    "Run",
    "Sign",
    "StructHash",
    "SupervisedProjection",
    "SupervisedRotation",
    "TrainConfig",
    "account",
    "average_precision",
    "dcg",
    "evaluate",
    "evaluate_index",
    "evaluate_run",
    "fastap_loss",
    "fit_texts",
    "hamming",
    "hamming_counts",
    "hamming_topk",
    "hamming_within",
    "hit_at",
    "load",
    "load_run",
    "make_index",
    "map_at_r",
    "measure_bytes",
    "ndcg",
    "open_index",
    "pack",
    "precision_at",
    "precision_recall_curve",
    "precision_within",
    "r_precision",
    "rank",
    "rank_codes",
    "recall_at",
    "recall_within",
    "reciprocal_rank",
    "tie_aware_ap_loss",
    "tie_aware_ndcg_loss",
    "train",
]
