"""Read the weights of the papers' networks, and rename them to the layers of this room.

torchvision's ``.pth`` files for AlexNet, VGG-16 (H2Q) and ResNet-18 (FastAP); MatConvNet's ``.mat``
files for VGG-F (TALR) and GoogLeNet (FastAP's supplement). The layer that names classes is dropped.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.models.publishers import State, read_members, read_tensors

STAGE = r"^layer(\d)\.(\d)\."
BLOCK = {"conv1": "first.conv", "bn1": "first.norm", "conv2": "second.conv", "bn2": "second.norm"}
BLOCK |= {"downsample.0": "shortcut.conv", "downsample.1": "shortcut.norm"}
PLACES = {  # of VGG-F's layers in models.classic
    "conv1": "convolutions.0", "conv2": "convolutions.4", "conv3": "convolutions.8",
    "conv4": "convolutions.10", "conv5": "convolutions.12", "fc6": "top.3", "fc7": "top.6",
}  # fmt: skip
LAST = ("classifier.6.", "fc.", "fc8", "cls")  # the layer that names classes, and helpers of it


def read_torchvision(name: str, source: Path) -> State:
    """Read a file such as ``alexnet-owt-7be5be79.pth``."""
    start = name.removesuffix("-full")
    files = read_members(source, rf"{start}-.*\.pth")
    if len(files) != 1:
        _check.refuse(f"{source} must hold one file {start}-….pth; it holds {len(files)}.")
    tensors = read_tensors(io.BytesIO(*files.values()), str(source))
    return {
        _rename_torchvision(key): value.numpy()
        for key, value in tensors.items()
        if not key.startswith(LAST)
    }


def _rename_torchvision(key: str) -> str:
    """The name of a layer in this room.

    >>> _rename_torchvision("classifier.4.bias"), _rename_torchvision("layer2.0.downsample.1.bias")
    ('top.6.bias', 'stages.1.0.shortcut.norm.bias')
    """
    key = re.sub(r"^features\.", "convolutions.", key)
    key = re.sub(r"^classifier\.(\d)", lambda found: f"top.{int(found[1]) + 2}", key)
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
    files = read_members(source, rf"imagenet-{name}.*\.mat")
    if len(files) != 1:
        _check.refuse(f"{source} must hold one file imagenet-{name}….mat; it holds {len(files)}.")
    try:
        file = io.BytesIO(*files.values())
        network = loadmat(file, struct_as_record=False, squeeze_me=True)
        pairs = _list_graph(network) if "params" in network else _list_row(network)
        state = {}
        for layer, kind, value in pairs:
            if not layer.startswith(LAST):
                place = PLACES.get(layer, layer) if name == "vgg-f" else layer.replace("_", ".")
                state[f"{place}.{kind}"] = _turn(layer, kind, np.asarray(value, np.float32))
        average = np.asarray(_find_average(network), np.float32)
        state["pixels.mean"] = average.reshape(-1, 3).mean(axis=0).reshape(1, 3, 1, 1) / 255
    except Exception:  # what a damaged file makes the parser raise has no end
        _check.refuse(f"{source} is truncated, damaged or not a network of MatConvNet.")
    return state


def _list_row(network: dict[str, Any]) -> list[tuple[str, str, Any]]:
    layers = [layer for layer in network["layers"] if hasattr(layer, "weights")]
    return [
        (str(layer.name), kind, value)
        for layer in layers
        for kind, value in zip(("weight", "bias"), layer.weights, strict=False)
    ]


def _list_graph(network: dict[str, Any]) -> list[tuple[str, str, Any]]:
    kinds = {"filter": "weight", "bias": "bias"}
    named = [(*str(one.name).rsplit("_", 1), one.value) for one in network["params"]]
    return [(layer, kinds[kind], value) for layer, kind, value in named]


def _find_average(network: dict[str, Any]) -> Any:
    """The mean image (height, width, 3), or pixel, that is taken off: RGB from 0 to 255."""
    facts = network["meta"].normalization if "meta" in network else network["normalization"]
    return facts.averageImage


def _turn(layer: str, kind: str, value: np.ndarray) -> np.ndarray:
    """Filters (height, width, in, out) as torch has them; those of a full layer as a matrix, whose
    columns torch counts channel by channel. Sides of 1 are not in the file's arrays."""
    if kind == "bias":
        return value.reshape(-1)
    while value.ndim < 4:
        value = value[None]
    turned = np.ascontiguousarray(value.transpose(3, 2, 0, 1))
    return turned.reshape(len(turned), -1) if layer.startswith("fc") else turned
