"""Examples: inputs with their labels and categories."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.images import ImageFiles
from rankbits.data.texts import Texts

THREADS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Inputs with their labels and categories.

    ``inputs``: float (n, dim) features, uint8 (n, height, width, 1 or 3) images in memory or mapped
    from a file, :class:`ImageFiles` or :class:`Texts`.
    ``labels``: (n,) int64 or (n, C) bool multi-hot; names are numbered in sorted order and become
    ``class_names``.
    ``categories``: (n,) int64 groups of classes, -1 where none is known.

    >>> examples = Examples(np.eye(3), [4, 4, 7], categories=[0, 0, -1])
    >>> examples
    Examples(3 features, 2 classes, 1 category)
    >>> examples.subset([2, 0]).labels
    array([7, 4])
    """

    inputs: np.ndarray | ImageFiles | Texts
    labels: np.ndarray
    categories: np.ndarray | None = None
    class_names: tuple[str, ...] = ()
    category_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inputs = self.inputs
        if not isinstance(inputs, (ImageFiles, Texts)):
            inputs = _check_inputs(inputs)
        rows = len(inputs)
        names = _check.label_names("labels", self.labels)
        if names is not None:
            if self.class_names:
                _check.refuse("class_names cannot be given with labels that are names themselves.")
            different, labels = np.unique(names, return_inverse=True)
            object.__setattr__(self, "class_names", tuple(different.tolist()))
        else:
            labels = _check.array("labels", self.labels)
        if labels.ndim in (1, 2):
            _check.same_length("labels", len(labels), "the inputs", rows)
        labels = _check.labels("labels", labels, rows)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "category_names", tuple(self.category_names))
        if labels.ndim == 1:
            _check_numbers("labels", labels, self.class_names)
        elif self.class_names and len(self.class_names) != labels.shape[1]:
            _check.refuse(
                f"class_names must have one name for each of {labels.shape[1]} columns of labels; "
                f"got {len(self.class_names)}."
            )
        if self.categories is not None:
            categories = _check.array("categories", self.categories)
            if categories.ndim != 1 or categories.dtype.kind not in "iu":
                _check.refuse(
                    f"categories must be (n,) whole numbers; got shape {categories.shape} and "
                    f"dtype {categories.dtype}."
                )
            _check.same_length("categories", len(categories), "the inputs", rows)
            categories = categories.astype(np.int64, copy=False)
            if categories.min(initial=0) < -1:
                _check.refuse(f"categories must be at least -1; got {categories.min()}.")
            _check_numbers("categories", categories, self.category_names)
            object.__setattr__(self, "categories", categories)

    @property
    def kind(self) -> str:
        """``"features"``, ``"images"`` (in memory), ``"files"`` or ``"texts"``."""
        if isinstance(self.inputs, ImageFiles):
            return "files"
        if isinstance(self.inputs, Texts):
            return "texts"
        return "images" if self.inputs.ndim == 4 else "features"

    @property
    def classes(self) -> int:
        """Classes that occur (multi-hot: columns that are set anywhere)."""
        if self.labels.ndim == 2:
            return int(self.labels.any(axis=0).sum())
        return len(np.unique(self.labels))

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        what = "image files" if self.kind == "files" else self.kind
        text = f"Examples({len(self):,} {what}, {self.classes:,} classes"
        if self.categories is not None:
            many = len(np.unique(self.categories[self.categories >= 0]))
            text += f", {many:,} categor{'y' if many == 1 else 'ies'}"
        return text + ")"

    def subset(self, rows: Any) -> Examples:
        """The examples of ``rows``, whole numbers, in that order; class names stay."""
        rows = _check.array("rows", rows)
        if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
            _check.refuse(f"rows must be (m,) whole numbers; got {rows.dtype} {rows.shape}.")
        rows = rows.astype(np.int64, copy=False)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            wrong = rows.min() if rows.min() < 0 else rows.max()
            _check.refuse(f"rows must lie in 0 to {len(self) - 1:,}; got {wrong:,}.")
        return Examples(
            self.inputs[rows],
            self.labels[rows],
            None if self.categories is None else self.categories[rows],
            self.class_names,
            self.category_names,
        )


def _check_inputs(value: Any) -> np.ndarray:
    inputs = _check.array("inputs", value)
    if inputs.dtype == np.uint8 and inputs.ndim == 3:
        inputs = inputs[..., None]
    images = inputs.dtype == np.uint8 and inputs.ndim == 4 and inputs.shape[3] in (1, 3)
    if not images and not (inputs.dtype.kind == "f" and inputs.ndim == 2):
        _check.refuse(
            "inputs must be float features (n, dim), uint8 images (n, height, width, 1 or 3), "
            f"ImageFiles or Texts; got {inputs.dtype} {inputs.shape}."
        )
    # a mapped file may be larger than memory: its rows are checked when they are read
    return inputs if isinstance(inputs, np.memmap) else _check.finite("inputs", inputs)


def _check_numbers(name: str, values: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse numbers that have none of the ``names``, if there are names; -1 needs none."""
    if names and values.size and (values.max() >= len(names) or values.min() < -1):
        worst = values.max() if values.max() >= len(names) else values.min()
        _check.refuse(f"{name} must each have one of the {len(names)} names; got {worst}.")


def hash_rows(inputs: np.ndarray | ImageFiles | Texts) -> np.ndarray:
    """A hash of every row's bytes, uint64 (n,): equal bytes, equal hash.

    Only files that share their length with another are read. A file that cannot be read equals no
    other.

    >>> hashes = hash_rows(np.array([[1.0], [2.0], [1.0]]))
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    if isinstance(inputs, ImageFiles):
        paths = inputs.paths.tolist()
        with ThreadPoolExecutor(THREADS) as pool:
            sizes = list(pool.map(_measure_file, paths))
            times = Counter(sizes)
            shared = [size >= 0 and times[size] > 1 for size in sizes]
            digests = list(pool.map(_hash_file, range(len(paths)), paths, shared))
    elif isinstance(inputs, Texts):
        digests = [_hash(str(text).encode("utf-8", "surrogatepass")) for text in inputs.values]
    else:
        rows = (np.ascontiguousarray(row) for row in inputs)
        digests = [_hash(row.data.cast("B")) for row in rows]
    return np.fromiter((int.from_bytes(d, "little") for d in digests), np.uint64, len(inputs))


def _measure_file(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return -1


def _hash_file(row: int, path: str, shared: bool) -> bytes:
    if shared:
        try:
            digest = hashlib.blake2b(digest_size=8)
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
            return digest.digest()
        except (OSError, ValueError):
            pass
    return _hash(f"row {row}".encode())


def _hash(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()
