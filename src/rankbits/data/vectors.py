"""Files of arrays with what is known of their rows: labels, categories, ids and titles."""

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
    """Vectors (n, dim) or images, and beside them whatever the file holds."""

    inputs: np.ndarray
    labels: np.ndarray | None
    class_names: tuple[str, ...]
    categories: np.ndarray | None
    category_names: tuple[str, ...]
    ids: np.ndarray | None
    titles: np.ndarray | None


def read_rows(source: Path) -> Rows:
    """The rows of a file of arrays: those called features, embeddings or images, or the only matrix
    of floats. Names of labels become numbers."""
    columns = read_columns(source)
    inputs = _find_inputs(source, columns)
    labels, class_names = _number(columns.get(find_column(columns, "label")))
    if labels is not None:
        _check.same_length(f"labels in {source}", len(labels), "the vectors", len(inputs))
        labels = _check.labels(f"labels in {source}", labels, len(inputs))
    categories, category_names = _number(columns.get("categories"))
    ids, titles = (_find_column(source, columns, names, len(inputs)) for names in (IDS, TITLES))
    return Rows(inputs, labels, class_names, categories, category_names, ids, titles)


def number_names(names: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of names in sorted order, whole numbers by value, and the names.

    >>> number_names(["10", "9", "10"])
    (array([1, 0, 1]), ('9', '10'))
    """
    texts = [str(name) for name in names]
    order = sorted(set(texts))
    if all(text.lstrip("-").isdecimal() for text in order):
        order.sort(key=int)
    number = {text: i for i, text in enumerate(order)}
    return np.fromiter((number[text] for text in texts), np.int64, len(texts)), tuple(order)


def number_known(names: Iterable[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of names as ``number_names`` gives them, -1 for ''; and the names.

    >>> number_known(["b", "", "a"])
    (array([ 1, -1,  0]), ('a', 'b'))
    """
    texts = np.array(list(names), dtype=str)
    numbers = np.full(len(texts), -1, np.int64)
    numbers[texts != ""], known = number_names(texts[texts != ""])
    return numbers, known


def _number(values: Any) -> tuple[Any, tuple[str, ...]]:
    """Names (n,) as numbers, and the names; numbers as they are."""
    if values is not None and values.dtype.kind in "UT" and values.ndim == 1:
        return number_names(values.tolist())
    return values, ()


def _find_inputs(source: Path, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    name = next((name for name in INPUTS if name in columns), None)
    if name is None:
        floats = [n for n, a in columns.items() if a.ndim == 2 and a.dtype.kind == "f"]
        if len(floats) != 1:
            held = ", ".join(sorted(columns)) or "nothing"
            _check.refuse(
                f"{source} must hold 'features', 'embeddings' or 'images'; it holds {held}."
            )
        name = floats[0]
    inputs = columns[name]
    if name == "images" or inputs.ndim > 2:
        return inputs
    inputs = inputs[None] if inputs.ndim == 1 else inputs
    # whole numbers are what embedding services sell
    return inputs.astype(np.float32) if inputs.dtype.kind in "iu" else inputs


def _find_column(
    source: Path, columns: Mapping[str, np.ndarray], names: tuple[str, ...], rows: int
) -> np.ndarray | None:
    name = next((n for n in names if n in columns and columns[n].ndim == 1), None)
    if name is None:
        return None
    _check.same_length(f"'{name}' in {source}", len(columns[name]), "the vectors", rows)
    return columns[name]
