"""What a run learns from and is judged by: a protocol, a folder, a table or a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_array
from rankbits.data.examples import Examples
from rankbits.data.folders import read_examples
from rankbits.data.images import SUFFIXES
from rankbits.data.protocols import PROTOCOLS, Protocol, protocol, split_own
from rankbits.data.splits import split_classes
from rankbits.train.config import TrainConfig
from rankbits.train.features import frozen_features
from rankbits.train.run import as_examples
from rankbits.train.teach import taught_examples


@dataclass(frozen=True, eq=False)
class Source:
    """What is learned from and judged by: examples with the rows of each part."""

    train: Examples
    held: Examples | None
    protocol: Protocol | None = None


def read_source(config: TrainConfig) -> Source:
    """The examples that ``config.data`` names: a protocol, or a folder, table or file."""
    if not config.data:
        _check.refuse("data must be given: a folder of images, a table, an .npz or a protocol.")
    if not Path(config.data).exists():
        if config.data not in PROTOCOLS:
            near = _check.nearest(config.data, PROTOCOLS)
            _check.refuse(f"{config.data} is neither a file or folder nor a protocol{near}.")
        found = _seen(protocol(config.data, config.root, config.seed), config)
        held = found.validation
        train = found.train
        if held is None and config.validation:
            part = found.examples.subset(train)
            split = split_classes if found.exclude_self else split_own  # judged on new classes
            rows, others = split(part, config.validation, config.seed)
            train, held = train[rows], train[others]
        known = found.examples.subset(train)
        if config.teachers:
            known = taught(known, found, held, config)
        return Source(known, None if held is None else found.examples.subset(held), found)
    examples = read_examples(config.data)
    source = own_source(frozen_features(examples, config) if config.features else examples, config)
    if not config.teachers:
        return source
    return replace(source, train=taught(source.train, None, None, config))


def _seen(found: Protocol, config: TrainConfig) -> Protocol:
    """The protocol, on features of a frozen network where the settings say so."""
    if not config.features:
        return found
    return replace(found, examples=frozen_features(found.examples, config))


def taught(
    train: Examples, found: Protocol | None, held: np.ndarray | None, config: TrainConfig
) -> Examples:
    """The training rows, and those of the database that teachers label; never a query, and never a
    row that is held out to judge by."""
    if config.unlabelled:
        more, _ = read_inputs(config.unlabelled, None, config)
    elif found is None or found.exclude_self:
        _check.refuse("teachers need images to label: give them as unlabelled.")
    else:
        rows = np.setdiff1d(found.database, found.train)
        more = found.examples.subset(rows if held is None else np.setdiff1d(rows, held))
    return taught_examples(
        train, more, str(config.teachers), config.taught, config.device, config.mirror
    )


def read_inputs(path: str, part: str | None, config: TrainConfig) -> tuple[Examples, bool]:
    """Inputs to embed, and whether their labels are known.

    ``path``: an image, a folder of images (by class or flat), a table, features (.npy, .npz), or a
    protocol's name with the ``part`` of it.
    """
    where = Path(path)
    if not where.exists():
        if path not in PROTOCOLS:
            near = _check.nearest(path, PROTOCOLS)
            _check.refuse(f"{path} is neither a file or folder nor a protocol{near}.")
        parts = ("train", "queries", "database", "validation")
        named = _check.choice("part of a protocol", part, parts)
        found = _seen(protocol(path, config.root, config.seed), config)
        if getattr(found, named) is None:
            _check.refuse(f"{path} has no {named} rows.")
        return found.examples.subset(getattr(found, named)), True
    if part is not None:
        _check.refuse(f"part belongs to a protocol; {path} is a file or folder.")
    examples, labelled = _read(where)
    if config.features and examples.kind != "features":
        examples = frozen_features(examples, config)
    return examples, labelled


def _read(where: Path) -> tuple[Examples, bool]:
    if where.suffix == ".npy":
        return as_examples(read_array(where)), False
    if where.suffix.lower() in SUFFIXES:
        return as_examples([where]), False
    if where.is_dir():
        flat = sorted(p for p in where.iterdir() if p.suffix.lower() in SUFFIXES)
        if flat:
            return as_examples(flat), False
    return read_examples(where), True


def own_source(examples: Examples, config: TrainConfig) -> Source:
    """Own examples, a share of them held out."""
    if not config.validation:
        return Source(examples, None)
    rows, held = split_own(examples, config.validation, config.seed)
    return Source(examples.subset(rows), examples.subset(held))
