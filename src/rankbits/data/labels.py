"""Labels in a file of their own: arrays, a table, or one label a line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import FORMS, read_columns
from rankbits.data.tables import find_column, read_table
from rankbits.data.vectors import number_names, number_nonempty

TEXT_FORMS = (".txt", ".csv", ".tsv")


def read_labels_file(path: str | os.PathLike[str]) -> np.ndarray:
    """The labels in a file: (n,) whole numbers or names, or (n, C) multi-hot.

    - ``.npy``, ``.npz``, ``.safetensors``, ``.parquet``: the array called 'labels' or 'label', or
      the only one;
    - ``.csv``, ``.tsv``: the column of that name, or the only one; the first line has the names;
    - ``.txt``: one label a line.

    Labels in text become whole numbers if every label is one, written as Python writes it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("cat\\ndog\\ncat\\n")
    ...     _ = Path(folder, "b.csv").write_text("title,label\\nx,7\\ny,10\\n")
    ...     read_labels_file(f"{folder}/a.txt"), read_labels_file(f"{folder}/b.csv")
    (array(['cat', 'dog', 'cat'], dtype='<U3'), array([ 7, 10]))
    """
    source = Path(path)
    if not source.is_file():
        _check.refuse(f"{source} does not exist or is not a file.")
    if source.suffix == ".txt":
        return _parse_labels(source, _read_lines(source), "line")
    if source.suffix in TEXT_FORMS:
        columns = read_table(source)
        texts = columns[_find_label_column(source, columns)]
        for row, text in enumerate(texts):
            if "|" in text or ";" in text:
                _check.refuse(
                    f"{source} row {row + 1} has several labels, '{text}'; give them as multi-hot "
                    "(n, C) in an .npz."
                )
        return _parse_labels(source, [text.strip() for text in texts], "row")
    if source.suffix in FORMS:
        arrays = read_columns(source, "labels")
        return _check_labels(source, arrays[_find_label_column(source, arrays)])
    _check.refuse(
        f"{source} must end in one of {', '.join((*FORMS, *TEXT_FORMS))}; got '{source.suffix}'."
    )


def _find_label_column(source: Path, columns: Mapping[str, Any]) -> str:
    """The name of the column of labels, or of the only column."""
    name = find_column(columns, "label")
    if not name and len(columns) != 1:
        names = ", ".join(columns) or "nothing"
        _check.refuse(f"{source} must have a column 'labels' or only one; it has {names}.")
    return name or next(iter(columns))


def _read_lines(source: Path) -> list[str]:
    try:
        text = source.read_text("utf-8-sig")
    except UnicodeDecodeError:
        _check.refuse(f"{source} must be text in UTF-8, one label a line.")
    return [line.strip() for line in text.rstrip().split("\n")] if text.strip() else []


def _parse_labels(source: Path, texts: list[str], unit: str) -> np.ndarray:
    if "" in texts:
        _check.refuse(f"{source} {unit} {texts.index('') + 1} has no label.")
    if not texts:
        _check.refuse(f"{source} has no labels.")
    try:
        # '007' and '7' are one number, but may be two names
        if all(str(int(text)) == text for text in texts):
            return np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        pass
    return np.array(texts, dtype=str)


def _check_labels(source: Path, values: np.ndarray) -> np.ndarray:
    """Refuse an array of a file that cannot be labels; returns it as labels."""
    name = f"labels in {source}"
    names = _check.label_names(name, values)
    rows = len(values) if values.ndim else 0
    return _check.labels(name, values, rows) if names is None else names


def number_labels(texts: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels (n,), -1 where a text is empty, or (n, C) multi-hot if any joins several by ``|`` or
    ``;``; and the names.

    >>> number_labels(["b", "", "a"])
    (array([ 1, -1,  0]), ('a', 'b'))
    """
    split = split_labels(texts)
    if any(len(labels) > 1 for labels in split):
        return make_multi_hot(split)
    return number_nonempty("".join(labels) for labels in split)


def split_labels(texts: Iterable[str]) -> list[list[str]]:
    """The labels in each text, which ``|`` or ``;`` joins."""
    return [[p.strip() for p in t.replace(";", "|").split("|") if p.strip()] for t in texts]


def make_multi_hot(split: Sequence[Sequence[str]]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Multi-hot labels (n, C) of the labels of each row, and the C names."""
    numbers, names = number_names(label for labels in split for label in labels)
    hot = np.zeros((len(split), len(names)), bool)
    hot[np.repeat(np.arange(len(split)), [len(labels) for labels in split]), numbers] = True
    return hot, names
