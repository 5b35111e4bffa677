"""Read the weights of the papers' networks, and give them the layer names of ``rankbits.models``.

The files are torchvision's ``.pth`` for AlexNet, VGG-16 (H2Q) and ResNet-18 (FastAP), and
MatConvNet's ``.mat`` for VGG-F (TALR) and GoogLeNet (FastAP's supplement). The layer that names
classes is dropped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.models.publishers import State, read_member, read_tensors

STAGE = r"^layer(\d)\.(\d)\."
BLOCK = {"conv1": "first.conv", "bn1": "first.norm", "conv2": "second.conv", "bn2": "second.norm"}
BLOCK |= {"downsample.0": "shortcut.conv", "downsample.1": "shortcut.norm"}
PLACES = {  # the names of VGG-F's layers in models.classic
    "conv1": "convolutions.0", "conv2": "convolutions.4", "conv3": "convolutions.8",
    "conv4": "convolutions.10", "conv5": "convolutions.12", "fc6": "top.3", "fc7": "top.6",
}  # fmt: skip
LAST = ("classifier.6.", "fc.", "fc8", "cls")  # layers that name classes


def read_torchvision(name: str, source: Path) -> State:
    """Read a file such as ``alexnet-owt-7be5be79.pth``."""
    file = read_member(source, f"{name.removesuffix('-full')}-*.pth")
    return {
        _rename_torchvision(key): value.numpy()
        for key, value in read_tensors(file, str(source)).items()
        if not key.startswith(LAST)
    }


def _rename_torchvision(key: str) -> str:
    """Return the name that a layer has in ``rankbits.models``.

    >>> _rename_torchvision("classifier.4.bias"), _rename_torchvision("layer2.0.downsample.1.bias")
    ('top.6.bias', 'stages.1.0.shortcut.norm.bias')
    """
    key = re.sub(r"^features\.", "convolutions.", key)
    key = re.sub(r"^classifier\.(\d)", lambda number: f"top.{int(number[1]) + 2}", key)
    block = re.match(STAGE, key)
    if block is None:
        return re.sub(r"^bn1\.", "stem.norm.", re.sub(r"^conv1\.", "stem.conv.", key))
    part, _, kind = key[block.end() :].rpartition(".")
    return f"stages.{int(block[1]) - 1}.{block[2]}.{BLOCK.get(part, part)}.{kind}"


def read_matconvnet(name: str, source: Path) -> State:
    """Read ``imagenet-vgg-f.mat`` (layers in a row) or ``imagenet-googlenet-dag.mat`` (a graph)."""
    try:
        from scipy.io import loadmat
    except ImportError:
        _check.refuse(f"{source} needs the package scipy: pip install scipy.")
    file = read_member(source, f"imagenet-{name}*.mat")
    try:
        network = loadmat(file, struct_as_record=False, squeeze_me=True)
        arrays = _list_graph(network) if "params" in network else _list_row(network)
        state = {}
        for layer, kind, value in arrays:
            if not layer.startswith(LAST):
                place = PLACES.get(layer, layer) if name == "vgg-f" else layer.replace("_", ".")
                state[f"{place}.{kind}"] = _to_torch(layer, kind, np.asarray(value, np.float32))
        average = np.asarray(_find_average(network), np.float32)
        state["pixels.mean"] = average.reshape(-1, 3).mean(axis=0).reshape(1, 3, 1, 1) / 255
    except Exception:  # a damaged file may make the parser raise any error
        _check.refuse(f"{source} is truncated, damaged or not a network of MatConvNet.")
    return state


def _list_row(network: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """List (layer, "weight" or "bias", array) of a network whose layers are in a row."""
    layers = [layer for layer in network["layers"] if hasattr(layer, "weights")]
    return [
        (str(layer.name), kind, value)
        for layer in layers
        for kind, value in zip(("weight", "bias"), layer.weights, strict=False)
    ]


def _list_graph(network: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """List the same of a network that is a graph."""
    kinds = {"filter": "weight", "bias": "bias"}
    arrays = [(*str(array.name).rsplit("_", 1), array.value) for array in network["params"]]
    return [(layer, kinds[kind], value) for layer, kind, value in arrays]


def _find_average(network: dict[str, Any]) -> Any:
    """Return the mean image (height, width, 3), or the mean pixel, in RGB from 0 to 255."""
    facts = network["meta"].normalization if "meta" in network else network["normalization"]
    return facts.averageImage


def _to_torch(layer: str, kind: str, value: np.ndarray) -> np.ndarray:
    """Turn filters (height, width, in, out) into torch's order, and those of a full layer into a
    matrix. The file's arrays leave out sides of 1."""
    if kind == "bias":
        return value.reshape(-1)
    while value.ndim < 4:
        value = value[None]
    filters = np.ascontiguousarray(value.transpose(3, 2, 0, 1))
    return filters.reshape(len(filters), -1) if layer.startswith("fc") else filters
