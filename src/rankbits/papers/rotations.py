"""Fit the quantizers that recipes name: those of the command line, and those H2Q's authors ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits.quantizers import H2Q, Quantizer, make_quantizer, rows
from rankbits.quantizers.orthogonal import random_rotation
from rankbits.quantizers.rotations import quantization_error

SOLVERS: dict[str, dict[str, str]] = {
    "h2q": {}, "h2q-l1": {"loss": "l1"}, "h2q-min": {"loss": "min_entry"},
    "h2q-variance": {"loss": "bit_var"}, "h2q-sgd": {"solver": "sgd"},
    "h2q-adam": {"solver": "sgd", "optimizer": "adam"},
}  # fmt: skip
STEPS = 50


class RawITQ(Quantizer):
    """ITQ as H2Q's authors compare with it: from a random start, on rows that are not scaled.

    ``transposed`` mistakes the right singular vectors for their transpose, as the public port that
    they name does: its steps then do not lower the error, and the result is a random rotation.
    """

    def __init__(self, bits: int | None = None, *, transposed: bool = False, seed: int = 0) -> None:
        self.bits = bits
        self.transposed = transposed
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        raw = torch.as_tensor(rows.check_embeddings("embeddings", embeddings)).double().cpu()
        draw = torch.Generator().manual_seed(self.seed)
        rotation = random_rotation(self._bits_for(raw.shape[1]), draw, raw.dtype)
        for _ in range(STEPS):
            left, _, right = torch.linalg.svd((raw @ rotation.T).sign().T @ raw)
            rotation = left @ (right.T if self.transposed else right)
        self.rotation_ = rotation.float()
        self._set_map(rotation)


def fit_quantizer(name: str, embeddings: np.ndarray, labels: Any, seed: int) -> Quantizer:
    """Fit the quantizer called ``name`` to embeddings, with a bit for each of their dimensions."""
    quantizer: Quantizer
    if name in SOLVERS:
        quantizer = H2Q(**SOLVERS[name], seed=seed)  # type: ignore[arg-type]
    elif name in ("itq-raw", "itq-port"):
        quantizer = RawITQ(transposed=name == "itq-port", seed=seed)
    else:
        width = embeddings.shape[1]
        quantizer = make_quantizer(name, width, width, labelled=True, seed=seed)
    return quantizer.fit(embeddings, labels)


def measure_error(quantizer: Quantizer | None, embeddings: np.ndarray) -> float:
    """Measure the mean of (y - sgn y)^2 over rotated rows scaled to norm sqrt(bits)."""
    rotated = torch.as_tensor(embeddings if quantizer is None else quantizer.transform(embeddings))
    scale = rotated.shape[1] ** 0.5 / rotated.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return float(quantization_error(rotated * scale))
