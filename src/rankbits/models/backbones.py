"""Make networks by name: a backbone makes features, an embedder is a backbone with a head."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rankbits import _check
from rankbits.models.classic import Classic
from rankbits.models.convolution import SmallConv
from rankbits.models.heads import MLP, EmbeddingHead, Features, HashHead, check_dropout
from rankbits.models.pixels import IMAGENET, Pixels
from rankbits.models.weights import PUBLISHED, load_published, load_weights

HEADS = {"hash": HashHead, "embedding": EmbeddingHead}
BACKBONES = ("linear", "mlp", "conv", *PUBLISHED)
CONVOLUTIONS = ("alexnet", "vgg16")  # published weights are loaded into their convolutions only
LIBRARIES = {"torchvision": "pip install 'rankbits[vision]'", "timm": "pip install timm"}


def make_backbone(
    name: str,
    weights: str | os.PathLike[str] | None = None,
    channels: int = 3,
    *,
    inputs: int | None = None,
    features: int = 256,
    **options: Any,
) -> nn.Module:
    """Make a network that turns each input into ``.features`` numbers.

    "linear" (features as they are) and "mlp" take (M, ``inputs``) rows. The others take images,
    (M, channels, H, W) RGB in [0, 1], and scale them as their weights need: "conv", "resnet50",
    "resnet18", "googlenet", "vgg-f", "alexnet" and "vgg16" (convolutions; "alexnet-full" and
    "vgg16-full" have the layers above them), "efficientnet-lite0" to 2, "torchvision:NAME" and
    "timm:NAME". ``weights`` is None (random), "imagenet" (see ``convert_weights``; torchvision and
    timm have their own) or a file. ``features`` is the number of features of "mlp" and "conv"; the
    others have a fixed number. ``options`` go to the network.

    >>> make_backbone("conv", channels=1, features=64).features
    64
    """
    network: nn.Module
    if name in ("linear", "mlp"):
        if inputs is None:
            _check.refuse(f"The backbone '{name}' needs inputs, the number of columns of a row.")
        fixed = {"inputs": inputs} if name == "linear" else {"inputs": inputs, "out": features}
        network = _build(Features if name == "linear" else MLP, name, fixed, options)
    elif name == "conv":
        network = _build(SmallConv, name, {"channels": channels, "out": features}, options)
    elif name in PUBLISHED:
        _check_channels(name, channels)
        if name in CONVOLUTIONS:
            network = _build(Classic, name, {"name": name}, options)
        else:
            network = _build(PUBLISHED[name].build, name, {}, options)
    elif ":" in str(name) and str(name).split(":")[0] in LIBRARIES:
        _check_channels(name, channels)
        library, _, network_name = name.partition(":")
        return _build_from_library(library, network_name, weights, options)
    else:
        _check.refuse(
            f"backbone must be one of {', '.join(BACKBONES)}, torchvision:NAME, timm:NAME; got "
            f"{name!r}{_check.suggest(str(name), BACKBONES)}."
        )
    if weights is None:
        return network
    new = ("top.",) if name in CONVOLUTIONS else ()
    if str(weights) != "imagenet":
        return load_weights(network, weights, new=new)
    if name not in PUBLISHED:
        _check.refuse(f"The backbone '{name}' has no published weights; got weights='imagenet'.")
    return load_published(name, network, new=new)


class Embedder(nn.Module):
    """A backbone and a head: inputs -> (M, out) floats.

    >>> make_embedder("linear", 16, inputs=64)(torch.rand(2, 64)).shape
    torch.Size([2, 16])
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.dropout = nn.Dropout(dropout) if check_dropout(dropout) else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.dropout(self.backbone(inputs)))
        return outputs


def make_embedder(
    name: str | nn.Module,
    out: int,
    head: str = "hash",
    weights: str | os.PathLike[str] | None = None,
    channels: int = 3,
    dropout: float = 0.0,
    **options: Any,
) -> Embedder:
    """Make a backbone with a new head of ``out`` numbers. ``name`` is that of a backbone, made by
    ``make_backbone`` with the ``options``, or a module that has ``.features``.

    "hash": :class:`HashHead`, "embedding": :class:`EmbeddingHead`. ``dropout`` is the share of the
    backbone's numbers that is dropped in training; an "mlp" drops it before each of its layers.
    """
    if name == "mlp":
        options["dropout"] = dropout
    layer = HEADS[_check.choice("head", head, tuple(HEADS))]
    backbone: Any = name
    if not isinstance(name, nn.Module):
        backbone = make_backbone(name, weights, channels, **options)
    features = getattr(backbone, "features", None)
    if not isinstance(features, int):
        _check.refuse("A backbone must say how many numbers it makes in .features, a whole number.")
    return Embedder(backbone, layer(features, out), dropout)


