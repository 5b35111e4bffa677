"""A last layer for a sentence encoder; the signs of its outputs are the bits of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import Projection
from rankbits.quantizers.affine import Quantizer


def add_bits(
    model: Any, texts: Sequence[str], bits: int, *, quantizer: Quantizer | None = None
) -> Any:
    """Append a linear layer to a ``SentenceTransformer`` -> the model, which now turns a text into
    ``bits`` numbers; their signs are its bits.

    The layer starts as ``quantizer``, or as a ``Projection`` fitted to the embeddings of ``texts``
    (some thousands of the database), so that the bits are good before any training. Outputs are
    scaled to vary by about 1, which suits the tanh of tie-aware losses. The layer is a ``Dense`` of
    sentence-transformers: the model is saved, loaded and shared as any other, and its
    ``encode(..., precision="ubinary")`` gives the same bits as ``rankbits.pack``.
    """
    _check.not_empty("texts", len(texts))
    from sentence_transformers.sentence_transformer.modules import Dense

    embeddings = np.asarray(model.encode(list(texts)), np.float32)
    quantizer = quantizer or Projection(_check.whole("bits", bits, 1))
    if not hasattr(quantizer, "weight_"):
        quantizer.fit(embeddings)
    _check.same_bits(quantizer.bits_, bits)
    spread = max(float(np.std(quantizer.transform(embeddings))), 1e-12)
    layer = Dense(
        embeddings.shape[1], bits, activation_function=torch.nn.Identity(),
        init_weight=quantizer.weight_ / spread, init_bias=quantizer.offset_ / spread,
    )  # fmt: skip
    model.append(layer.to(model.device))
    return model
