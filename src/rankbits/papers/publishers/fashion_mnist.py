"""Fashion-MNIST (Zalando, 2017): ``fashion-mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``.

Sums are of the unpacked files, because some distributions compress them differently.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip
SUMS = {
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
}
MOST_BYTES = 1 << 28


def read(root: Path) -> published.Dataset:
    """Read 70,000 grey images of 28 x 28 in 10 classes; parts ``train`` and ``test``."""
    folder = root / "fashion-mnist"
    images, labels = [], []
    for part in ("train", "t10k"):
        images.append(_read_idx(folder / f"{part}-images-idx3-ubyte", 3))
        labels.append(_read_idx(folder / f"{part}-labels-idx1-ubyte", 1).astype(np.int64))
    return published.Dataset(
        Examples(np.concatenate(images)[..., None], np.concatenate(labels), class_names=CLASSES),
        published.split_in_order(train=len(images[0]), test=len(images[1])),
    )


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """Read an idx file of bytes, packed (``.gz``) or not: magic, sizes, then the values. Its sum
    shows that it is the publisher's, so its header needs no check."""
    packed = path.with_name(f"{path.name}.gz")
    if not packed.is_file() and not path.is_file():
        published.refuse_missing(packed, "the four files of Fashion-MNIST")
    try:
        if packed.is_file():
            with gzip.open(packed) as file:
                raw = file.read(MOST_BYTES)
        else:
            raw = path.read_bytes()
    except (OSError, EOFError, zlib.error):
        _check.refuse(f"{packed} is truncated or damaged.")
    published.check_sum(path, raw, SUMS)
    sizes = np.frombuffer(raw, ">u4", axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(sizes.tolist())
