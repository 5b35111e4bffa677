"""A small network for small images, which trains in minutes on a laptop's CPU."""

from __future__ import annotations

import torch
from torch import nn

from rankbits import _check
from rankbits.models.pixels import Pixels

SIDE = 16  # pixels: four blocks halve a side four times


class SmallConv(nn.Module):
    """(M, channels, H, W) in [0, 1] -> (M, out): four blocks of convolution, norm, ReLU, pooling.

    The customary network for Omniglot's 28 x 28 drawings, good for sides of 16 to 64 pixels: each
    block halves the image, and the result is averaged over the image. The widths of the blocks are
    ``width``, twice and four times that, and ``out``. With ``norm="group"`` an output does not
    depend on the rest of its batch, in training either.

    >>> SmallConv(1, out=32, width=8)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 32])
    """

    def __init__(
        self, channels: int = 1, out: int = 256, width: int = 32, norm: str = "batch"
    ) -> None:
        super().__init__()
        _check.choice("norm", norm, ("batch", "group"))
        channels = _check.whole("channels", channels, 1)
        width, self.features = _check.whole("width", width, 1), _check.whole("out", out, 1)
        self.pixels = Pixels([0.5] * channels, [0.5] * channels, side=SIDE)
        blocks = []
        for before, after in zip(
            (channels, width, 2 * width, 4 * width),
            (width, 2 * width, 4 * width, self.features),
            strict=True,
        ):
            blocks += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after) if norm == "batch" else _make_group_norm(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.blocks(self.pixels(images))
        return maps.mean((2, 3))


def _make_group_norm(width: int) -> nn.GroupNorm:
    """Make a group norm of at most 8 groups, whose number divides the width."""
    return nn.GroupNorm(next(count for count in (8, 4, 2, 1) if width % count == 0), width)
