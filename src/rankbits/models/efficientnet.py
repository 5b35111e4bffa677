"""EfficientNet-lite 0, 1 and 2: 1280 features of an image, fast enough on a CPU.

M. Tan and Q. Le, EfficientNet (2019), in the lite form: no squeeze-and-excitation, ReLU6, and a
stem and a head that do not grow with the network. Padding is TensorFlow's "same": where a stride
makes it uneven, the odd pixel goes to the right and below.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from rankbits import _check
from rankbits.models.folding import convolve_normed
from rankbits.models.pixels import Pixels

# (repeats, kernel, stride, expansion, channels out) of lite0
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# (width, depth, side of the published weights)
SCALES = ((1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260))
STEM, HEAD = 32, 1280


class EfficientNetLite(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, 1280).

    The published scaling, (x - 127) / 128 of values 0 to 255, is (x - 127/255) / (128/255) here.
    ``side`` is the image side that the published weights were trained for; any from 32 works.

    >>> EfficientNetLite(0).eval()(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 1280])
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        if _check.whole("size", size, 0) >= len(SCALES):
            _check.refuse(f"size must be 0, 1 or 2 (EfficientNet-lite0 to 2); got {size!r}.")
        width, depth, self.side = SCALES[size]
        self.features = HEAD
        self.pixels = Pixels([127 / 255] * 3, [128 / 255] * 3, side=32)
        self.stem = ConvNorm(3, STEM, 3, stride=2)
        blocks, before = [], STEM
        for stage, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
            after = _round_to_eight(channels * width)
            if 0 < stage < len(STAGES) - 1:
                repeats = math.ceil(repeats * depth)
            for step in range(repeats):
                blocks.append(Block(before, after, kernel, stride if step == 0 else 1, expansion))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(before, HEAD, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.head(self.blocks(self.stem(self.pixels(images))))
        return maps.mean((2, 3))


class Block(nn.Module):
    """Widen, filter each channel, narrow; the input is added where the shape does not change."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expand = ConvNorm(before, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel, stride=stride, groups=wide)
        self.project = ConvNorm(wide, after, 1, active=False)
        self.skip = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.project(self.depthwise(self.expand(x)))
        return outputs + x if self.skip else outputs


class ConvNorm(nn.Module):
    """Convolution with "same" padding, batch norm, ReLU6."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ) -> None:
        super().__init__()
        self.conv = SameConv(before, after, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3, momentum=0.01)
        self.active = active

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = convolve_normed(self.conv, self.norm, x)
        return functional.relu6(outputs) if self.active else outputs


class SameConv(nn.Conv2d):
    """A convolution whose output has ceil(side / stride) pixels. Where the padding is odd, there is
    less on the left and top than on the right and below."""

    def _conv_forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        totals = [max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[2:]]
        before = [total // 2 for total in totals]
        if any(total % 2 for total in totals):
            (top, left), (high, wide) = before, totals
            x, before = functional.pad(x, (left, wide - left, top, high - top)), [0, 0]
        return functional.conv2d(x, weight, bias, stride, before, 1, self.groups)


def _round_to_eight(channels: float) -> int:
    """Round to the nearest multiple of 8, but never to more than a tenth below ``channels``."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
