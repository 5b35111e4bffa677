"""Put a network behind features that are centred, and scaled by one number.

The features of a frozen network share a large mean, and a loss spends its first hundreds of steps
on that one direction. A linear layer could learn the shift, so this only saves time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rankbits.data.examples import Examples
from rankbits.papers.source import check_features
from rankbits.train import TrainConfig
from rankbits.train.run import build_model, choose_inputs


class Scaled(nn.Module):
    """Applies ``body`` to (x - middle) / spread; ``head`` is the body's.

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
    """Make the network of ``config``, behind features scaled by those of ``examples``."""
    features = torch.from_numpy(check_features("scaled = true", examples).astype(np.float32))
    middle = features.mean(dim=0)
    spread = float((features - middle).square().mean().sqrt()) or 1.0
    return Scaled(build_model(config, choose_inputs(examples, config)), middle, spread)
