"""The tie-aware losses of TALR: AP and NDCG of relaxed Hamming rankings.

Each has three forms. ``simple``: what the authors trained with (Eq. 62, 66). ``relaxed``: the
paper's integrals (Eq. 11, 12), guarded where they are singular. ``exact``: equal to the tie-aware
metric on whole counts, and smooth in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows, compute_histogram_loss, outside_graphs
from rankbits.losses.settings import check_above_zero

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
    ``self_rows`` are as in ``fastap_loss``.

    >>> f = torch.tensor([[9.0, 9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    >>> tie_aware_ap_loss(f, torch.tensor([0, 0, 1, 1]), form="exact").round(decimals=4)
    tensor(0.)
    """
    _check.choice("form", form, FORMS)
    return compute_code_loss(
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

    The arguments are those of ``tie_aware_ap_loss``, but affinities are graded, with gain
    2^affinity - 1: (M,) labels give 1 where they are equal, multi-hot labels the number that they
    share, ``affinity`` any few non-negative values. The normaliser is the best DCG of the query's
    items, without the query itself.

    Perfect codes tie all relevant items. There ``exact`` is 0, ``simple`` stays above 0 (Eq. 66 is
    a lower bound of DCG) and ``relaxed`` falls below (Eq. 12 overestimates DCG).

    >>> f = torch.tensor([[9.0, 9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    >>> tie_aware_ndcg_loss(f, torch.tensor([0, 0, 1, 1]), form="exact").round(decimals=4)
    tensor(0.)
    """
    _check.choice("form", form, FORMS)
    return compute_code_loss(
        f"ndcg-{form}", activations, alpha, bins, database,
        labels=labels, database_labels=database_labels, affinity=affinity, self_rows=self_rows,
    )  # fmt: skip


def compute_code_loss(
    formula: str,
    activations: torch.Tensor,
    alpha: float,
    bins: int | None,
    database: torch.Tensor | None,
    **grading: Any,
) -> torch.Tensor:
    """Compute the loss of relaxed codes tanh(alpha f) by a formula over their Hamming distances."""
    alpha = check_above_zero("alpha", alpha)
    x = check_rows("activations", activations)
    bits = x.shape[1]
    bins = bits if bins is None else _check.whole("bins", bins, 1)
    if bins > bits:
        _check.refuse(f"bins must be at most the number of bits, {bits}; got {bins}.")
    return compute_histogram_loss(formula, x, database, bins, alpha, grading)


class _TieAware(torch.nn.Module):
    function: ClassVar[Callable[..., torch.Tensor]]
    takes_alpha = takes_database = True  # see losses/protocol.py

    def __init__(self, form: str = "simple", alpha: float = 1.0, bins: int | None = None) -> None:
        super().__init__()
        self.form = _check.choice("form", form, FORMS)
        self.alpha = _check.number("alpha", alpha)
        self.bins = None if bins is None else _check.whole("bins", bins, 1)

    def forward(
        self, activations: torch.Tensor, labels: Any = None, **options: Any
    ) -> torch.Tensor:
        settings = self.form, self.alpha, self.bins
        return type(self).function(activations, labels, *settings, **options)

    def extra_repr(self) -> str:
        return f"form={self.form!r}, alpha={self.alpha}, bins={self.bins}"


class TieAwareAP(_TieAware):
    """``tie_aware_ap_loss`` as a module; ``alpha`` may be raised between steps to tighten tanh.

    >>> TieAwareAP(form="exact", alpha=2)
    TieAwareAP(form='exact', alpha=2.0, bins=None)
    """

    function = tie_aware_ap_loss


class TieAwareNDCG(_TieAware):
    """``tie_aware_ndcg_loss`` as a module; ``alpha`` may be raised between steps."""

    function = tie_aware_ndcg_loss
