"""Read what a cell learns from and is judged by, once per process for all cells that share it."""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import data_root
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.loading import Pixels
from rankbits.data.protocol import Protocol
from rankbits.papers.protocols import find_protocol
from rankbits.train import TrainConfig
from rankbits.train.source import Source, read_source

DARK_INK = ("omniglot",)  # black on white; inverted, because networks expect bright strokes
SHORT = {"train": 600, "validation": 100, "queries": 50, "database": 500}  # rows of a shortened run
READS = (
    "data", "root", "features", "side", "validation", "seed", "teachers", "taught", "unlabelled",
    "device", "mirror",
)  # fmt: skip


def read_cell_source(config: TrainConfig, seen: int | None = None, short: bool = False) -> Source:
    """Read the protocol ``config.data``: images at ``seen`` pixels, and few rows if ``short``."""
    facts = {name: value for name, value in config.facts().items() if name in READS}
    return _read(json.dumps(facts, sort_keys=True), seen, short)


def check_features(what: str, examples: Examples) -> np.ndarray:
    """Refuse examples that are not features -> the features (n, dim)."""
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "features":
        _check.refuse(f"{what} needs features; got {examples.kind}.")
    return examples.inputs


@functools.lru_cache(maxsize=8)
def _read(facts: str, seen: int | None, short: bool) -> Source:
    config = TrainConfig().with_changes(**json.loads(facts))
    protocol = find_protocol(config.data, config.root, config.seed)
    if protocol is None:
        _check.refuse(f"A recipe's data must be a protocol, with queries; got '{config.data}'.")
    if seen is not None and isinstance(protocol.examples.inputs, ImageFiles):
        images = decode_images(protocol.examples, seen, data_root(config.root) / "decoded")
        protocol = replace(protocol, examples=images)
    elif seen is not None:
        images = reduce_images(protocol.examples, seen, protocol.name in DARK_INK)
        protocol = replace(protocol, examples=images)
    return read_source(config, _shorten(protocol) if short else protocol)


def decode_images(examples: Examples, side: int, folder: Path) -> Examples:
    """Decode image files at ``side`` x ``side`` into one file of pixels in ``folder``, which all
    processes and later commands share; an image that cannot be decoded is refused."""
    assert isinstance(examples.inputs, ImageFiles)
    pixels = Pixels(examples.inputs, side, 3, folder)
    if pixels.kept is None:
        _check.refuse(f"{folder} must be writable: the pixels of {len(pixels):,} images go there.")
    with ThreadPoolExecutor() as pool:
        for _, _, failure in pool.map(pixels.__getitem__, range(len(pixels))):
            if failure:
                _check.refuse(failure)
    return replace(examples, inputs=pixels.kept)


def reduce_images(examples: Examples, side: int, dark: bool = False) -> Examples:
    """Reduce images to ``side`` x ``side``, and invert them if they are ``dark`` on light.

    >>> white = Examples(np.full((1, 4, 4, 1), 255, np.uint8), [7])
    >>> reduce_images(white, 2, dark=True).inputs.max(), reduce_images(white, 2).inputs.shape
    (np.uint8(0), (1, 2, 2, 1))
    """
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "images":
        _check.refuse(f"seen reduces images that are in memory; got {examples.kind}.")
    channels = examples.inputs.shape[3]
    view, parts = View(side, channels), [np.zeros((0, side, side, channels), np.uint8)]
    for start in range(0, len(examples), 1000):
        part = torch.from_numpy(np.ascontiguousarray(examples.inputs[start : start + 1000]))
        bright = view.see_centre(255 - part if dark else part)
        parts.append((bright * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
    return replace(examples, inputs=np.concatenate(parts))


def _shorten(protocol: Protocol) -> Protocol:
    """Keep a few rows of every split: the first where queries are the database, so that classes
    stay together, else rows spread evenly."""
    splits: dict[str, Any] = {}
    for split, most in SHORT.items():
        rows = getattr(protocol, split)
        if rows is None or protocol.exclude_self or len(rows) <= most:
            splits[split] = rows if rows is None else rows[:most]
        else:
            splits[split] = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
    if protocol.exclude_self:
        splits["database"] = splits["queries"]
    if protocol.examples.kind != "files":
        return replace(protocol, **splits)
    # a network that makes features would read all files
    used = np.unique(np.concatenate([rows for rows in splits.values() if rows is not None]))
    for split, rows in splits.items():
        splits[split] = rows if rows is None else np.searchsorted(used, rows)
    return replace(protocol, examples=protocol.examples.subset(used), **splits)
