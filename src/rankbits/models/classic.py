"""AlexNet and VGG-16: the convolutions of the hashing papers' networks, under a new top.

Layers are numbered as in torchvision. Without it, only the weights of the convolutions can be had,
so the layers above them start anew; ``torchvision:alexnet`` has the original top.
"""

from __future__ import annotations

import torch
from torch import nn

from rankbits import _check
from rankbits.models.heads import check_dropout
from rankbits.models.pixels import IMAGENET, Pixels

# (channels, kernel, stride, padding) of a convolution, (kernel, stride) of a pooling
LAYERS: dict[str, tuple[tuple[int, ...], ...]] = {
    "alexnet": (
        (64, 11, 4, 2), (3, 2), (192, 5, 1, 2), (3, 2), (384, 3, 1, 1), (256, 3, 1, 1),
        (256, 3, 1, 1), (3, 2),
    ),
    "vgg16": tuple(
        layer
        for channels, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
        for layer in (*[(channels, 3, 1, 1)] * times, (2, 2))
    ),
}  # fmt: skip
GRID = {"alexnet": 6, "vgg16": 7}
FULL = 4096


class Classic(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, features); ``side`` 224 is that of the published weights.

    ``top="average"`` takes the mean over the image (256 features for AlexNet, 512 for VGG-16);
    ``top="full"`` puts two new layers of 4096 with dropout where the original had its own.

    >>> Classic("alexnet")(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 256])
    """

    side = 224

    def __init__(self, name: str = "alexnet", top: str = "average", dropout: float = 0.5) -> None:
        super().__init__()
        _check.choice("name", name, tuple(LAYERS))
        _check.choice("top", top, ("average", "full"))
        check_dropout(dropout)
        self.pixels = Pixels(*IMAGENET, side=64 if name == "alexnet" else 32)
        layers: list[nn.Module] = []
        before = 3
        for layer in LAYERS[name]:
            if len(layer) == 2:
                layers.append(nn.MaxPool2d(*layer))
            else:
                channels, kernel, stride, padding = layer
                layers += [nn.Conv2d(before, channels, kernel, stride, padding), nn.ReLU()]
                before = channels
        self.convolutions = nn.Sequential(*layers)
        self.features = before if top == "average" else FULL
        self.top = nn.Sequential(nn.AdaptiveAvgPool2d(1 if top == "average" else GRID[name]))
        self.top.append(nn.Flatten())
        if top == "full":
            for inputs in (before * GRID[name] ** 2, FULL):
                self.top.extend([nn.Dropout(dropout), nn.Linear(inputs, FULL), nn.ReLU()])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.top(self.convolutions(self.pixels(images)))
        return features
