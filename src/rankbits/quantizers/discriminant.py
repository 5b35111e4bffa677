"""Bits for labelled classes and for new ones, in closed form.

Some of the bits tell the labelled classes apart: ridge regression from the rows to one codeword for
each class. The other bits keep the general geometry of the embeddings, so that they tell new
classes apart too: the directions in which rows of one class differ are shrunk, and ``Projection``
makes bits of the result. Hamming distance adds both up.

With little to learn from, both parts stay near ``Projection``: the ridge holds the class bits to
where they started, and the within-class covariance is shrunk towards a multiple of the identity.
Nothing is random or iterative, so fitting takes a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import rows
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.principal import principal_components
from rankbits.quantizers.projection import Projection

MOST_ROWS = 20_000  # a linear map of a thousand dimensions learns little from more
LEAST = 1e-9  # of the largest singular value; less is rounding


class SupervisedProjection(Quantizer):
    """Linear bits: a ``share`` tells the labelled classes apart, the others stay general.

    ``labels`` are (n,), numbers or names. ``ridge``: how strongly the class bits are held to those
    of ``Projection``, in rows of mean length. ``shrink``: what is added to the within-class
    covariance of the general bits, in multiples of its mean eigenvalue; more helps new classes,
    less helps the labelled ones. ``objective_``: the mean squared distance of the class bits'
    outputs from their codewords.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(200) % 4
    >>> x = torch.randn(200, 8, generator=draw) + 2 * torch.eye(4, 8)[y]
    >>> SupervisedProjection(6).fit(x, y).encode(x)
    Codes(200 rows of 6 bits)
    """

    def __init__(
        self,
        bits: int | None = None,
        *,
        share: float = 0.5,
        ridge: float = 0.3,
        shrink: float = 3.0,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.share = share
        self.ridge = ridge
        self.shrink = shrink
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        value = rows.check_embeddings("embeddings", embeddings)
        if labels is None:
            _check.refuse("SupervisedProjection needs labels: fit(embeddings, labels).")
        marks = _check.labels("labels", labels, len(value), names=True)
        if marks.ndim != 1:
            _check.refuse("SupervisedProjection takes one label a row; got several.")
        for name in ("ridge", "shrink"):
            if _check.number(name, getattr(self, name)) <= 0:
                _check.refuse(f"{name} must be above 0; got {getattr(self, name)}.")
        if not 0 <= _check.number("share", self.share) <= 1:
            _check.refuse(f"share must lie between 0 and 1; got {self.share}.")
        bits = self._bits_for(value.shape[1])
        drawn, chosen = rows.sample(value, MOST_ROWS, self.seed)
        _, classes = np.unique(marks[chosen], return_inverse=True)
        if classes.max() == 0:
            _check.refuse("labels must name at least two classes; got one.")
        mean, directions = principal_components(drawn)
        centred = (drawn.double().cpu() - mean) @ directions  # in the span of the rows
        of_class = torch.from_numpy(classes.reshape(-1))
        counts = torch.bincount(of_class).double()
        means = torch.zeros(len(counts), centred.shape[1], dtype=torch.float64)
        means.index_add_(0, of_class, centred)
        means /= counts[:, None]
        first = min(bits, max(1, round(self.share * bits)))
        weight, offset = self._learn_class_bits(centred, means, of_class, first)
        if first < bits:
            general = self._learn_general_bits(centred, centred - means[of_class], bits - first)
            weight = torch.cat([weight, general])
            offset = torch.cat([offset, torch.zeros(bits - first, dtype=torch.float64)])
        weight = weight @ directions.T
        self._set_map(weight, offset - weight @ mean)

    def _learn_class_bits(
        self, centred: torch.Tensor, means: torch.Tensor, of_class: torch.Tensor, bits: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Learn a codeword for each class by ridge regression, starting from ``Projection``."""
        start = self._project(centred, bits)
        words = torch.where(_spread_means(means @ start.T) < 0, -1.0, 1.0).double()[of_class]
        squares = (centred**2).sum() / len(centred)
        gram = centred.T @ centred + self.ridge * squares * torch.eye(
            centred.shape[1], dtype=torch.float64
        )
        missing = centred.T @ (words - centred @ start.T)
        weight, offset = start + torch.linalg.solve(gram, missing).T, words.mean(dim=0)
        self.objective_ = float(((centred @ weight.T + offset - words) ** 2).mean())
        return weight, offset

    def _learn_general_bits(
        self, centred: torch.Tensor, within: torch.Tensor, bits: int
    ) -> torch.Tensor:
        """Learn ``Projection`` on rows whose differences inside a class are shrunk."""
        values, vectors = torch.linalg.eigh(within.T @ within / len(within))
        values = values.clamp(min=0)
        scale = (values + self.shrink * values.mean().clamp(min=1e-30)) ** -0.5
        white = (vectors * scale) @ vectors.T
        return self._project(centred @ white, bits) @ white

    def _project(self, centred: torch.Tensor, bits: int) -> torch.Tensor:
        """The weights (bits, columns) of ``Projection``, scaled to a mean absolute output of 1."""
        weight = Projection(bits, seed=self.seed).fit(centred).weight_.double()
        return weight / (centred @ weight.T).abs().mean()


def _spread_means(means: torch.Tensor) -> torch.Tensor:
    """Class means (C, bits) with the square roots of their singular values: half of the way to
    equal distances between all classes."""
    left, values, right = torch.linalg.svd(means - means.mean(dim=0), full_matrices=False)
    values = torch.where(values < LEAST * values[0], 0.0, values)
    return (left * values.sqrt()) @ right
