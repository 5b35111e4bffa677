"""The plain quantizers: signs as they are, a random rotation, ITQ.

Fitting is in double precision, so that machines that round differently agree on the signs, and rows
get the same bits everywhere (tests/test_machines.py).
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.quantizers import rows
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.orthogonal import procrustes_step, random_rotation
from rankbits.quantizers.principal import AffineMap, map_to_bits

MOST_ROWS = 100_000  # more rows do not improve a rotation of a few hundred dimensions


def quantization_error(rotated: torch.Tensor) -> torch.Tensor:
    """Mean over rows and bits of (y - sgn y)^2, for rows of norm sqrt(bits), as in TALR and H2Q."""
    return ((rotated.abs() - 1) ** 2).mean()


def sample_sphere(name: str, embeddings: Any, seed: int) -> torch.Tensor:
    """Draw at most ``MOST_ROWS`` rows to fit a rotation to, float64, norm sqrt(dim)."""
    value = rows.check_embeddings(name, embeddings)
    rows.check_enough_rows(name, value, value.shape[1])
    drawn, _ = rows.sample(value, MOST_ROWS, seed)
    drawn = drawn.double().cpu()
    scaled = rows.scale_to_sphere(name, drawn)
    rows.refuse_constant_columns(name, drawn)
    return scaled


class Rotation(Quantizer):
    """A quantizer that rotates; if bits is not dim, another map first changes the width."""

    seed: int

    def _prepare(self, embeddings: Any) -> tuple[torch.Tensor, AffineMap | None]:
        """The rows (m, bits) to fit a rotation to, float64, norm sqrt(bits), and the map that made
        them: None if bits is dim, else principal components or a tight frame of them.
        """
        value = rows.check_embeddings("embeddings", embeddings)
        bits = self._bits_for(value.shape[1])
        if bits == value.shape[1]:
            return sample_sphere("embeddings", value, self.seed), None
        weight, offset = map_to_bits(value, bits, self.seed)
        drawn, _ = rows.sample(value, MOST_ROWS, self.seed)
        mapped = torch.addmm(offset, drawn.double().cpu(), weight.T)
        scaled = mapped * (bits**0.5 / mapped.norm(dim=1, keepdim=True).clamp(min=1e-12))
        return scaled, (weight, offset)

    def _set_rotation(self, rotation: torch.Tensor, map_before: AffineMap | None) -> None:
        """Set ``rotation_``, and the map as the rotation after ``map_before``."""
        self.rotation_ = rotation.float()
        if map_before is None:
            self._set_map(rotation)
        else:
            self._set_map(*(rotation @ part for part in map_before))


class Sign(Quantizer):
    """The signs of the embeddings as they are: one bit for each dimension.

    >>> import numpy as np
    >>> Sign().fit(np.eye(3) - 0.5).encode(np.array([[0.2, -1.0, 3.0]])).signs()
    array([[ 1, -1,  1]], dtype=int8)
    """

    def __init__(self, bits: int | None = None) -> None:
        self.bits = bits

    def _fit(self, embeddings: Any, labels: Any) -> None:
        value = rows.check_embeddings("embeddings", embeddings)
        bits, dim = self._bits_for(value.shape[1]), value.shape[1]
        if bits != dim:
            _check.refuse(
                f"Sign gives as many bits as dimensions, {dim}; for {bits} bits use Projection, "
                "ITQ or H2Q."
            )
        scaled = sample_sphere("embeddings", value, 0)
        self.rotation_ = torch.eye(scaled.shape[1])
        self.objective_ = float(quantization_error(scaled))
        self._set_map(self.rotation_)


class RandomRotation(Rotation):
    """Signs after a rotation drawn uniformly from the orthogonal group by ``seed``.

    If ``bits`` is not dim, principal components come first; for more bits a tight frame of them.

    >>> x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    >>> RandomRotation(seed=1).fit(x).encode(x).bits
    8
    """

    def __init__(self, bits: int | None = None, *, seed: int = 0) -> None:
        self.bits = bits
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        scaled, map_before = self._prepare(embeddings)
        draw = torch.Generator().manual_seed(self.seed)
        rotation = random_rotation(scaled.shape[1], draw, scaled.dtype)
        self.objective_ = float(quantization_error(scaled @ rotation.T))
        self._set_rotation(rotation, map_before)


class ITQ(Rotation):
    """Iterative quantization: alternating Procrustes steps on unit rows, from ``start``.

    If ``bits`` is not dim, principal components come first; for more bits a tight frame of them.
    ``objectives_`` has the error before and after each step; it never rises.

    >>> import torch
    >>> x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    >>> itq = ITQ(steps=10).fit(x)
    >>> itq.objectives_[-1] < itq.objectives_[0]
    True
    """

    def __init__(
        self, bits: int | None = None, *, steps: int = 50, start: str = "identity", seed: int = 0
    ) -> None:
        self.bits = bits
        self.steps = steps
        self.start = start
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        steps = _check.whole("steps", self.steps, 0)
        _check.choice("start", self.start, ("identity", "random"))
        scaled, map_before = self._prepare(embeddings)
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
        self.objective_ = min(self.objectives_[-1], identity)
        self._set_rotation(rotation, map_before)
