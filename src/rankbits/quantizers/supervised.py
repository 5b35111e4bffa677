"""A rotation chosen by the ranking metric itself.

A lower quantization error is not a higher mAP: H2Q's objective knows nothing of who should be near
whom. Here the rotation, starting from H2Q's, climbs the tie-aware AP of the relaxed codes, TALR's
objective over H2Q's group. Where the embeddings already rank their own training rows perfectly
that objective says nothing, and the quantization error, added with a weight, keeps the rotation
from drifting. Weight and moment to stop are chosen by AP_T on rows held out; the choice includes
H2Q and the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check, metrics
from rankbits.losses import tie_aware_ap_loss, tie_aware_ndcg_loss
from rankbits.quantizers import rows
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.householder import H2Q
from rankbits.quantizers.orthogonal import polar
from rankbits.quantizers.projection import Projection, nearness
from rankbits.quantizers.rotations import quantization_error, sphere
from rankbits.types import Ranking, pack

MOST_HELD = 2000
CHECKS = 6  # looks at the held-out rows in a run


class SupervisedRotation(Quantizer):
    """The rotation that ranks best: tie-aware AP over the orthogonal group, judged on unseen rows.

    ``bits`` other than dim: principal components first. ``labels`` (n,) or multi-hot (n, C);
    without labels each row's own nearest neighbours are ranked (tie-aware NDCG). ``weights`` of
    the quantization error are all tried. ``alpha`` of tanh(alpha y) rises from ``alpha`` to twice
    that. ``chosen_`` says what won: "identity", "h2q" or the weight and step; ``held_out_`` has
    each candidate's metric. Never ranks the held-out rows worse than the identity or H2Q.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(200) % 4
    >>> x = torch.randn(200, 8, generator=draw) + 2 * torch.eye(4, 8)[y]
    >>> quantizer = SupervisedRotation(steps=5).fit(x, y)
    >>> quantizer.held_out_["identity"] <= max(quantizer.held_out_.values())
    True
    """

    def __init__(
        self,
        bits: int | None = None,
        weights: tuple[float, ...] = (0.0, 0.3, 1.0),
        steps: int = 300,
        batch: int = 500,
        alpha: float = 2.0,
        rate: float = 0.02,
        held_out: float = 0.25,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.weights = weights
        self.steps = steps
        self.batch = batch
        self.alpha = alpha
        self.rate = rate
        self.held_out = held_out
        self.seed = seed

    def fit(self, embeddings: Any, labels: Any = None) -> SupervisedRotation:
        value = rows.embeddings("embeddings", embeddings)
        before: Projection | None = None
        if self.bits is not None and self.bits != value.shape[1]:
            before = Projection(self.bits, seed=self.seed).fit(value)
            scaled = sphere("embeddings", before.transform(value), self.seed)
        else:
            scaled = sphere("embeddings", value, self.seed)
        marks = None
        if labels is not None:
            marks = _check.labels("labels", labels, len(value))
            if len(scaled) < len(value):
                marks = marks[rows.sample(value, len(scaled), self.seed)[1]]
        if not 0 < _check.number("held_out", self.held_out) < 1:
            _check.refuse(f"held_out must be a share between 0 and 1; got {self.held_out}.")
        draw = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(scaled), generator=draw)
        many = min(MOST_HELD, max(2, round(self.held_out * len(scaled))))
        held, kept = order[:many], order[many:]
        judge = _Judge(scaled[held], None if marks is None else marks[held.numpy()])

        h2q = H2Q(seed=self.seed).fit(scaled[kept] if len(kept) >= scaled.shape[1] else scaled)
        found: dict[str, torch.Tensor] = {
            "identity": torch.eye(scaled.shape[1]),
            "h2q": h2q.rotation_,
        }
        for weight in sorted(self.weights, reverse=True):
            found |= self._climb(
                scaled[kept], None if marks is None else marks[kept.numpy()], weight,
                h2q.rotation_, draw,
            )  # fmt: skip
        each = {name: judge(rotation) for name, rotation in found.items()}
        self.held_out_ = {name: float(np.nanmean(v)) for name, v in each.items()}
        self.chosen_ = _choose(each)
        self.rotation_ = polar(found[self.chosen_].double()).float()
        self.objective_ = 1 - self.held_out_[self.chosen_]
        if before is None:
            self._learn(self.rotation_)
        else:
            self._learn(self.rotation_ @ before.weight_, self.rotation_ @ before.offset_)
        return self

    def _climb(
        self,
        scaled: torch.Tensor,
        marks: np.ndarray | None,
        weight: float,
        start: torch.Tensor,
        draw: torch.Generator,
    ) -> dict[str, torch.Tensor]:
        """Rotations along one run: start, after the exponential of a learned skew matrix."""
        size = scaled.shape[1]
        skew = torch.zeros(size, size, requires_grad=True)
        optimiser = torch.optim.Adam([skew], lr=self.rate)
        steps = _check.whole("steps", self.steps, 1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        every = max(1, steps // CHECKS)
        found = {}
        for step in range(1, steps + 1):
            at = torch.randperm(len(scaled), generator=draw)[: self.batch]
            part = scaled[at]
            rotated = part @ (torch.matrix_exp(skew - skew.T) @ start).T
            alpha = self.alpha * 2 ** (step / steps)
            if marks is None:
                loss = tie_aware_ndcg_loss(rotated, None, alpha=alpha, affinity=nearness(part))
            else:
                loss = tie_aware_ap_loss(rotated, torch.from_numpy(marks[at.numpy()]), alpha=alpha)
            loss = loss + weight * quantization_error(rotated)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if step % every == 0 or step == steps:
                with torch.no_grad():
                    found[f"weight {weight:g}, step {step}"] = (
                        torch.matrix_exp(skew - skew.T) @ start
                    )
        return found


class _Judge:
    """AP_T (or NDCG_T of own neighbours) of each held-out row among the others, for a rotation."""

    def __init__(self, held: torch.Tensor, marks: np.ndarray | None) -> None:
        self.held, self.marks = held, marks
        self.grades = None if marks is not None else nearness(held).numpy()

    def __call__(self, rotation: torch.Tensor) -> np.ndarray:
        codes = pack(self.held @ rotation.T)
        if self.marks is None:
            ranking: Ranking = metrics.rank_codes(
                codes, codes, relevance=self.grades, exclude_self=True
            )
            return metrics.ndcg(ranking)
        ranking = metrics.rank_codes(codes, codes, self.marks, self.marks, exclude_self=True)
        return metrics.average_precision(ranking)


def _choose(each: dict[str, np.ndarray]) -> str:
    """The best on held-out rows; of those not clearly beaten, the one most kept from drifting.

    Clearly: by more than one standard error of the difference, query by query. Candidates stand in
    the order identity, h2q, falling weight, so that what is simpler comes first.
    """
    means = {name: np.nanmean(values) for name, values in each.items()}
    best = max(means, key=lambda name: means[name])
    floor = max(means["identity"], means["h2q"])
    for name, values in each.items():
        gap = each[best] - values
        gap = gap[~np.isnan(gap)]
        error = gap.std() / max(1.0, np.sqrt(len(gap)))
        if means[name] >= floor and gap.mean() <= error:
            return name
    return best
