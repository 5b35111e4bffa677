"""The outputs of a frozen network, computed once, so that heads are trained in seconds.

The features lie in the folder ``features`` of the data root, float16 and mapped, so that many runs
share one copy; a file is named by the images, the network, its weights and the side.
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
from rankbits.train.processes import device_of
from rankbits.train.run import LARGE, RUN, load_run


def frozen_features(examples: Examples, config: TrainConfig) -> Examples:
    """The examples with ``config.features``' outputs in place of their images.

    ``config.features`` is the name of a network with published weights, or the folder of a run,
    whose last layer is left out. An image that cannot be read is refused, because the cache has a
    row for every image. With ``config.mirror`` a feature is the mean of an image's and its
    mirror's.
    """
    name = str(config.features)
    if examples.kind == "features":
        _check.refuse(f"features = '{name}' needs images; the data are features already.")
    run = (Path(name) / RUN).is_file()
    if not run and name not in PUBLISHED:
        _check.refuse(
            f"features must be a run's folder or one of {', '.join(PUBLISHED)}; got '{name}'"
            f"{_check.nearest(name, PUBLISHED)}."
        )
    weights = Path(name) / WEIGHTS if run else weights_path(name)
    side = config.side or LARGE
    if run:
        side = load_run(name).inputs.side
    seen = f"{side} mirror" if config.mirror else f"{side}"
    key = fingerprint(examples, seen, weights if run else None)
    path = data_root(config.root) / "features" / f"{Path(name).name}-{side}-{key}.npy"
    device, mirror = device_of(config.device), config.mirror
    kept = computed_once(
        path,
        len(examples),
        lambda: _compute(examples, name, side, device=device, mirror=mirror),
    )
    return replace(examples, inputs=kept)


def computed_once(path: Path, rows: int, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """The array (rows, width) that ``compute`` returns, mapped from a file. It is computed only
    where that file does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent):  # of many runs that want it, one computes
        if not path.is_file():
            features = compute()
            write_whole(path, lambda file: np.save(file, features))  # type: ignore[arg-type]
    try:
        kept: np.ndarray = np.load(path, mmap_mode="r")
        whole = kept.ndim == 2 and len(kept) == rows
    except (OSError, ValueError, EOFError):
        whole = False
    if not whole:
        _check.refuse(f"{path} is damaged: remove it, and it is computed again.")
    return kept


def fingerprint(examples: Examples, said: str = "", weights: Path | None = None) -> str:
    """The same 16 digits for the same images (files: names, sizes and times), words and weights."""
    digest = hashlib.blake2b(said.encode(), digest_size=8)
    inputs = examples.inputs
    if isinstance(inputs, ImageFiles):
        for path in inputs.paths:
            about = os.stat(path)
            digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    else:
        assert isinstance(inputs, np.ndarray)
        digest.update(str(inputs.shape).encode())
        digest.update(np.ascontiguousarray(inputs).data.cast("B"))
    if weights is not None:
        digest.update(weights.read_bytes())
    return digest.hexdigest()


def _compute(
    examples: Examples, name: str, side: int, *, device: torch.device, mirror: bool
) -> np.ndarray:
    body = make_body(name, side, mirror)
    network = body.network.to(device)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    embedded = embed(network, examples, body.view, device=device, progress=True)
    if embedded.failed:
        _check.refuse(f"features need every image; {embedded.failed[0]}")
    return embedded.embeddings.astype(np.float16)
