"""Read the examples that a run learns from and is judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.folders import read_examples
from rankbits.data.items import read_items
from rankbits.data.protocol import Protocol
from rankbits.data.splits import split_classes, split_own
from rankbits.train.config import TrainConfig
from rankbits.train.features import compute_features
from rankbits.train.teach import add_taught_examples
from rankbits.train.validation import Validation


@dataclass(frozen=True, eq=False)
class Source:
    """The examples to learn from, those held out (or a ``Validation`` that judges by them), and the
    protocol that they come from, if any."""

    train: Examples
    held: Examples | Validation | None
    protocol: Protocol | None = None


def read_source(config: TrainConfig, protocol: Protocol | None = None) -> Source:
    """Read the training rows of ``protocol``; without one, the examples of ``config.data``, a
    folder, table or file. A share of them is held out, unless the protocol has validation rows."""
    if protocol is not None:
        return _split_protocol(protocol, config)
    if not config.data:
        _check.refuse("data must be given: a folder of images, a table, an .npz or a protocol.")
    if not Path(config.data).exists():
        _check.refuse(f"{config.data} is no file or folder; a protocol is given as protocol=.")
    examples = read_examples(config.data)
    source = hold_out(compute_features(examples, config) if config.features else examples, config)
    if not config.teachers:
        return source
    return replace(source, train=_add_taught(source.train, None, None, config))


def hold_out(examples: Examples, config: TrainConfig) -> Source:
    """Hold out the share ``config.validation`` of the examples."""
    if not config.validation:
        return Source(examples, None)
    rows, held = split_examples(examples, config)
    return Source(examples.subset(rows), examples.subset(held))


def split_examples(
    examples: Examples, config: TrainConfig, new: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows held out, as ``config.hold_out`` says: of every class, or of whole
    classes (auto: where the model is judged on ``new`` ones)."""
    if config.hold_out == "rows" or (config.hold_out == "auto" and not new):
        return split_own(examples, config.validation, config.seed)
    rows, held = split_classes(examples, config.validation, config.seed)
    if not len(held) and config.hold_out == "classes":
        _check.refuse(
            f"hold_out = 'classes' needs more classes: validation = {config.validation:g} of "
            f"{examples.classes} is none."
        )
    return rows, held


def _split_protocol(protocol: Protocol, config: TrainConfig) -> Source:
    if config.features:
        protocol = replace(protocol, examples=compute_features(protocol.examples, config))
    train, held = protocol.train, protocol.validation
    if held is None and config.validation:
        rows, others = split_examples(protocol.part("train"), config, protocol.exclude_self)
        train, held = train[rows], train[others]
    examples = protocol.examples.subset(train)
    if config.teachers:
        examples = _add_taught(examples, protocol, held, config)
    return Source(examples, None if held is None else protocol.examples.subset(held), protocol)


def _add_taught(
    train: Examples, protocol: Protocol | None, held: np.ndarray | None, config: TrainConfig
) -> Examples:
    """Add to the training rows those that teachers label: ``config.unlabelled``, or the protocol's
    database without its held-out rows."""
    if config.unlabelled:
        unlabelled = read_items(config.unlabelled).examples
        if config.features and unlabelled.kind != "features":
            unlabelled = compute_features(unlabelled, config)
    elif protocol is None or protocol.exclude_self:
        _check.refuse("teachers need images to label: give them as unlabelled.")
    else:
        rows = np.setdiff1d(protocol.database, protocol.train)
        unlabelled = protocol.examples.subset(rows if held is None else np.setdiff1d(rows, held))
    return add_taught_examples(
        train, unlabelled, str(config.teachers), config.taught, config.device, config.mirror
    )
