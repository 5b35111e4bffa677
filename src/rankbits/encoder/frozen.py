"""An encoder in a minute: the features of a frozen network, and bits fitted to labels.

The features of a network that was trained on ImageNet describe most photographs well. Bits that
tell the classes apart are fitted to them in closed form. With some hundred photographs this is far
better than fine-tuning, which also takes hours on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.encoder.encoder import Encoder
from rankbits.encoder.folder import QUANTIZER, make_folder, write_encoder
from rankbits.encoder.stored import locate_features
from rankbits.evaluate import evaluate
from rankbits.evaluate.figures import find_cutoffs
from rankbits.quantizers import Projection, Quantizer, SupervisedProjection, SupervisedRotation
from rankbits.train.body import BODY, Body, make_body, save_body
from rankbits.train.config import TrainConfig
from rankbits.train.embed import Embedded, embed
from rankbits.train.features import compute_once
from rankbits.train.processes import choose_device
from rankbits.train.run import RUN, SMALL, measure_side
from rankbits.train.source import split_examples

# two sizes tell kinds of birds apart better than one; pictures of 32 pixels gain nothing from more
SIDES, SIDES_OF_SMALL = (320, 224), (224, 160)
FEW = 2  # rows of a class that are needed to hold one out


def train_frozen(
    examples: Examples, config: TrainConfig, network: str, say: Callable[[str], None]
) -> tuple[Encoder, float | None]:
    """Embed the images by ``network``, frozen, and fit bits to the labels -> the encoder, saved in
    ``config.out``, and the figure of rows held out (None if no row can be held out)."""
    folder = None if not config.out else make_folder(config.out)
    if folder is not None and (folder / RUN).is_file():
        _check.refuse(f"{folder} holds another run; give another folder.")
    larger, smaller = choose_sides(examples)
    body = make_body(network, config.side or larger, config.mirror, smaller)
    embedded = _embed(examples, body, config)
    for sentence in embedded.failed[:10]:
        say(f"left out: {sentence}")
    features, labels = embedded.embeddings, examples.labels[embedded.rows]
    bits = config.bits or 64
    held_out = _validate(examples.subset(embedded.rows), features, bits, config)
    quantizer = _fit(features, labels, bits, config.seed)
    reads = body.reads
    if folder is not None:
        writers = {BODY: partial(save_body, body=body), QUANTIZER: quantizer.save}
        write_encoder(folder, writers, reads, examples.class_names)  # type: ignore[arg-type]
    names = examples.class_names
    return Encoder(reads, body.network, quantizer, body.view, names, folder), held_out


def choose_sides(examples: Examples) -> tuple[int, int]:
    """Choose the sides of the two copies of an image that the network reads."""
    return SIDES_OF_SMALL if measure_side(examples) <= SMALL else SIDES


def _embed(examples: Examples, body: Body, config: TrainConfig) -> Embedded:
    """The features of the images; read from the data root if they were computed before."""
    failed: list[str] = []

    def compute() -> np.ndarray:
        embedded = embed(
            body.network, examples, body.view, device=choose_device(config.device), progress=True
        )
        failed.extend(embedded.failed)
        features = np.full((len(examples), embedded.embeddings.shape[1]), np.nan, np.float32)
        features[embedded.rows] = embedded.embeddings
        return features

    path = locate_features(examples, body.network, body.view, config.root)
    features = compute_once(path, len(examples), compute)
    readable = np.flatnonzero(np.isfinite(features[:, 0]))
    if len(readable) < len(examples) and not failed:
        failed = [f"images that cannot be read: {len(examples) - len(readable):,}."]
    return Embedded(np.asarray(features)[readable], readable, tuple(failed))


def _fit(features: np.ndarray, labels: np.ndarray, bits: int, seed: int) -> Quantizer:
    if labels.ndim == 2:
        return SupervisedRotation(bits, seed=seed).fit(features, labels)
    if len(np.unique(labels)) < 2:
        return Projection(bits, seed=seed).fit(features)
    return SupervisedProjection(bits, seed=seed).fit(features, labels)


def _validate(
    examples: Examples, features: np.ndarray, bits: int, config: TrainConfig
) -> float | None:
    """The figure of rows held out: bits are fitted to the other rows, which are the database; rows
    of classes held out whole query each other."""
    labels = examples.labels
    if not config.validation or labels.ndim == 2:
        return None
    if np.unique(labels, return_counts=True)[1].min() < FEW or len(np.unique(labels)) < 2:
        return None
    train, held_out = split_examples(examples, config)
    if len(train) < bits or not len(held_out):
        return None
    encode = _fit(features[train], labels[train], bits, config.seed).encode
    database = held_out if config.hold_out == "classes" else train
    codes = encode(features[held_out]), encode(features[database])
    name = config.validate_by
    how: dict[str, Any] = {"k": find_cutoffs(name) or 1, "only": [name]}
    how["exclude_self"] = database is held_out
    return evaluate(*codes, labels[held_out], labels[database], **how)[name]
