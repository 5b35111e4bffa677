"""CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009), the binary versions.

``cifar-10-batches-bin/``: data_batch_1..5.bin and test_batch.bin; a record is one byte of label and
3,072 of pixels (red, green, blue planes of 32 x 32). ``cifar-100-binary/``: train.bin and test.bin;
a record has the coarse label first, then the fine one. Coarse labels are categories here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SUMS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def read_ten(root: Path) -> published.Dataset:
    """Read CIFAR-10: 60,000 images of 32 x 32 in 10 classes; parts ``train`` and ``test``."""
    folder = root / "cifar-10-batches-bin"
    _refuse_pickles(folder, root / "cifar-10-batches-py", "CIFAR-10")
    batches = [_read_records(folder / name, 1, (10,), SUMS) for name in BATCHES]
    images = np.concatenate([images for _, images in batches])
    labels = np.concatenate([labels[:, 0] for labels, _ in batches])
    test = len(batches[-1][1])
    return published.Dataset(
        Examples(images, labels, class_names=CLASSES),
        published.split_in_order(train=len(images) - test, test=test),
    )


def read_hundred(root: Path) -> published.Dataset:
    """Read CIFAR-100: 60,000 images, 100 classes, 20 categories; parts ``train`` and ``test``."""
    folder = root / "cifar-100-binary"
    _refuse_pickles(folder, root / "cifar-100-python", "CIFAR-100")
    train, test = (
        _read_records(folder / f"{name}.bin", 2, (20, 100), {}) for name in ("train", "test")
    )
    labels = np.concatenate([train[0], test[0]])
    return published.Dataset(
        Examples(
            np.concatenate([train[1], test[1]]),
            labels[:, 1],
            labels[:, 0],
            _read_names(folder / "fine_label_names.txt", 100),
            _read_names(folder / "coarse_label_names.txt", 20),
        ),
        published.split_in_order(train=len(train[1]), test=len(test[1])),
    )


def _refuse_pickles(wanted: Path, other: Path, name: str) -> None:
    if not wanted.is_dir() and other.is_dir():
        _check.refuse(
            f"{other} is the Python version of {name}, pickles that could run code: put the binary "
            f"version in {wanted}."
        )


def _read_records(
    path: Path, heads: int, most: tuple[int, ...], sums: dict[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """Read labels (n, heads) int64 and images (n, 32, 32, 3) uint8 from one file."""
    raw = published.read_bytes(path, "the binary version of CIFAR")
    size = heads + 3072
    if not raw or len(raw) % size:
        _check.refuse(
            f"{path} must hold whole records of {size:,} bytes; it has {len(raw):,} bytes."
        )
    published.check_sum(path, raw, sums)
    rows = np.frombuffer(raw, np.uint8).reshape(-1, size)
    labels = rows[:, :heads].astype(np.int64)
    if (labels >= most).any():
        _check.refuse(f"{path} has labels past the {most[-1]} classes.")
    planes = rows[:, heads:].reshape(-1, 3, 32, 32)
    return labels, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _read_names(path: Path, wanted: int) -> tuple[str, ...]:
    """Read the names of labels from the file beside the records, or none."""
    names = path.read_text("utf-8").split() if path.is_file() else []
    return tuple(names) if len(names) == wanted else ()
