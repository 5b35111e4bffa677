"""A network behind features that are centred and scaled as a whole.

The features of a frozen network share a large mean, and a loss spends its first hundreds of steps
on that one direction. A linear layer can undo the shift, so nothing is gained but time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.train import TrainConfig
from rankbits.train.run import build_model, choose_inputs


class Scaled(nn.Module):
    """``body`` of (x - middle) / spread; ``head`` is the body's.

    >>> Scaled(nn.Identity(), torch.tensor([1.0, 2.0]), 2.0)(torch.tensor([[3.0, 2.0]]))
    tensor([[1., 0.]])
    """

    middle: torch.Tensor

    def __init__(self, body: nn.Module, middle: torch.Tensor, spread: float) -> None:
        super().__init__()
        self.body, self.spread = body, spread
        self.register_buffer("middle", middle)

    @property
    def head(self) -> nn.Module | None:
        return getattr(self.body, "head", None)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.body((features - self.middle) / self.spread)


def make_scaled(config: TrainConfig, examples: Examples) -> Scaled:
    """The network of ``config``, from its seed, behind features scaled by those of ``examples``."""
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "features":
        _check.refuse(f"scaled is for features; got {examples.kind}.")
    features = torch.from_numpy(examples.inputs.astype(np.float32))
    middle = features.mean(dim=0)
    spread = float((features - middle).square().mean().sqrt()) or 1.0
    return Scaled(build_model(config, choose_inputs(examples, config)), middle, spread)
