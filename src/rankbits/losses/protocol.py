"""The attributes by which a loss tells the trainer what it needs.

A loss is any callable of (embeddings, labels) -> scalar. It may have these attributes:

- ``takes_alpha``: it compares tanh(alpha f), and the trainer sets its ``alpha``;
- ``takes_database``: it ranks ``database=`` with ``database_labels=`` and ``self_rows=``;
- ``takes_rows``: its third argument is the training row of each embedding;
- ``after_epoch(embed, seed)``: called at the end of an epoch; ``embed(rows)`` returns the outputs
  of those training rows that can be read, and their numbers.
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


class LossWrapper(torch.nn.Module):
    """A loss that contains another one, ``loss``, and has its alpha."""

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
