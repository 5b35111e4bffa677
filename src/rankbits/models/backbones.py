"""Networks by name: a backbone makes features, an embedder puts a head on it."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rankbits import _check
from rankbits.models.classic import LAYERS, Classic
from rankbits.models.convolution import SmallConv
from rankbits.models.heads import MLP, EmbeddingHead, Features, HashHead, share_dropped
from rankbits.models.pixels import IMAGENET, Pixels
from rankbits.models.weights import PUBLISHED, load_published, load_weights

HEADS = {"hash": HashHead, "embedding": EmbeddingHead}
BACKBONES = ("linear", "mlp", "conv", *PUBLISHED)
ELSEWHERE = {"torchvision": "pip install 'rankbits[vision]'", "timm": "pip install timm"}


def backbone(
    name: str,
    weights: str | os.PathLike[str] | None = None,
    channels: int = 3,
    *,
    inputs: int | None = None,
    features: int = 256,
    **options: Any,
) -> nn.Module:
    """A network that makes features, ``.features`` of them for each input.

    "linear" (features as they are) and "mlp" take (M, ``inputs``) rows; "conv", "resnet50",
    "alexnet", "vgg16", "efficientnet-lite0" to 2, "torchvision:NAME" and "timm:NAME" take images,
    (M, channels, H, W) RGB in [0, 1], and scale them as their weights want it. ``weights`` is None
    (random), "imagenet" (converted beforehand, see ``convert``; from their own sources for the
    last two) or a file. ``features`` says how many numbers "mlp" and "conv" make; the others have
    their own. ``options`` go to the network.

    >>> backbone("conv", channels=1, features=64).features
    64
    """
    made: nn.Module
    if name in ("linear", "mlp"):
        if inputs is None:
            _check.refuse(f"The backbone '{name}' needs inputs, the number of columns of a row.")
        own = {"inputs": inputs} if name == "linear" else {"inputs": inputs, "out": features}
        made = _made(Features if name == "linear" else MLP, name, own, options)
    elif name == "conv":
        made = _made(SmallConv, name, {"channels": channels, "out": features}, options)
    elif name in PUBLISHED:
        _three(name, channels)
        if name in LAYERS:
            made = _made(Classic, name, {"name": name}, options)
        else:
            made = _made(PUBLISHED[name].build, name, {}, options)
    elif ":" in str(name) and str(name).split(":")[0] in ELSEWHERE:
        _three(name, channels)
        library, _, theirs = name.partition(":")
        return _elsewhere(library, theirs, weights, options)
    else:
        known = (*BACKBONES, "torchvision:NAME", "timm:NAME")
        _check.refuse(
            f"backbone must be one of {', '.join(known)}; got {name!r}"
            f"{_check.nearest(str(name), BACKBONES)}."
        )
    if weights is None:
        return made
    new = ("top.",) if name in LAYERS else ()
    if str(weights) != "imagenet":
        return load_weights(made, weights, new=new)
    if name not in PUBLISHED:
        _check.refuse(f"The backbone '{name}' has no published weights; got weights='imagenet'.")
    return load_published(name, made, new=new)


class Embedder(nn.Module):
    """A backbone and a head: inputs -> (M, out) floats.

    >>> embedder("linear", 16, inputs=64)(torch.rand(2, 64)).shape
    torch.Size([2, 16])
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.dropout = nn.Dropout(dropout) if share_dropped(dropout) else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.dropout(self.backbone(inputs)))
        return found


def embedder(
    name: str | nn.Module,
    out: int,
    head: str = "hash",
    weights: str | os.PathLike[str] | None = None,
    channels: int = 3,
    dropout: float = 0.0,
    **options: Any,
) -> Embedder:
    """``backbone(name, …)``, or a module with ``.features``, under a new head of ``out`` numbers.

    "hash": :class:`HashHead`, "embedding": :class:`EmbeddingHead`. ``dropout`` of the backbone's
    numbers are dropped in training; an "mlp" drops as many before each of its own layers.
    """
    if name == "mlp":
        options["dropout"] = dropout
    layer = HEADS[_check.choice("head", head, tuple(HEADS))]
    below = name if isinstance(name, nn.Module) else backbone(name, weights, channels, **options)
    made = getattr(below, "features", None)
    if not isinstance(made, int):
        _check.refuse("A backbone must say how many numbers it makes in .features, a whole number.")
    return Embedder(below, layer(made, out), dropout)


