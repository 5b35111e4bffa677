"""A rotation chosen by the ranking metric itself.

A lower quantization error is not a higher mAP: H2Q's objective does not know which rows belong
together. Here the rotation starts from H2Q's and raises the tie-aware AP of the relaxed codes:
TALR's objective over H2Q's group.

The objective has many local optima of nearly equal value, so there are a few climbs, and the one
whose *codes* rank the rows best wins. All rows are learned from. To set some aside for the choice
was measured to be worse: a rotation has too few parameters to overfit much, and a choice by a few
hundred rows was mostly chance (docs/quantizers.md). With few rows, the quantization error limits
overfitting; like that of a prior, its weight falls with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rankbits import _check, metrics
from rankbits.losses import tie_aware_ap_loss, tie_aware_ndcg_loss
from rankbits.quantizers import rotations, rows
from rankbits.quantizers.descent import Adam
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.orthogonal import polar
from rankbits.quantizers.principal import AffineMap
from rankbits.quantizers.projection import Projection, grade_neighbours
from rankbits.quantizers.rotations import quantization_error
from rankbits.types import Ranking, pack

PRIOR_ROWS = 100  # the quantization error weighs as much as this many rows do
MOST_JUDGED = 3000  # rows by which climbs are compared
SHARPENED = 4  # alpha rises to this multiple of itself
FEWEST_STEPS, MOST_STEPS, ROWS_A_STEP = 150, 500, 20  # more rows deserve more steps (measured)


class SupervisedRotation(rotations.Rotation):
    """The rotation that ranks best: tie-aware AP over the orthogonal group.

    If ``bits`` is not dim, principal components come first. ``labels`` are (n,), numbers or names,
    or multi-hot (n, C); without labels, the codes should rank each row's nearest neighbours first
    (tie-aware NDCG). The best of ``climbs`` climbs wins. Each starts from another H2Q rotation and
    takes ``steps`` steps of Adam on batches of ``batch`` rows, with tanh(alpha y) in place of signs
    while alpha rises to four times ``alpha``. By default ``steps`` is n / 20 but at least 150 and
    at most 500, and ``weight``, that of the quantization error, is 100 / n.

    ``judged_`` has the metric of the rows' codes for "identity", "h2q" and each climb, and
    ``chosen_`` says which won: these rows are never ranked worse than by the identity or H2Q.
    Fitting is in double precision, so machines that round differently learn nearly the same.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(200) % 4
    >>> x = torch.randn(200, 8, generator=draw) + 2 * torch.eye(4, 8)[y]
    >>> quantizer = SupervisedRotation(steps=5).fit(x, y)
    >>> quantizer.judged_["identity"] <= quantizer.judged_[quantizer.chosen_]
    True
    """

    def __init__(
        self,
        bits: int | None = None,
        *,
        weight: float | None = None,
        steps: int | None = None,
        batch: int = 1000,
        alpha: float = 1.0,
        rate: float = 0.04,
        climbs: int = 3,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.weight = weight
        self.steps = steps
        self.batch = batch
        self.alpha = alpha
        self.rate = rate
        self.climbs = climbs
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        value = rows.check_embeddings("embeddings", embeddings)
        marks = None if labels is None else _check.labels("labels", labels, len(value), names=True)
        drawn, chosen = rows.sample(value, rotations.MOST_ROWS, self.seed)
        marks = None if marks is None else marks[chosen]
        map_before: AffineMap | None = None
        bits = self._bits_for(value.shape[1])
        if bits != value.shape[1]:
            projection = Projection(bits, seed=self.seed).fit(value)
            weight, offset = projection.weight_.double(), projection.offset_.double()
            drawn = torch.addmm(offset, drawn.double().cpu(), weight.T)
            map_before = weight, offset
        scaled = rotations.sample_sphere("embeddings", drawn, self.seed)
        candidates = {"identity": torch.eye(scaled.shape[1], dtype=torch.float64)}
        draw = torch.Generator().manual_seed(self.seed)
        for number in range(_check.whole("climbs", self.climbs, 1)):
            start = H2Q(seed=self.seed + number).fit(scaled).rotation_.double()
            candidates.setdefault("h2q", start)
            candidates[f"climb {number + 1}"] = self._climb(scaled, marks, start, draw)
        judged = torch.randperm(len(scaled), generator=draw)[:MOST_JUDGED]
        judge = _Judge(scaled[judged], None if marks is None else marks[judged.numpy()])
        self.judged_ = {name: judge(rotation) for name, rotation in candidates.items()}
        # ``max`` returns the first of equals, which is the simplest
        self.chosen_ = max(self.judged_, key=lambda name: self.judged_[name])
        rotation = candidates[self.chosen_]
        self.objective_ = 1 - self.judged_[self.chosen_]
        self._set_rotation(rotation, map_before)

    def _climb(
        self,
        scaled: torch.Tensor,
        marks: np.ndarray | None,
        start: torch.Tensor,
        draw: torch.Generator,
    ) -> torch.Tensor:
        """Learn a skew matrix; returns its exponential times ``start``."""
        size = scaled.shape[1]
        steps = min(max(FEWEST_STEPS, len(scaled) // ROWS_A_STEP), MOST_STEPS)
        if self.steps is not None:
            steps = _check.whole("steps", self.steps, 1)
        weight = PRIOR_ROWS / len(scaled)
        if self.weight is not None:
            weight = _check.number("weight", self.weight)
            if weight < 0:
                _check.refuse(f"weight must not be below zero; got {weight}.")
        skew = torch.zeros(size, size, dtype=scaled.dtype, requires_grad=True)
        adam = Adam([skew], self.rate, steps)
        batches = _draw_batches(len(scaled), _check.whole("batch", self.batch, 2), draw)
        for step in range(1, steps + 1):
            at = next(batches)
            part = scaled[at]
            rotated = part @ (torch.matrix_exp(skew - skew.T) @ start).T
            alpha = self.alpha * SHARPENED ** (step / steps)
            if marks is None:
                near = grade_neighbours(part)
                loss = tie_aware_ndcg_loss(rotated, None, alpha=alpha, affinity=near)
            else:
                loss = tie_aware_ap_loss(rotated, torch.from_numpy(marks[at.numpy()]), alpha=alpha)
            adam.step(loss + weight * quantization_error(rotated))
        with torch.no_grad():
            return polar(torch.matrix_exp(skew - skew.T) @ start)


def _draw_batches(count: int, batch: int, draw: torch.Generator) -> Iterator[torch.Tensor]:
    """Endless batches of row numbers: all rows in random order, less a remainder, then again."""
    batch = min(batch, count)
    while True:
        yield from torch.randperm(count, generator=draw)[: count // batch * batch].split(batch)


class _Judge:
    """Called with a rotation: the mean AP_T (without labels NDCG_T) of the rows' codes."""

    def __init__(self, scaled: torch.Tensor, marks: np.ndarray | None) -> None:
        self.scaled, self.marks = scaled, marks
        self.grades = None if marks is not None else grade_neighbours(scaled).numpy()

    def __call__(self, rotation: torch.Tensor) -> float:
        codes = pack(self.scaled @ rotation.T)
        if self.marks is None:
            ranking: Ranking = metrics.rank_codes(
                codes, codes, relevance=self.grades, exclude_self=True
            )
            quality = metrics.ndcg(ranking)
        else:
            ranking = metrics.rank_codes(codes, codes, self.marks, self.marks, exclude_self=True)
            quality = metrics.average_precision(ranking)
        # nan is a row with nothing relevant; if all rows are nan, all rotations count the same
        return float(np.nanmean(quality)) if not np.isnan(quality).all() else 0.0
