"""The tie-aware losses of TALR: AP and NDCG of relaxed Hamming rankings.

Three forms of each. ``simple``: what the authors trained with (Eq. 62, 66). ``relaxed``: the
paper's integrals (Eq. 11, 12), guarded where they are singular. ``exact``: sums continued so that
on whole counts the value *is* the tie-aware metric, and smooth in between.
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses import continuation as to
from rankbits.losses.histogram import (
    full_precision,
    mean_loss,
    outside_graphs,
    rows_of_floats,
    soft_histogram,
)
from rankbits.losses.relation import relate

FORMS = ("simple", "relaxed", "exact")


@outside_graphs
def tie_aware_ap_loss(
    activations: torch.Tensor,
    labels: Any = None,
    form: str = "simple",
    alpha: float = 1.0,
    bins: int | None = None,
    affinity: Any = None,
    database: torch.Tensor | None = None,
    database_labels: Any = None,
    *,
    self_rows: Any = None,
) -> torch.Tensor:
    """1 - tie-aware AP of the relaxed codes tanh(alpha f), mean over queries with a neighbour.

    ``activations`` (M, bits) are f, the outputs whose signs will be the bits. ``bins`` = n: n + 1
    centres 0, bits/n, .., bits; by default n = bits. Labels, ``affinity``, ``database`` and
    ``self_rows`` as in ``fastap_loss``; any affinity above zero makes a neighbour.

    >>> f = torch.tensor([[9.0, 9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    >>> tie_aware_ap_loss(f, torch.tensor([0, 0, 1, 1]), form="exact").round(decimals=4)
    tensor(0.)
    """
    _check.choice("form", form, FORMS)
    with full_precision(_device_of(activations)):
        counts, _ = _counts(
            activations, labels, alpha, bins, affinity, database, database_labels, self_rows,
            graded=False,
        )  # fmt: skip
        positive, every = counts[:, 1], counts.sum(dim=1)
        neighbours = positive.detach().sum(dim=1).round()
        summed = _ap_terms(positive, every, form).sum(dim=1)
        loss = mean_loss(summed / neighbours.clamp(min=1), neighbours)
        return loss.to(_result_dtype(activations))


@outside_graphs
def tie_aware_ndcg_loss(
    activations: torch.Tensor,
    labels: Any = None,
    form: str = "simple",
    alpha: float = 1.0,
    bins: int | None = None,
    affinity: Any = None,
    database: torch.Tensor | None = None,
    database_labels: Any = None,
    *,
    self_rows: Any = None,
) -> torch.Tensor:
    """1 - tie-aware NDCG of the relaxed codes tanh(alpha f), mean over queries with a neighbour.

    As ``tie_aware_ap_loss``, with graded affinities and gain 2^affinity - 1: (M,) labels give 1
    where they are equal, multi-hot labels the number they share, ``affinity`` any few non-negative
    values. The normaliser is the best DCG of the query's own items, itself left out.

    Perfect codes tie all relevant items: there ``exact`` is 0, ``simple`` stays above (Eq. 66 is a
    lower bound of DCG) and ``relaxed`` falls below (Eq. 12 overestimates it).

    >>> f = torch.tensor([[9.0, 9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    >>> tie_aware_ndcg_loss(f, torch.tensor([0, 0, 1, 1]), form="exact").round(decimals=4)
    tensor(0.)
    """
    _check.choice("form", form, FORMS)
    with full_precision(_device_of(activations)):
        counts, values = _counts(
            activations, labels, alpha, bins, affinity, database, database_labels, self_rows,
            graded=True,
        )  # fmt: skip
        gains = torch.exp2(values) - 1
        every = counts.sum(dim=1)
        before = every.cumsum(dim=1) - every
        discount = {
            "simple": to.midpoint_discount,
            "relaxed": to.integral_discount,
            "exact": to.spline_discount,
        }[form](before, every)
        # not a matrix product: autocast may be on again when this is differentiated
        gained = (counts * gains[:, None]).sum(dim=1)
        by_grade = counts.detach().sum(dim=2).nan_to_num().round()
        ideal = _ideal(by_grade, gains)
        neighbours = by_grade[:, 1:].sum(dim=1)
        quality = (gained * discount).sum(dim=1) / torch.where(neighbours > 0, ideal, 1)
        return mean_loss(quality, neighbours).to(_result_dtype(activations))


def _counts(
    activations: torch.Tensor,
    labels: Any,
    alpha: float,
    bins: int | None,
    affinity: Any,
    database: torch.Tensor | None,
    database_labels: Any,
    self_rows: Any,
    *,
    graded: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Soft counts (M, grades, bins + 1) of relaxed Hamming distances; the grades' affinities."""
    alpha = _check.number("alpha", alpha)
    if alpha <= 0:
        _check.refuse(f"alpha must be above zero; got {alpha}.")
    x = rows_of_floats("activations", activations)
    bits = x.shape[1]
    bins = bits if bins is None else _check.whole("bins", bins, 1)
    if bins > bits:
        _check.refuse(f"bins must be at most the number of bits, {bits}; got {bins}.")
    x, y = torch.tanh(alpha * x), None
    if database is not None:
        y = torch.tanh(alpha * rows_of_floats("database", database, bits).to(x.dtype))
    relation = relate(
        len(x), len(x) if y is None else len(y), x.device,
        labels=labels, database_labels=database_labels, affinity=affinity,
        graded=graded, same=y is None, self_rows=self_rows,
    )  # fmt: skip
    counts = soft_histogram(x, y, relation, bins, float(bits))
    return counts.double(), relation.values.double()


def _ap_terms(positive: torch.Tensor, every: torch.Tensor, form: str) -> torch.Tensor:
    """(M, bins + 1): N+ times what each bin adds to AP: its items behind a others, p relevant."""
    a, p = every.cumsum(dim=1) - every, positive.cumsum(dim=1) - positive
    if form == "simple":
        return positive * (2 * p + positive + 1) / (2 * a + every + 1)
    if form == "exact":
        slope = (positive - 1) * to.tilt(a, every)
        return positive * (slope + (p + 1) * to.mean_reciprocal(a, every))
    log = to.log_ratio(a, every)
    slope = (positive - 1) * to.reciprocal_of_less_one(every)
    empty = every == 0
    ratio = torch.where(empty, 0, positive) / torch.where(empty, 1, every)
    return positive * slope + ratio * (p + 1 - slope * (a + 1)) * log


def _ideal(by_grade: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    """(M,): the DCG of each query's items in falling order of affinity."""
    end = by_grade.flip(1).cumsum(dim=1).long()
    total = to.cumulative_discount(int(end.max()) if end.numel() else 0, by_grade.device)
    start = torch.nn.functional.pad(end[:, :-1], (1, 0))
    return (total[end] - total[start]) @ gains.flip(0)


def _device_of(activations: Any) -> torch.Tensor:
    return activations if isinstance(activations, torch.Tensor) else torch.empty(0)


def _result_dtype(activations: torch.Tensor) -> torch.dtype:
    return torch.float64 if activations.dtype == torch.float64 else torch.float32


class _TieAware(torch.nn.Module):
    takes_alpha = takes_database = True  # what the trainer may ask: losses/protocol.py

    def __init__(self, form: str = "simple", alpha: float = 1.0, bins: int | None = None) -> None:
        super().__init__()
        self.form = _check.choice("form", form, FORMS)
        self.alpha = _check.number("alpha", alpha)
        self.bins = None if bins is None else _check.whole("bins", bins, 1)

    def extra_repr(self) -> str:
        return f"form={self.form!r}, alpha={self.alpha}, bins={self.bins}"


class TieAwareAP(_TieAware):
    """``tie_aware_ap_loss`` as a module; ``alpha`` may be raised between steps to tighten tanh.

    >>> TieAwareAP(form="exact", alpha=2)
    TieAwareAP(form='exact', alpha=2.0, bins=None)
    """

    def forward(
        self, activations: torch.Tensor, labels: Any = None, **options: Any
    ) -> torch.Tensor:
        return tie_aware_ap_loss(activations, labels, self.form, self.alpha, self.bins, **options)


class TieAwareNDCG(_TieAware):
    """``tie_aware_ndcg_loss`` as a module; ``alpha`` may be raised between steps."""

    def forward(
        self, activations: torch.Tensor, labels: Any = None, **options: Any
    ) -> torch.Tensor:
        return tie_aware_ndcg_loss(activations, labels, self.form, self.alpha, self.bins, **options)
