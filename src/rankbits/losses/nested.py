"""Nested bits: codes whose first bits alone are good codes too."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from rankbits import _check
from rankbits.losses.protocol import LossWrapper, takes_database


class Nested(LossWrapper):
    """The mean of ``loss`` over prefixes of the embeddings, so that the first bits are good codes.

    ``prefixes`` are numbers of leading columns; the loss of all columns is always included. Codes
    can then be cut after any of these numbers, and one model serves several sizes (Matryoshka
    learning). ``loss`` is any loss(embeddings, labels); its ``database`` is cut in the same way.

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
