"""The tie-aware losses of TALR: AP and NDCG of relaxed Hamming rankings.

Three forms of each. ``simple``: what the authors trained with (Eq. 62, 66). ``relaxed``: the
paper's integrals (Eq. 11, 12), guarded where they are singular. ``exact``: sums continued so that
on whole counts the value *is* the tie-aware metric, and smooth in between.
"""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses.histogram import find_loss, outside_graphs, rows_of_floats

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
    return find_code_loss(
        f"ap-{form}", activations, alpha, bins, database,
        labels=labels, database_labels=database_labels, affinity=affinity, self_rows=self_rows,
    )  # fmt: skip


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
    return find_code_loss(
        f"ndcg-{form}", activations, alpha, bins, database,
        labels=labels, database_labels=database_labels, affinity=affinity, self_rows=self_rows,
    )  # fmt: skip


def find_code_loss(
    formula: str,
    activations: torch.Tensor,
    alpha: float,
    bins: int | None,
    database: torch.Tensor | None,
    **grading: Any,
) -> torch.Tensor:
    """The loss of relaxed codes tanh(alpha f) by a formula over their Hamming distances."""
    alpha = _check.number("alpha", alpha)
    if alpha <= 0:
        _check.refuse(f"alpha must be above zero; got {alpha}.")
    x = rows_of_floats("activations", activations)
    bits = x.shape[1]
    bins = bits if bins is None else _check.whole("bins", bins, 1)
    if bins > bits:
        _check.refuse(f"bins must be at most the number of bits, {bits}; got {bins}.")
    return find_loss(formula, x, database, bins, alpha, grading)


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
