"""AlexNet, VGG-16 and VGG-F: the networks of the hashing papers.

AlexNet and VGG-16 have torchvision's layers (H2Q starts from torchvision's weights), VGG-F has
those of K. Chatfield et al. (2014) as MatConvNet publishes them (TALR). The last layer, which names
classes, is left out.
"""

from __future__ import annotations

import torch
from torch import nn

from rankbits import _check
from rankbits.models.heads import check_dropout
from rankbits.models.pixels import IMAGENET, Pixels

# (channels, kernel, stride, padding) of a convolution, (kernel, stride) of a pooling, () for local
# response normalisation
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
    "vgg-f": (
        (64, 11, 4, 0), (), (3, 2), (256, 5, 1, 2), (), (3, 2), (256, 3, 1, 1), (256, 3, 1, 1),
        (256, 3, 1, 1), (3, 2),
    ),
}  # fmt: skip
GRID = {"alexnet": 6, "vgg16": 7, "vgg-f": 6}  # side of the maps that the full layers read
FULL = 4096  # width of a full layer


class Classic(nn.Module):
    """(M, 3, H, W) RGB in [0, 1] -> (M, features); the published weights have ``side`` 224.

    ``top="average"`` takes the mean over the image (256 features, VGG-16: 512); ``top="full"`` has
    the original's two layers of 4096, with ``dropout`` at the original's places.

    >>> Classic("alexnet")(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 256])
    """

    side = 224

    def __init__(self, name: str = "alexnet", top: str = "average", dropout: float = 0.5) -> None:
        super().__init__()
        _check.choice("name", name, tuple(LAYERS))
        _check.choice("top", top, ("average", "full"))
        check_dropout(dropout)
        if name == "vgg-f":
            self.pixels = Pixels(IMAGENET[0], [1 / 255] * 3, side=64, keep_mean=True)
        else:
            self.pixels = Pixels(*IMAGENET, side=64 if name == "alexnet" else 32)
        layers: list[nn.Module] = []
        before = 3
        for layer in LAYERS[name]:
            if not layer:
                layers.append(nn.LocalResponseNorm(5, alpha=5e-4, k=2.0))
            elif len(layer) == 2:
                layers.append(nn.MaxPool2d(*layer, ceil_mode=name == "vgg-f"))
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
                full, drop = (nn.Linear(inputs, FULL), nn.ReLU()), nn.Dropout(dropout)
                self.top.extend((*full, drop) if name == "vgg16" else (drop, *full))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.top(self.convolutions(self.pixels(images)))
        return features
