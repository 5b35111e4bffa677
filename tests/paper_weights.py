"""Weights of the papers' networks in their publishers' own files, made by the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from rankbits.models import PUBLISHED
from rankbits.models.paper_files import BLOCK, PLACES

FILES = {
    "alexnet-full": "alexnet-owt-7be5be79.pth",
    "vgg16-full": "vgg16-397923af.pth",
    "resnet18": "resnet18-f37072fd.pth",
    "vgg-f": "imagenet-vgg-f.mat",
    "googlenet": "imagenet-googlenet-dag.mat",
}


def write_weights(name: str, folder: Path, network: torch.nn.Module) -> Path:
    """The network's weights as their publisher has them, with the layer that is dropped."""
    path = folder / FILES[name]
    state = {k: v for k, v in network.state_dict().items() if k != "pixels.mean"}
    if path.suffix == ".mat":
        _write_mat(path, name, state)
        return path
    theirs = {_name_as_torchvision(key): value for key, value in state.items()}
    last = "fc" if name == "resnet18" else "classifier.6"
    theirs |= {f"{last}.weight": torch.ones(3, 4), f"{last}.bias": torch.ones(3)}
    torch.save(theirs, path)
    return path


def _name_as_torchvision(key: str) -> str:
    parts = key.split(".")
    if parts[0] == "stages":
        inner = {ours: theirs for theirs, ours in BLOCK.items()}[".".join(parts[3:5])]
        return f"layer{int(parts[1]) + 1}.{parts[2]}.{inner}.{parts[5]}"
    if parts[0] == "top":
        return ".".join(["classifier", str(int(parts[1]) - 2), parts[2]])
    if parts[0] == "stem":
        return f"{'conv1' if parts[1] == 'conv' else 'bn1'}.{parts[2]}"
    return ".".join(["features", *parts[1:]])


def _write_mat(path: Path, name: str, state: dict[str, torch.Tensor]) -> None:
    """A network of MatConvNet: filters (height, width, in, out), a mean image of 0 to 255."""
    from scipy.io import savemat

    layers: dict[str, dict[str, np.ndarray]] = {}
    ours = {place: layer for layer, place in PLACES.items()}
    for key, value in state.items():
        place, kind = key.rsplit(".", 1)
        layer = ours[place] if name == "vgg-f" else place.replace(".", "_")
        array = value.numpy()
        if (layer, kind) == ("fc6", "weight"):
            array = array.reshape(len(array), -1, 6, 6)
        while kind == "weight" and array.ndim < 4:
            array = array[..., None]
        turned = array.transpose(2, 3, 1, 0) if kind == "weight" else array[None]
        layers.setdefault(layer, {})[kind] = turned
    layers["fc8" if name == "vgg-f" else "cls3_fc"] = {
        "weight": np.ones((1, 1, 4, 3)), "bias": np.ones((1, 3))
    }  # fmt: skip
    average = np.broadcast_to(np.float32([100.0, 120.0, 140.0]), (8, 8, 3))
    table: dict[str, object] = {"meta": {"normalization": {"averageImage": average}}}
    if name == "vgg-f":
        row = np.empty((1, 2 * len(layers)), object)
        for i, (layer, both) in enumerate(layers.items()):
            weights = np.empty((1, 2), object)
            weights[0, 0], weights[0, 1] = both["weight"], both["bias"]
            row[0, 2 * i] = {"name": layer, "type": "conv", "weights": weights}
            row[0, 2 * i + 1] = {"name": f"relu_{layer}", "type": "relu"}
        table["layers"] = row
    else:
        kinds = {"weight": "filter", "bias": "bias"}
        pairs = [(f"{n}_{kinds[k]}", both[k]) for n, both in layers.items() for k in kinds]
        params = np.empty((1, len(pairs)), [("name", object), ("value", object)])
        for i, (layer, value) in enumerate(pairs):
            params[0, i] = (layer, value)
        table["params"] = params
    savemat(path, table)


def make_network(name: str) -> torch.nn.Module:
    """The network with weights of its own, batch norm's among them."""
    torch.manual_seed(0)
    network = PUBLISHED[name].build()
    for key, value in network.state_dict().items():
        if key.endswith("running_var"):
            value.uniform_(0.5, 1.5)
    return network
