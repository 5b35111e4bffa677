"""Features that training has stored, so that an index of the same images need not compute them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from rankbits._files import data_root
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.items import Items
from rankbits.encoder.encoder import Encoder, digest_tensors
from rankbits.train.embed import Embedded
from rankbits.train.features import fingerprint, read_features


def locate_features(
    examples: Examples, network: torch.nn.Module, view: View, root: str | None = None
) -> Path:
    """Name the file, below the data root, of what a network makes of images: float32 (n, width),
    nan where an image cannot be read. Other weights, views or images have another file."""
    digest = hashlib.blake2b(digest_size=8)
    digest_tensors(digest, network.state_dict())
    smaller = getattr(network, "smaller", None)
    settings = f"{type(network).__name__} {digest.hexdigest()} {view} {smaller}"
    return data_root(root) / "features" / f"frozen-{fingerprint(examples, settings)}.npy"


def embed_parts(encoder: Encoder, items: Items, rows: int) -> Iterator[tuple[Items, Embedded]]:
    """Yield items and their embeddings, ``rows`` at a time: those that training has stored for
    exactly these images, and else what the encoder makes of them now."""
    stored = _read_stored(encoder, items)
    for start in range(0, len(items), rows):
        part = items.subset(np.arange(start, min(start + rows, len(items))))
        known = None if stored is None else np.asarray(stored[start : start + rows])
        if known is None or not np.isfinite(known[:, 0]).all():
            yield part, encoder.embed_readable(part)
        else:
            yield part, Embedded(known, np.arange(len(known)))


def _read_stored(encoder: Encoder, items: Items) -> np.ndarray | None:
    if not isinstance(items.inputs, ImageFiles) or encoder.network is None or encoder.view is None:
        return None
    try:
        path = locate_features(items.examples, encoder.network, encoder.view)
    except OSError:  # an image is gone
        return None
    return read_features(path, len(items))
