"""A network that reads an image at two sizes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import interpolate, normalize


class TwoScales(nn.Module):
    """Averages a network's features of an image and of a copy with the side ``smaller``.

    Both are scaled to length 1 first, and so is the mean. The image shows details; the copy is
    nearer to the size that the network was trained on.

    >>> class Mean(nn.Module):
    ...     features = 3
    ...     def forward(self, images):
    ...         return images.mean(dim=(2, 3))
    >>> TwoScales(Mean(), smaller=4)(torch.rand(2, 3, 8, 8)).norm(dim=1).round(decimals=4)
    tensor([1., 1.])
    """

    def __init__(self, network: nn.Module, smaller: int) -> None:
        super().__init__()
        self.network, self.smaller = network, smaller
        self.features = network.features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        size = (self.smaller, self.smaller)
        small = interpolate(images, size, mode="bilinear", antialias=True)
        return normalize(normalize(self.network(images)) + normalize(self.network(small)))
