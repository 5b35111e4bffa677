"""Principal components: the directions in which rows vary most.

Sums are in double precision, and the sign of every direction, which LAPACK leaves open, is fixed,
so that machines that round differently find the same components.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rankbits import _check
from rankbits.quantizers import rows
from rankbits.quantizers.orthogonal import random_rotation

AffineMap = tuple[torch.Tensor, torch.Tensor]
"""``weight`` (bits, dim) and ``offset`` (bits,)."""

LEAST_SHARE = 1e-7  # of the largest variance; a direction with less is rounding noise


class Moments:
    """Count, sum and products of rows: all that PCA needs."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, embeddings: Any) -> Moments:
        """Add (n, dim) rows, a chunk at a time; returns self."""
        for start, part in rows.split_chunks(embeddings):
            self._add_chunk(part.cpu().double(), start)
        return self

    def _add_chunk(self, part: torch.Tensor, start: int) -> None:
        if self.count == 0:
            self.centre = part[0].clone()
            self.sum = torch.zeros(part.shape[1], dtype=torch.float64)
            self.products = torch.zeros(part.shape[1], part.shape[1], dtype=torch.float64)
        if not torch.isfinite(part.sum()):
            rows.check_finite("embeddings", part, start)
        centred = part - self.centre  # a mean far from zero would cost precision
        self.products.addmm_(centred.T, centred)
        self.sum += centred.sum(dim=0)
        self.count += len(part)

    def find_directions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean (dim,) and directions (dim, rank) as columns, by falling variance, float64; ``rank``
        is the number of directions in which the rows vary at all."""
        mean = self.sum / self.count
        covariance = self.products / self.count - torch.outer(mean, mean)
        values, directions = torch.linalg.eigh(covariance)
        values, directions = values.flip(0), directions.flip(1)
        rank = int((values > LEAST_SHARE * values[0].clamp(min=1e-30)).sum())
        return self.centre + mean, _fix_signs(directions[:, :rank])


def keep_directions(moments: Moments, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (dim,) and the first min(bits, dim) principal directions as rows, in float64.

    Where the rows vary in fewer directions, it warns and returns only these.
    """
    mean, directions = moments.find_directions()
    dim, rank = directions.shape
    if rank < 2 and bits > rank:
        columns = " (n_features = 1)" if dim == 1 else ""  # scikit-learn looks for these words
        _check.refuse(
            f"embeddings vary in {rank} direction{'' if rank == 1 else 's'} only{columns}, too few "
            f"for {bits} bits: at least 2 are needed."
        )
    if rank < min(bits, dim):
        warnings.warn(
            f"embeddings vary in {rank:,} directions only, fewer than the {bits:,} bits wanted: "
            "the bits are made as a tight frame of these directions.",
            stacklevel=2,
        )
    return mean, directions[:, : min(bits, rank)].T


def make_frame(bits: int, kept: int, draw: torch.Generator) -> torch.Tensor:
    """(bits, kept) orthonormal columns: the identity, or for bits > kept a random tight frame.

    >>> make_frame(2, 2, torch.Generator())
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    if bits > kept:
        return random_rotation(bits, draw, torch.float64)[:, :kept]
    return torch.eye(bits, dtype=torch.float64)


def map_to_bits(embeddings: Any, bits: int, seed: int) -> AffineMap:
    """Fit ``weight`` (bits, dim) and ``offset`` (bits,) that centre (n, dim) rows and change their
    width: to principal components for fewer bits than dim, to a tight frame of them for more.
    """
    mean, kept = keep_directions(Moments().add(embeddings), bits)
    weight = make_frame(bits, len(kept), torch.Generator().manual_seed(seed)) @ kept
    return weight, -(weight @ mean)


def principal_components(embeddings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (dim,) and principal directions (dim, rank), as columns, of (n, dim) rows, in float64.

    >>> x = torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.1, 1.0], [4.0, 0.0, 1.0]])
    >>> principal_components(x)[1].round(decimals=4)
    tensor([[1., 0.],
            [0., 1.],
            [0., 0.]], dtype=torch.float64)
    """
    return Moments().add(embeddings).find_directions()


def _fix_signs(directions: torch.Tensor) -> torch.Tensor:
    """Columns turned so that their product with (1, sqrt 2, sqrt 3, ..) is positive.

    Unequal weights, because symmetric data have directions whose entries cancel.
    """
    weights = torch.arange(1, len(directions) + 1, dtype=torch.float64).sqrt()
    return directions * torch.where(weights @ directions < 0, -1.0, 1.0)
