"""What the trainer may ask of a loss besides its value.

A loss is any callable of (embeddings, labels) -> scalar. It may say more by attributes:

- ``takes_alpha``: it compares tanh(alpha f), and the trainer sets its ``alpha``;
- ``takes_database``: it ranks ``database=`` with ``database_labels=`` and ``self_rows=``;
- ``takes_rows``: its third argument is the training row of each embedding;
- ``after_epoch(embed, seed)``: called at the end of an epoch; ``embed(rows)`` gives the outputs of
  training rows, and which rows they are, because some may not be readable.
"""

from __future__ import annotations

from typing import Any

import torch


def takes_alpha(loss: object) -> bool:
    return bool(getattr(loss, "takes_alpha", False))


def takes_database(loss: object) -> bool:
    return bool(getattr(loss, "takes_database", False))


def takes_rows(loss: object) -> bool:
    return bool(getattr(loss, "takes_rows", False))


class OfLoss(torch.nn.Module):
    """A loss made of another one, ``loss``, whose alpha it shows as its own."""

    loss: torch.nn.Module

    @property
    def takes_alpha(self) -> bool:
        return takes_alpha(self.loss)

    @property
    def alpha(self) -> Any:
        return self.loss.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.loss.alpha = value  # type: ignore[assignment]
