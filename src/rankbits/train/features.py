"""What a frozen network makes of images, computed once: heads are then trained in seconds.

The features lie in the folder ``features`` of the data root, float16 and mapped, so that many runs
share one copy; a file is named by the images, the network, its weights and the side.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import torch

from rankbits import _check
from rankbits._files import alone, write_whole
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.root import data_root
from rankbits.models import backbone, weights_path
from rankbits.models.weights import PUBLISHED
from rankbits.train.checkpoints import WEIGHTS
from rankbits.train.config import TrainConfig
from rankbits.train.embed import embed
from rankbits.train.processes import device_of
from rankbits.train.run import LARGE, RUN, Inputs, load_run


def frozen_features(examples: Examples, config: TrainConfig) -> Examples:
    """The examples with ``config.features``' outputs in place of their images.

    ``config.features`` is the name of a network with published weights, or the folder of a run,
    whose body (all but its last layer) is meant. Images that cannot be read are refused: a cache
    with holes would be somebody's riddle.
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
    path = data_root(config.root) / "features" / f"{_key(examples, name, weights, side, run)}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.parent):  # of many runs that want them, one computes
        if not path.is_file():
            found = _computed(examples, name, side, device_of(config.device), run=run)
            write_whole(path, lambda file: np.save(file, found))  # type: ignore[arg-type]
    try:
        kept = np.load(path, mmap_mode="r")
        whole = kept.ndim == 2 and len(kept) == len(examples)
    except (OSError, ValueError, EOFError):
        whole = False
    if not whole:
        _check.refuse(f"{path} is damaged: remove it, and the features are computed again.")
    return Examples(
        kept,
        examples.labels,
        examples.categories,
        examples.class_names,
        examples.category_names,
    )


def _computed(
    examples: Examples, name: str, side: int, device: torch.device, *, run: bool
) -> np.ndarray:
    if run:
        trained = load_run(name)
        body = getattr(trained.model, "backbone", None)
        if not isinstance(body, torch.nn.Module) or trained.inputs.kind != "images":
            _check.refuse(f"{name} has no body that makes features of images.")
        view = trained.inputs.view(trained.config.augment)
    else:
        body, view = backbone(name, "imagenet"), Inputs("images", side=side, channels=3).view()
    body = body.to(device)
    if device.type == "cuda":
        body = body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = embed(body, examples, view, device=device, progress=True)
    if found.failed:
        _check.refuse(f"features need every image; {found.failed[0]}")
    return found.embeddings.astype(np.float16)


def _key(examples: Examples, name: str, weights: Path, side: int, run: bool) -> str:
    """A name for what the features are of, and what by."""
    found = hashlib.blake2b(f"{side}".encode(), digest_size=8)
    inputs = examples.inputs
    if isinstance(inputs, ImageFiles):
        for path in inputs.paths:
            known = os.stat(path)
            found.update(f"{path} {known.st_size} {known.st_mtime_ns}\n".encode())
    else:
        found.update(str(inputs.shape).encode())
        found.update(np.ascontiguousarray(inputs).data.cast("B"))
    if run:
        found.update(weights.read_bytes())
    return f"{Path(name).name if run else name}-{side}-{found.hexdigest()}"
