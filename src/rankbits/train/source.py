"""What a run learns from and is judged by: a protocol, or a folder, table or file."""

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
from rankbits.train.embed import Validation
from rankbits.train.features import frozen_features
from rankbits.train.teach import taught_examples


@dataclass(frozen=True, eq=False)
class Source:
    """Examples to learn from, those held out or how they are judged, and the protocol they come
    from, if any."""

    train: Examples
    held: Examples | Validation | None
    protocol: Protocol | None = None


def read_source(config: TrainConfig, protocol: Protocol | None = None) -> Source:
    """The training rows of ``protocol``; without one, the examples of ``config.data``, a folder,
    table or file. A share of them is held out, unless the protocol says what is."""
    if protocol is not None:
        return _split_protocol(protocol, config)
    if not config.data:
        _check.refuse("data must be given: a folder of images, a table, an .npz or a protocol.")
    if not Path(config.data).exists():
        _check.refuse(f"{config.data} is no file or folder; a protocol is given as protocol=.")
    examples = read_examples(config.data)
    source = own_source(frozen_features(examples, config) if config.features else examples, config)
    if not config.teachers:
        return source
    return replace(source, train=_add_taught(source.train, None, None, config))


def own_source(examples: Examples, config: TrainConfig) -> Source:
    """Own examples, a share of them held out."""
    if not config.validation:
        return Source(examples, None)
    rows, held = split_own(examples, config.validation, config.seed)
    return Source(examples.subset(rows), examples.subset(held))


def _split_protocol(protocol: Protocol, config: TrainConfig) -> Source:
    if config.features:
        protocol = replace(protocol, examples=frozen_features(protocol.examples, config))
    train, held = protocol.train, protocol.validation
    if held is None and config.validation:
        split = split_classes if protocol.exclude_self else split_own  # judged on new classes
        rows, others = split(protocol.part("train"), config.validation, config.seed)
        train, held = train[rows], train[others]
    examples = protocol.examples.subset(train)
    if config.teachers:
        examples = _add_taught(examples, protocol, held, config)
    return Source(examples, None if held is None else protocol.examples.subset(held), protocol)


def _add_taught(
    train: Examples, protocol: Protocol | None, held: np.ndarray | None, config: TrainConfig
) -> Examples:
    """The training rows, and those of the database that teachers label; never a query, and never a
    row that is held out to judge by."""
    if config.unlabelled:
        more = read_items(config.unlabelled).examples
        if config.features and more.kind != "features":
            more = frozen_features(more, config)
    elif protocol is None or protocol.exclude_self:
        _check.refuse("teachers need images to label: give them as unlabelled.")
    else:
        rows = np.setdiff1d(protocol.database, protocol.train)
        more = protocol.examples.subset(rows if held is None else np.setdiff1d(rows, held))
    return taught_examples(
        train, more, str(config.teachers), config.taught, config.device, config.mirror
    )
