"""GoogLeNet, the first Inception network: 1024 features of an image.

C. Szegedy et al., Going deeper with convolutions (2015), without batch norm, as FastAP's supplement
used it (torchvision's network of this name has batch norm). Layers have the names of MatConvNet's
file: ``icp1`` to ``icp9`` are the modules 3a to 5b.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from rankbits.models.heads import check_dropout
from rankbits.models.pixels import IMAGENET, Pixels

# channels of the branches: 1 x 1; reduced, 3 x 3; reduced, 5 x 5; pooled
MODULES = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
POOLED = (2, 7)  # modules after which the maps are halved


class GoogLeNet(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, 1024).

    >>> GoogLeNet().eval()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 1024])
    """

    side = 224

    def __init__(self, dropout: float = 0.4) -> None:
        super().__init__()
        self.pixels = Pixels(IMAGENET[0], [1 / 255] * 3, side=32, keep_mean=True)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3)
        self.reduction2 = nn.Conv2d(64, 64, 1)
        self.conv2 = nn.Conv2d(64, 192, 3, 1, 1)
        self.norm = nn.LocalResponseNorm(5)
        before = 192
        for number, channels in enumerate(MODULES, 1):
            module = Inception(before, channels)
            setattr(self, f"icp{number}", module)
            before = module.channels
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.features = before

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.norm(_halve(functional.relu(self.conv1(self.pixels(images)))))
        maps = functional.relu(self.reduction2(maps))
        maps = _halve(self.norm(functional.relu(self.conv2(maps))))
        for number in range(1, len(MODULES) + 1):
            maps = getattr(self, f"icp{number}")(maps)
            if number in POOLED:
                maps = _halve(maps)
        features: torch.Tensor = self.dropout(maps.mean((2, 3)))
        return features


class Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, before: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        small, reduced, middle, reduced_more, large, pooled = channels
        self.out0 = nn.Conv2d(before, small, 1)
        self.reduction1 = nn.Conv2d(before, reduced, 1)
        self.out1 = nn.Conv2d(reduced, middle, 3, padding=1)
        self.reduction2 = nn.Conv2d(before, reduced_more, 1)
        self.out2 = nn.Conv2d(reduced_more, large, 5, padding=2)
        self.out3 = nn.Conv2d(before, pooled, 1)
        self.channels = small + middle + large + pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branches = (
            self.out0(x),
            self.out1(functional.relu(self.reduction1(x))),
            self.out2(functional.relu(self.reduction2(x))),
            self.out3(functional.max_pool2d(x, 3, 1, 1)),
        )
        return functional.relu(torch.cat(branches, dim=1))


def _halve(maps: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(maps, 3, 2, ceil_mode=True)
