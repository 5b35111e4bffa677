"""The scaling of images: each backbone scales them as in the training of its weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rankbits import _check

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Pixels(nn.Module):
    """(M, C, H, W) RGB in [0, 1] -> (x - mean) / std, in BGR with ``reverse``.

    ``mean`` and ``std`` are in the order of the result. Grey images (C = 1) are repeated for each
    of the network's colours. Whole numbers (0 to 255) are refused, because their scale would be
    wrong and nobody would notice. ``keep_mean``: the mean is loaded and saved with the weights.

    >>> Pixels((0.5,), (0.5,))(torch.ones(1, 1, 2, 2)).unique()
    tensor([1.])
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        reverse: bool = False,
        side: int = 1,
        keep_mean: bool = False,
    ) -> None:
        super().__init__()
        self.reverse, self.side = reverse, side
        for name, value in (("mean", mean), ("std", std)):
            shaped = torch.tensor(tuple(value), dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(name, shaped, persistent=keep_mean and name == "mean")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        colours = self.mean.shape[1]
        if images.ndim != 4 or images.shape[1] not in (1, colours):
            _check.refuse(
                f"Images must have shape (M, {colours}, H, W); got {tuple(images.shape)}."
            )
        if not images.is_floating_point():
            _check.refuse(f"Images must be floats from 0 to 1; got {images.dtype}.")
        if min(images.shape[2:]) < self.side:
            _check.refuse(
                f"Images must be at least {self.side} x {self.side} pixels; got "
                f"{images.shape[2]} x {images.shape[3]}."
            )
        images = images.expand(-1, colours, -1, -1)
        if self.reverse:
            images = images.flip(1)
        scaled = (images - self.mean) / self.std
        # on a CPU convolutions are faster where the colours of a pixel lie together
        cpu = scaled.device.type == "cpu"
        return scaled.contiguous(memory_format=torch.channels_last) if cpu else scaled
