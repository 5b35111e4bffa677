"""ResNet-50 in the layout of Keras' first weights, and ResNet-18 in torchvision's.

K. He et al., Deep residual learning (2016). ResNet-50 fits the authors' weights: the stride is in
the first 1 x 1 convolution of a stage, and images are BGR with the mean pixel subtracted. Keras
gave every convolution a bias and batch norm an epsilon of .001.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from rankbits import _check
from rankbits.models.folding import convolve_normed
from rankbits.models.pixels import IMAGENET, Pixels

DEPTHS = (3, 4, 6, 3)
MEAN_PIXEL = (103.939, 116.779, 123.68)


class ResNet50(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, 2048), 32 x ``width``; the published weights have ``side``
    224.

    >>> ResNet50(width=8).eval()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 256])
    """

    side = 224

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        width = _check.whole("width", width, 1)
        self.features = 32 * width
        mean = [value / 255 for value in MEAN_PIXEL]
        self.pixels = Pixels(mean, [1 / 255] * 3, reverse=True, side=32)
        self.stem = ConvNorm(3, width, 7, stride=2)
        self.stages = nn.ModuleList()
        before = width
        for stage, depth in enumerate(DEPTHS):
            inner, blocks = width * 2**stage, []
            for step in range(depth):
                stride = 2 if stage and not step else 1
                blocks.append(Bottleneck(before, inner, stride, widen=not step))
                before = 4 * inner
            self.stages.append(nn.Sequential(*blocks))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = functional.relu(self.stem(self.pixels(images)))
        maps = functional.max_pool2d(maps, 3, stride=2, padding=1)
        for stage in self.stages:
            maps = stage(maps)
        return maps.mean((2, 3))


class ResNet18(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, 512), 8 x ``width``.

    >>> ResNet18(width=8).eval()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 64])
    """

    side = 224

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.features = 8 * _check.whole("width", width, 1)
        self.pixels = Pixels(*IMAGENET, side=32)
        self.stem = ConvNorm(3, width, 7, 2, keras=False)
        sizes = [(width * 2 ** max(i - 1, 0), width * 2**i, 1 + (i > 0)) for i in range(4)]
        self.stages = nn.ModuleList(
            nn.Sequential(Basic(before, after, stride), Basic(after, after, 1))
            for before, after, stride in sizes
        )

    forward = ResNet50.forward


class Basic(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(before, after, 3, stride, keras=False)
        self.second = ConvNorm(after, after, 3, keras=False)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = ConvNorm(before, after, 1, stride, keras=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.second(functional.relu(self.first(x)))
        return functional.relu(inner + self.shortcut(x))


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int, widen: bool) -> None:
        super().__init__()
        self.reduce = ConvNorm(before, width, 1, stride=stride)
        self.spatial = ConvNorm(width, width, 3)
        self.expand = ConvNorm(width, 4 * width, 1)
        self.shortcut = ConvNorm(before, 4 * width, 1, stride=stride) if widen else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.reduce(x))
        inner = functional.relu(self.spatial(inner))
        return functional.relu(self.expand(inner) + self.shortcut(x))


class ConvNorm(nn.Module):
    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, keras: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=keras)
        epsilon, momentum = (1e-3, 0.01) if keras else (1e-5, 0.1)
        self.norm = nn.BatchNorm2d(after, epsilon, momentum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolve_normed(self.conv, self.norm, x)
