"""Train sentence encoders with ranking losses: ``train_texts`` uses the trainer of this package,
the other names work inside that of sentence-transformers:

    from rankbits.texts import BitsEvaluator, RankingLoss, add_bits

    add_bits(model, some_texts, 256)
    loss = RankingLoss(model, Nested(FastAP(bins=20), (64, 128)), signs="database", chunk=64)
    SentenceTransformerTrainer(model, args, train_dataset=pairs, loss=loss).train()

These need ``pip install 'rankbits[text]' 'sentence-transformers[train]'``, and ``BitsModel`` needs
``'rankbits[mteb]'``; ``import rankbits`` does not load this room.
"""

from __future__ import annotations

from typing import Any

from rankbits import _check
from rankbits.texts.boards import BitsModel
from rankbits.texts.heads import add_bits
from rankbits.texts.losses import RankingLoss
from rankbits.texts.training import train_texts

__all__ = ["BitsEvaluator", "BitsModel", "RankingLoss", "add_bits", "train_texts"]


def __getattr__(name: str) -> Any:
    if name != "BitsEvaluator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rankbits.texts.evaluators import BitsEvaluator
    except ImportError:
        _check.refuse(
            "BitsEvaluator needs the package sentence-transformers: pip install 'rankbits[text]'."
        )
    return BitsEvaluator