def head_of(model: nn.Module) -> nn.Module | None:
    """The layer that makes the outputs: ``model.head``, or the last child that has parameters."""
    named = getattr(model, "head", None)
    if isinstance(named, nn.Module):
        return named
    children = [c for c in model.children() if any(True for _ in c.parameters())]
    return children[-1] if len(children) > 1 else None


def groups(
    model: nn.Module, lr: float, head_multiple: float = 1.0, backbone_multiple: float = 1.0
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser: the head and the backbone, each with its own rate.

    FastAP and H2Q train the new layer at 10 times the rate (``head_multiple=10``), TALR the
    pretrained ones at .1 or .01 of it (``backbone_multiple``). Frozen parameters are left out. A
    model without a head (``head_of``) is one group at ``lr``.

    >>> [(g["name"], g["lr"]) for g in groups(embedder("mlp", 8, inputs=4), 1e-3, 10)]
    [('backbone', 0.001), ('head', 0.01)]
    """
    for said, value in (("lr", lr), ("head_multiple", head_multiple),
                        ("backbone_multiple", backbone_multiple)):  # fmt: skip
        if _check.number(said, value) <= 0:
            _check.refuse(f"{said} must be greater than 0; got {value!r}.")
    head = head_of(model)
    last = {id(p) for p in head.parameters()} if head is not None else set()
    found = [p for p in model.parameters() if p.requires_grad]
    parts = [
        ("backbone" if last else "model", [p for p in found if id(p) not in last],
         backbone_multiple if last else 1.0),
        ("head", [p for p in found if id(p) in last], head_multiple),
    ]  # fmt: skip
    return [{"name": said, "params": its, "lr": lr * by} for said, its, by in parts if its]


def _made(
    build: Callable[..., nn.Module], name: str, own: dict[str, Any], options: dict[str, Any]
) -> nn.Module:
    known = [n for n in inspect.signature(build).parameters if n not in own]
    for option in options:
        if option not in known:
            listed = f"; it takes {', '.join(known)}" if known else ""
            _check.refuse(
                f"The backbone '{name}' has no option '{option}'"
                f"{_check.nearest(option, known)}{listed}."
            )
    return build(**{**own, **options})


def _three(name: str, channels: int) -> None:
    if channels not in (1, 3):
        _check.refuse(
            f"'{name}' takes images of 3 channels, or 1 that is repeated; got {channels!r}."
        )


class _Scaled(nn.Module):
    """Someone else's network behind the scaling that its weights want."""

    def __init__(self, pixels: Pixels, network: nn.Module, features: int) -> None:
        super().__init__()
        self.pixels, self.network, self.features = pixels, network, features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(self.pixels(images))
        return found


def _elsewhere(
    library: str, name: str, weights: str | os.PathLike[str] | None, options: dict[str, Any]
) -> nn.Module:
    try:
        found = importlib.import_module(library)
    except ImportError:
        _check.refuse(f"'{library}:{name}' needs {library}: {ELSEWHERE[library]}.")
    theirs = str(weights) == "imagenet"
    try:
        if library == "timm":
            network = found.create_model(name, pretrained=theirs, num_classes=0, **options)
        else:
            weight = "DEFAULT" if theirs else None
            network = found.models.get_model(name, weights=weight, **options)
    except (ValueError, KeyError, RuntimeError) as error:
        _check.refuse(f"{library} does not make a network '{name}': {str(error).strip()[:200]}.")
    if library == "timm":
        features, scale = network.num_features, getattr(network, "pretrained_cfg", {})
        pixels = Pixels(scale.get("mean", IMAGENET[0]), scale.get("std", IMAGENET[1]))
    else:
        features, pixels = _behead(network, name), Pixels(*IMAGENET)
    made = _Scaled(pixels, network, int(features))
    return made if weights is None or theirs else load_weights(made, weights)


def _behead(network: nn.Module, name: str) -> int:
    """Put an identity where the last linear layer stood; returns what it was given."""
    last = [place for place, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not last:
        _check.refuse(f"torchvision's '{name}' does not end in a linear layer.")
    above, _, own = last[-1].rpartition(".")
    parent = network.get_submodule(above)
    features: int = getattr(parent, own).in_features
    setattr(parent, own, nn.Identity())
    return features
