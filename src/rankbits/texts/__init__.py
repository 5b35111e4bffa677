"""Train sentence encoders by the ranking itself, inside sentence-transformers' trainer.

    from rankbits.texts import BitsEvaluator, RankingLoss, add_bits

    add_bits(model, some_texts, 256)
    loss = RankingLoss(model, Nested(FastAP(bins=20), (64, 128)), signs="database", chunk=64)
    SentenceTransformerTrainer(model, args, train_dataset=pairs, loss=loss).train()

It needs ``pip install 'rankbits[text]'``; ``import rankbits`` does not load this room.
"""

from __future__ import annotations

from typing import Any

from rankbits import _check
from rankbits.texts.heads import add_bits
from rankbits.texts.losses import RankingLoss

__all__ = ["BitsEvaluator", "RankingLoss", "add_bits"]


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
