"""Nested bits: a loss of the first bits, of more of them, and of all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from rankbits import _check
from rankbits.losses.protocol import OfLoss, takes_database


class Nested(OfLoss):
    """The mean of ``loss`` over prefixes of the embeddings: the first bits alone are good codes.

    ``prefixes`` are numbers of leading columns; all columns count as well. Codes trained so can be
    cut after any of these numbers, so that one model serves several sizes (Matryoshka learning).
    ``loss`` is any loss(embeddings, labels); where it ranks a ``database``, that is cut alike.

    >>> from rankbits.losses import TieAwareAP
    >>> f, y = torch.tensor([[9.0, 9.0], [9.0, -9.0], [-9.0, 9.0]]), torch.tensor([0, 0, 1])
    >>> whole, first = TieAwareAP()(f, y), TieAwareAP()(f[:, :1], y)
    >>> bool(Nested(TieAwareAP(), (1,))(f, y) == (first + whole) / 2)
    True
    """

    def __init__(self, loss: torch.nn.Module, prefixes: Sequence[int]) -> None:
        super().__init__()
        self.loss = loss
        self.prefixes = tuple(_check.whole("A prefix", n, 1) for n in prefixes)
        if any(after <= before for before, after in itertools.pairwise(self.prefixes)):
            _check.refuse(f"prefixes must grow; got {self.prefixes}.")
        self.takes_database = takes_database(loss)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: Any = None,
        *,
        database: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        width = embeddings.shape[1]
        if self.prefixes and self.prefixes[-1] >= width:
            _check.refuse(f"prefixes must be less than all {width} columns; got {self.prefixes}.")
        values = []
        for columns in (*self.prefixes, width):
            if database is not None:
                options["database"] = database[:, :columns]
            values.append(self.loss(embeddings[:, :columns], labels, **options))
        return torch.stack(values).mean()

    def extra_repr(self) -> str:
        return f"prefixes={self.prefixes}"
