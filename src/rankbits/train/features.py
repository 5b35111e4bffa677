"""Compute the outputs of a frozen network once, so that heads are trained on them in seconds.

The features lie in the folder ``features`` of the data root, float16 and memory-mapped, so that
many runs share one copy. A file's name depends on the images, the network, its weights and the
side.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankbits import _check
from rankbits._files import data_root, lock_folder, write_whole
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.models import weights_path
from rankbits.models.weights import PUBLISHED
from rankbits.train.body import make_body
from rankbits.train.checkpoints import WEIGHTS
from rankbits.train.config import TrainConfig
from rankbits.train.embed import embed
from rankbits.train.processes import choose_device
from rankbits.train.run import LARGE, RUN, load_run


def compute_features(examples: Examples, config: TrainConfig) -> Examples:
    """Return the examples with features in place of their images: the outputs of
    ``config.features``.

    That is the name of a network with published weights, or the folder of a run, whose last layer
    is left out. An image that cannot be read is refused, because the cache has a row for every
    image. With ``config.mirror`` features are the mean of those of an image and its mirror.
    """
    name = str(config.features)
    if examples.kind == "features":
        _check.refuse(f"features = '{name}' needs images; the data are features already.")
    run = (Path(name) / RUN).is_file()
    if not run and name not in PUBLISHED:
        _check.refuse(
            f"features must be a run's folder or one of {', '.join(PUBLISHED)}; got '{name}'"
            f"{_check.suggest(name, PUBLISHED)}."
        )
    weights = Path(name) / WEIGHTS if run else weights_path(name)
    side = config.side or LARGE
    if run:
        side = load_run(name).inputs.side
    settings = f"{side} mirror" if config.mirror else f"{side}"
    key = fingerprint(examples, settings, weights if run else None)
    path = data_root(config.root) / "features" / f"{Path(name).name}-{side}-{key}.npy"
    features = compute_once(path, len(examples), lambda: _embed_images(examples, config, side))
    return replace(examples, inputs=features)


def compute_once(path: Path, rows: int, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the array (rows, width) of ``compute``, memory-mapped from the file ``path``. It is
    computed only where that file does not exist; then other runs that need a new file wait."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(path.parent):
            if not path.is_file():  # another run may have written it meanwhile
                features = compute()
                write_whole(path, lambda file: np.save(file, features))  # type: ignore[arg-type]
    array = read_features(path, rows)
    if array is None:
        _check.refuse(f"{path} is damaged: remove it, and it is computed again.")
    return array


def read_features(path: Path, rows: int) -> np.ndarray | None:
    """Map the array (rows, width) in a file into memory; None if there is no such file or it is
    damaged."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return array if array.ndim == 2 and len(array) == rows else None


def fingerprint(examples: Examples, settings: str = "", weights: Path | None = None) -> str:
    """Return 16 digits that are the same for the same images, settings and weights. Of image files
    the name, size and time count."""
    digest = hashlib.blake2b(settings.encode(), digest_size=8)
    inputs = examples.inputs
    if isinstance(inputs, ImageFiles):
        for path in inputs.paths:
            stat = os.stat(path)
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    else:
        assert isinstance(inputs, np.ndarray)
        digest.update(str(inputs.shape).encode())
        digest.update(np.ascontiguousarray(inputs).data.cast("B"))
    if weights is not None:
        digest.update(weights.read_bytes())
    return digest.hexdigest()


def _embed_images(examples: Examples, config: TrainConfig, side: int) -> np.ndarray:
    device = choose_device(config.device)
    body = make_body(str(config.features), side, config.mirror)
    network = body.network.to(device)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    embedded = embed(network, examples, body.view, device=device, progress=True)
    if embedded.failed:
        _check.refuse(f"features need every image; {embedded.failed[0]}")
    return embedded.embeddings.astype(np.float16)