def find_head(model: nn.Module) -> nn.Module | None:
    """Find the layer that makes the outputs: ``model.head``, or the last child with parameters."""
    head = getattr(model, "head", None)
    if isinstance(head, nn.Module):
        return head
    children = [c for c in model.children() if any(True for _ in c.parameters())]
    return children[-1] if len(children) > 1 else None


def group_parameters(
    model: nn.Module, lr: float, head_multiple: float = 1.0, backbone_multiple: float = 1.0
) -> list[dict[str, Any]]:
    """Group parameters for an optimiser: the head and the backbone, each with its own rate.

    FastAP and H2Q train the new layer at 10 times the rate (``head_multiple=10``), TALR the
    pretrained ones at .1 or .01 of it (``backbone_multiple``). Frozen parameters are left out. A
    model without a head (``find_head``) is one group at ``lr``.

    >>> model = make_embedder("mlp", 8, inputs=4)
    >>> [(group["name"], group["lr"]) for group in group_parameters(model, 1e-3, 10)]
    [('backbone', 0.001), ('head', 0.01)]
    """
    rates = {"lr": lr, "head_multiple": head_multiple, "backbone_multiple": backbone_multiple}
    for name, value in rates.items():
        if _check.number(name, value) <= 0:
            _check.refuse(f"{name} must be greater than 0; got {value!r}.")
    head = find_head(model)
    of_head = {id(p) for p in head.parameters()} if head is not None else set()
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        ("backbone" if of_head else "model", [p for p in trained if id(p) not in of_head],
         backbone_multiple if of_head else 1.0),
        ("head", [p for p in trained if id(p) in of_head], head_multiple),
    ]  # fmt: skip
    return [{"name": name, "params": group, "lr": lr * by} for name, group, by in groups if group]


def _build(
    build: Callable[..., nn.Module], name: str, fixed: dict[str, Any], options: dict[str, Any]
) -> nn.Module:
    """Call ``build`` with the ``fixed`` arguments and the user's ``options``; refuse an option that
    it does not take."""
    free = [n for n in inspect.signature(build).parameters if n not in fixed]
    for option in options:
        if option not in free:
            listed = f"; it takes {', '.join(free)}" if free else ""
            _check.refuse(
                f"The backbone '{name}' has no option '{option}'"
                f"{_check.suggest(option, free)}{listed}."
            )
    return build(**{**fixed, **options})


def _check_channels(name: str, channels: int) -> None:
    if channels not in (1, 3):
        _check.refuse(
            f"'{name}' takes images of 3 channels, or 1 that is repeated; got {channels!r}."
        )


class _Scaled(nn.Module):
    """A network of another library that first scales images as its weights need."""

    def __init__(self, pixels: Pixels, network: nn.Module, features: int) -> None:
        super().__init__()
        self.pixels, self.network, self.features = pixels, network, features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.network(self.pixels(images))
        return outputs


def _build_from_library(
    library: str, name: str, weights: str | os.PathLike[str] | None, options: dict[str, Any]
) -> nn.Module:
    try:
        module = importlib.import_module(library)
    except ImportError:
        _check.refuse(f"'{library}:{name}' needs {library}: {LIBRARIES[library]}.")
    pretrained = str(weights) == "imagenet"
    try:
        if library == "timm":
            network = module.create_model(name, pretrained=pretrained, num_classes=0, **options)
        else:
            library_weights = "DEFAULT" if pretrained else None
            network = module.models.get_model(name, weights=library_weights, **options)
    except (ValueError, KeyError, RuntimeError) as error:
        _check.refuse(f"{library} does not make a network '{name}': {str(error).strip()[:200]}.")
    if library == "timm":
        features, scale = network.num_features, getattr(network, "pretrained_cfg", {})
        pixels = Pixels(scale.get("mean", IMAGENET[0]), scale.get("std", IMAGENET[1]))
    else:
        features, pixels = _remove_last_layer(network, name), Pixels(*IMAGENET)
    scaled = _Scaled(pixels, network, int(features))
    return scaled if weights is None or pretrained else load_weights(scaled, weights)


def _remove_last_layer(network: nn.Module, name: str) -> int:
    """Replace the last linear layer by an identity, and return the number of its inputs."""
    linear = [path for path, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        _check.refuse(f"torchvision's '{name}' does not end in a linear layer.")
    parent_path, _, attribute = linear[-1].rpartition(".")
    parent = network.get_submodule(parent_path)
    features: int = getattr(parent, attribute).in_features
    setattr(parent, attribute, nn.Identity())
    return features
