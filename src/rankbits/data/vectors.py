"""Read vectors or images from a file of arrays, with the labels, categories, ids and titles of the
rows; and number the names of labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.tables import find_column

INPUTS = ("features", "embeddings", "embedding", "images")
IDS, TITLES = ("ids", "id", "paths", "path"), ("titles", "title", "texts", "text")


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors (n, dim) or images, and what else the file holds about each row."""

    inputs: np.ndarray
    labels: np.ndarray | None
    class_names: tuple[str, ...]
    categories: np.ndarray | None
    category_names: tuple[str, ...]
    ids: np.ndarray | None
    titles: np.ndarray | None


def read_rows(source: Path) -> Rows:
    """The rows of a file of arrays: the array called features, embeddings or images, or the only
    matrix of floats. Names of labels become numbers."""
    columns = read_columns(source)
    inputs = _find_inputs(source, columns)
    labels, class_names = _number_strings(columns.get(find_column(columns, "label")))
    if labels is not None:
        _check.same_length(f"labels in {source}", len(labels), "the vectors", len(inputs))
        labels = _check.labels(f"labels in {source}", labels, len(inputs))
    categories, category_names = _number_strings(columns.get("categories"))
    ids, titles = (_find_column(source, columns, names, len(inputs)) for names in (IDS, TITLES))
    return Rows(inputs, labels, class_names, categories, category_names, ids, titles)


def number_names(names: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number names in sorted order (whole numbers by value) -> the numbers (n,), and the names.

    >>> number_names(["10", "9", "10"])
    (array([1, 0, 1]), ('9', '10'))
    """
    texts = [str(name) for name in names]
    order = sorted(set(texts))
    if all(text.lstrip("-").isdecimal() for text in order):
        order.sort(key=int)
    number = {text: i for i, text in enumerate(order)}
    return np.fromiter((number[text] for text in texts), np.int64, len(texts)), tuple(order)


def number_nonempty(names: Iterable[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number names as ``number_names`` does, and '' as -1 -> the numbers (n,), and the names.

    >>> number_nonempty(["b", "", "a"])
    (array([ 1, -1,  0]), ('a', 'b'))
    """
    texts = list(names)
    present = np.array([text != "" for text in texts], bool)
    numbers = np.full(len(texts), -1, np.int64)
    numbers[present], different = number_names(filter(None, texts))
    return numbers, different


def _number_strings(values: Any) -> tuple[Any, tuple[str, ...]]:
    """Number an array (n,) of names -> the numbers, and the names; other values are unchanged."""
    if values is not None and values.dtype.kind in "UT" and values.ndim == 1:
        return number_names(values.tolist())
    return values, ()


def _find_inputs(source: Path, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    name = next((name for name in INPUTS if name in columns), None)
    if name is None:
        floats = [n for n, a in columns.items() if a.ndim == 2 and a.dtype.kind == "f"]
        if len(floats) != 1:
            names = ", ".join(sorted(columns)) or "nothing"
            _check.refuse(
                f"{source} must hold 'features', 'embeddings' or 'images'; it holds {names}."
            )
        name = floats[0]
    inputs = columns[name]
    if name == "images" or inputs.ndim > 2:
        return inputs
    inputs = inputs[None] if inputs.ndim == 1 else inputs
    # embedding services also return whole numbers
    return inputs.astype(np.float32) if inputs.dtype.kind in "iu" else inputs


def _find_column(
    source: Path, columns: Mapping[str, np.ndarray], names: tuple[str, ...], rows: int
) -> np.ndarray | None:
    name = next((n for n in names if n in columns and columns[n].ndim == 1), None)
    if name is None:
        return None
    _check.same_length(f"'{name}' in {source}", len(columns[name]), "the vectors", rows)
    return columns[name]
