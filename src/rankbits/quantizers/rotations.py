"""The plain quantizers: signs as they are, a random rotation, ITQ.

All that is fitted is computed in double precision: machines that round differently then disagree
about no sign, and the same rows get the same bits everywhere (tests/test_machines.py).
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.quantizers import rows
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.orthogonal import procrustes_step, random_rotation

MOST_ROWS = 100_000  # more teach a rotation of a few hundred dimensions nothing


def quantization_error(rotated: torch.Tensor) -> torch.Tensor:
    """Mean over rows and bits of (y - sgn y)^2, rows of norm sqrt(bits): TALR and H2Q's measure."""
    return ((rotated.abs() - 1) ** 2).mean()


def sphere(name: str, embeddings: Any, seed: int) -> torch.Tensor:
    """The rows a rotation is fitted to: at most ``MOST_ROWS``, float64, norm sqrt(dim)."""
    value = rows.embeddings(name, embeddings)
    if len(value) < value.shape[1]:
        _check.refuse(
            f"{name} must have at least as many rows as bits, {value.shape[1]}; got {len(value)}."
        )
    drawn, _ = rows.sample(value, MOST_ROWS, seed)
    drawn = drawn.double().cpu()
    scaled = rows.on_sphere(name, drawn)
    rows.no_constant_column(name, drawn)
    return scaled


class Sign(Quantizer):
    """Bits are the signs of the embeddings as they are.

    >>> import numpy as np
    >>> Sign().fit(np.eye(3) - 0.5).encode(np.array([[0.2, -1.0, 3.0]])).signs()
    array([[ 1, -1,  1]], dtype=int8)
    """

    def fit(self, embeddings: Any, labels: Any = None) -> Sign:
        scaled = sphere("embeddings", embeddings, 0)
        self.rotation_ = torch.eye(scaled.shape[1])
        self.objective_ = float(quantization_error(scaled))
        self._learn(self.rotation_)
        return self


class RandomRotation(Quantizer):
    """Signs after a rotation drawn uniformly from the orthogonal group by ``seed``.

    >>> x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    >>> RandomRotation(seed=1).fit(x).encode(x).bits
    8
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, embeddings: Any, labels: Any = None) -> RandomRotation:
        scaled = sphere("embeddings", embeddings, self.seed)
        draw = torch.Generator().manual_seed(self.seed)
        rotation = random_rotation(scaled.shape[1], draw, scaled.dtype)
        self.rotation_ = rotation.float()
        self.objective_ = float(quantization_error(scaled @ rotation.T))
        self._learn(rotation)
        return self


class ITQ(Quantizer):
    """Iterative quantization: alternating Procrustes steps on unit rows, from ``start``.

    ``objectives_`` has the error before and after each step; it never rises.

    >>> import torch
    >>> x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    >>> itq = ITQ(steps=10).fit(x)
    >>> itq.objectives_[-1] < itq.objectives_[0]
    True
    """

    def __init__(self, steps: int = 50, start: str = "identity", seed: int = 0) -> None:
        self.steps = steps
        self.start = start
        self.seed = seed

    def fit(self, embeddings: Any, labels: Any = None) -> ITQ:
        steps = _check.whole("steps", self.steps, 0)
        _check.choice("start", self.start, ("identity", "random"))
        scaled = sphere("embeddings", embeddings, self.seed)
        rotation = torch.eye(scaled.shape[1], dtype=scaled.dtype)
        if self.start == "random":
            draw = torch.Generator().manual_seed(self.seed)
            rotation = random_rotation(scaled.shape[1], draw, scaled.dtype)
        self.objectives_ = [float(quantization_error(scaled @ rotation.T))]
        for _ in range(steps):
            rotation = procrustes_step(scaled, rotation)
            self.objectives_.append(float(quantization_error(scaled @ rotation.T)))
        identity = float(quantization_error(scaled))
        if self.objectives_[-1] > identity:
            rotation = torch.eye(scaled.shape[1], dtype=scaled.dtype)
        self.rotation_ = rotation.float()
        self.objective_ = min(self.objectives_[-1], identity)
        self._learn(rotation)
        return self
