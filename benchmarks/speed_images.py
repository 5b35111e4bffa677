"""How fast our networks embed and learn on a CPU, compared with the same layers unchanged.

    python benchmarks/speed_images.py [--quick] [--save]

Unchanged layers keep colours in planes, and every batch norm is a pass of its own. Ours keep the
colours of a pixel together and, for embedding, multiply the norm into the convolution before it.
Both have the same random weights, and their outputs agree.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional

from _bench import Bench, agree, compare
from rankbits.models import efficientnet, resnet
from rankbits.models.convolution import SmallConv
from rankbits.models.efficientnet import EfficientNetLite
from rankbits.models.pixels import Pixels
from rankbits.models.resnet import ResNet50

THREADS, SEED = 2, 0
CASES = (  # network, side, images to embed and to learn from at a time (0: it is not timed)
    ("EfficientNet-lite0", lambda: EfficientNetLite(0), 224, 1, 0),
    ("EfficientNet-lite0", lambda: EfficientNetLite(0), 224, 32, 16),
    ("EfficientNet-lite0", lambda: EfficientNetLite(0), 128, 64, 32),
    ("ResNet-50", ResNet50, 224, 1, 0),
    ("ResNet-50", ResNet50, 224, 16, 8),
    ("SmallConv", lambda: SmallConv(3), 32, 512, 256),
)


class PlainPixels(Pixels):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = images.flip(1) if self.reverse else images
        return (images - self.mean) / self.std


class PlainLite(efficientnet.ConvNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.conv(x))
        return functional.relu6(found) if self.active else found


class PlainRes(resnet.ConvNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


PLAIN = {Pixels: PlainPixels, efficientnet.ConvNorm: PlainLite, resnet.ConvNorm: PlainRes}


def as_it_comes(network: nn.Module) -> nn.Module:
    made = copy.deepcopy(network)
    for module in made.modules():
        module.__class__ = PLAIN.get(type(module), type(module))
    return made


def measured(bench: Bench, case: tuple, repeats: int) -> None:
    name, make, side, embedded, learned = case
    torch.manual_seed(SEED)
    ours = make()
    for norm in (m for m in ours.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
        norm.weight.data.uniform_(0.5, 1.5)
    networks = {"as it comes": as_it_comes(ours), "rankbits": ours}
    images = torch.rand(embedded, 3, side, side)

    def embed(network: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return network.eval()(images)

    def learn(network: nn.Module) -> None:
        network.train()(images[:learned]).square().mean().backward()

    largest = float(embed(ours).abs().max())
    agree({n: embed(m) / largest for n, m in networks.items()}, tolerance=1e-4)
    for what, act, many in (("embed", embed, embedded), ("learn", learn, learned)):
        if not many:
            continue
        functions = {n: lambda m=m, act=act: act(m) for n, m in networks.items()}
        timings = compare(functions, work=many, unit="images", repeats=repeats)
        title = f"{what}: {name} at {side}, {many} at a time"
        bench.report(title, timings, ("rankbits",), side=side, what=what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    bench = Bench("speed_images", threads=THREADS, seed=SEED)
    for case in CASES:
        measured(bench, case, 2 if arguments.quick else 7)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
