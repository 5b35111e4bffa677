"""What a cell learns from and is judged by: read once a process, however many cells ask for it."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import torch

from rankbits import _check
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.papers.protocols import find_protocol
from rankbits.train import TrainConfig
from rankbits.train.source import Source, add_taught, read_source

DARK_INK = ("omniglot",)  # black on white; a network wants what matters to be bright
SHORT = {"train": 600, "held": 100, "queries": 50, "database": 500}  # rows of a shortened run
READS = (
    "data", "root", "features", "side", "validation", "seed", "teachers", "taught", "unlabelled",
    "device", "mirror",
)  # fmt: skip


def read_cell_source(config: TrainConfig, seen: int | None = None, short: bool = False) -> Source:
    """The rows of ``config.data``, a protocol; images at ``seen``; few rows if ``short``."""
    facts = {name: value for name, value in config.facts().items() if name in READS}
    return _read(json.dumps(facts, sort_keys=True), seen, short)


@functools.lru_cache(maxsize=8)
def _read(facts: str, seen: int | None, short: bool) -> Source:
    config = TrainConfig().with_changes(**json.loads(facts))
    how = find_protocol(config.data, config.root, config.seed)
    if how is None:
        _check.refuse(f"A recipe's data must be a protocol, with queries; got '{config.data}'.")
    source = read_source(config.with_changes(teachers=None) if short else config, how)
    how = source.protocol
    assert how is not None
    if seen is not None:
        dark = how.name in DARK_INK
        how = replace(how, examples=reduce_images(how.examples, seen, dark))
        held = None if source.held is None else reduce_images(source.held, seen, dark)
        source = Source(reduce_images(source.train, seen, dark), held, how)
    if not short:
        return replace(source, protocol=how)
    few = _shorten(source, how)
    if config.teachers:  # they label what is left of the database, not the whole of it
        few = replace(few, train=add_taught(few.train, few.protocol, how.validation, config))
    return few


def reduce_images(examples: Examples, side: int, dark: bool = False) -> Examples:
    """Images at ``side`` x ``side``, once and for all; ``dark`` ones inverted.

    >>> one = Examples(np.full((1, 4, 4, 1), 255, np.uint8), [7])
    >>> reduce_images(one, 2, dark=True).inputs.max(), reduce_images(one, 2).inputs.shape
    (np.uint8(0), (1, 2, 2, 1))
    """
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "images":
        _check.refuse(f"seen reduces images that are in memory; got {examples.kind}.")
    channels = examples.inputs.shape[3]
    view, parts = View(side, channels), [np.zeros((0, side, side, channels), np.uint8)]
    for start in range(0, len(examples), 1000):
        part = torch.from_numpy(np.ascontiguousarray(examples.inputs[start : start + 1000]))
        bright = view.plain(255 - part if dark else part)
        parts.append((bright * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
    return replace(examples, inputs=np.concatenate(parts))


def _shorten(source: Source, how: Protocol) -> Source:
    """A few rows of everything: the first where classes lie together, else evenly spread."""

    def few(rows: np.ndarray, part: str) -> np.ndarray:
        most = SHORT[part]
        if how.exclude_self or len(rows) <= most:
            return rows[:most]
        return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]

    def subset(part: Examples, name: str) -> Examples:
        return part.subset(few(np.arange(len(part)), name))

    queries = few(how.queries, "queries")
    database = queries if how.exclude_self else few(how.database, "database")
    return Source(
        subset(source.train, "train"),
        None if source.held is None else subset(source.held, "held"),
        replace(how, queries=queries, database=database),
    )
