"""A user's own examples: a folder of images, a table of paths and labels, or a file of arrays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.examples import Examples
from rankbits.data.images import SUFFIXES, ImageFiles
from rankbits.data.metadata import Columns, find_label_column, find_metadata
from rankbits.data.tables import (
    COLUMNS,
    find_column,
    list_parquet_columns,
    read_parquet_columns,
    read_text_columns,
    spell_column,
)

TABLES = (".csv", ".tsv", ".parquet")
ARRAYS = (".npz", ".safetensors", ".parquet")
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "query", "gallery"}
INPUTS = ("features", "embeddings", "embedding", "images")
DEEPEST = 4


def read_examples(path: str | os.PathLike[str]) -> Examples:
    """Examples from what a user has.

    - a folder ``class/*.png`` or ``category/class/*.png``, which are told apart by their depth;
    - a folder with images and a table metadata.csv (or .jsonl, .parquet), as Hugging Face's
      imagefolder has it: column file_name, and label or the only other whose values repeat;
    - a ``.csv``, ``.tsv`` or ``.parquet`` table with the columns path, label and perhaps category;
      paths are relative to the table, and labels joined by ``|`` or ``;`` are several;
    - an ``.npz`` or ``.safetensors`` with features (or embeddings, or uint8 images), labels and
      perhaps categories.

    Images stay on disk; none is opened here.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "list.csv").write_text("path,label\\na.png,cat\\nb.png,cat|dog\\n")
    ...     found = read_examples(Path(folder, "list.csv"))
    >>> found.class_names, found.labels.tolist()
    (('cat', 'dog'), [[True, False], [True, True]])
    """
    reading = read_leniently(path)
    if reading.misplaced:
        usual = reading.examples.inputs.paths[0]  # type: ignore[union-attr]
        odd = reading.misplaced[0]
        _check.refuse(f"All images must lie equally deep; {usual} and {odd} do not.")
    return reading.examples


@dataclass(frozen=True)
class Reading:
    """Examples, image files that lie at another depth than most, and what a person should know."""

    examples: Examples
    misplaced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_leniently(path: str | os.PathLike[str]) -> Reading:
    """``read_examples``, which leaves out image files that lie at another depth than most."""
    source = Path(path)
    if source.is_dir():
        return _of_folder(source)
    return Reading(_of_file(source))


def _of_file(source: Path) -> Examples:
    if not source.is_file():
        _check.refuse(f"{source} does not exist.")
    if source.suffix in (".csv", ".tsv"):
        return _of_table(source, read_text_columns(source))
    if source.suffix == ".parquet":
        if find_column(list_parquet_columns(source), "path"):
            return _of_table(source, read_parquet_columns(source))
        return _of_arrays(source)
    if source.suffix in ARRAYS:
        return _of_arrays(source)
    _check.refuse(
        f"{source} must be a folder of images, a table ({', '.join(TABLES)}) or arrays "
        f"({', '.join(ARRAYS)})."
    )


def by_folder(folder: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Every image file under a folder, in the order of names, with the folders that lead to it.

    Hidden files and files without the ending of an image are skipped; linked folders are followed.
    """
    found: dict[str, tuple[str, ...]] = {}
    # a stack, and a limit on depth, so that a link to a folder above ends
    waiting: list[tuple[str, tuple[str, ...]]] = [(os.fspath(folder), ())]
    while waiting:
        where, names = waiting.pop()
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
        deeper = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if len(names) < DEEPEST:
                    deeper.append((entry.path, (*names, entry.name)))
            elif entry.name.lower().endswith(SUFFIXES):
                found[entry.path] = names
        waiting += reversed(deeper)
    return found


def _of_folder(folder: Path) -> Reading:
    found = by_folder(folder)
    if not found:
        _check.refuse(f"{folder} holds no image ({', '.join(SUFFIXES)}).")
    metadata = find_metadata(folder)
    if metadata is not None:
        source, columns = metadata
        label = find_label_column(source, columns)
        if label:
            return _of_metadata(source, columns, label, found)
        if not any(found.values()):
            _check.refuse(
                f"{source} must have a column 'label', or one whose values repeat; it has "
                f"{', '.join(columns)}."
            )
    return _of_classes(folder, found)


def _of_metadata(
    source: Path, columns: Columns, label: str, found: dict[str, tuple[str, ...]]
) -> Reading:
    names = find_column(columns, "path"), find_column(columns, "category")
    table = {name: columns[name] for name in names if name} | {"label": columns[label]}
    examples = _of_table(source, table)
    notes = [f"labels are the column '{label}' of {source.name}"]
    listed = {os.path.normpath(path) for path in examples.inputs.paths}  # type: ignore[union-attr]
    unlisted = sum(os.path.normpath(path) not in listed for path in found)
    if unlisted:
        notes.append(f"{unlisted:,} images are not in {source.name}, and are left out")
    return Reading(examples, notes=tuple(notes))


def _of_classes(folder: Path, found: dict[str, tuple[str, ...]]) -> Reading:
    counts = Counter(len(names) for names in found.values())
    depth = min(counts, key=lambda depth: (-counts[depth], depth))
    misplaced = tuple(path for path, names in found.items() if len(names) != depth)
    found = {path: names for path, names in found.items() if len(names) == depth}
    if depth not in (1, 2):
        _check.refuse(
            f"{folder} must hold class/*.png or category/class/*.png; got {next(iter(found))}."
        )
    tops = {names[0] for names in found.values()}
    if {top.lower() for top in tops} <= SPLITS:
        what = "classes" if depth == 1 else "categories"
        _check.refuse(
            f"{folder} holds splits ({', '.join(sorted(tops))}), not {what}: give one of them."
        )
    labels, classes = named(["/".join(names) for names in found.values()])
    files = ImageFiles(np.array(list(found), dtype=str))
    if depth == 1:
        return Reading(Examples(files, labels, class_names=classes), misplaced)
    groups, categories = named([names[0] for names in found.values()])
    return Reading(Examples(files, labels, groups, classes, categories), misplaced)


def named(values: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of names in sorted order, whole numbers by value, and the names.

    >>> named(["10", "9", "10"])
    (array([1, 0, 1]), ('9', '10'))
    """
    texts = [str(value) for value in values]
    known = sorted(set(texts))
    if all(text.lstrip("-").isdecimal() for text in known):
        known.sort(key=int)
    of = {text: number for number, text in enumerate(known)}
    return np.fromiter((of[text] for text in texts), np.int64, len(texts)), tuple(known)


def _of_table(source: Path, columns: dict[str, Sequence[str]]) -> Examples:
    names = {wanted: find_column(columns, wanted) for wanted in COLUMNS}
    for wanted in ("path", "label"):
        if not names[wanted]:
            held = ", ".join(columns) or "nothing"
            _check.refuse(f"{source} must have a column {spell_column(wanted)}; it has {held}.")
    texts = columns[names["label"]]
    paths = [str(source.parent / path.strip()) for path in columns[names["path"]]]
    if not paths:
        _check.refuse(f"{source} must have rows; it has only its header.")
    for row, path in enumerate(columns[names["path"]]):
        if not path.strip():
            _check.refuse(f"{source} row {row + 1} has no path.")
    files = ImageFiles(np.array(paths, dtype=str))
    labels, classes = _labels(source, texts)
    if not names["category"]:
        return Examples(files, labels, class_names=classes)
    groups = [text.strip() for text in columns[names["category"]]]
    known = [group for group in groups if group]
    numbers, categories = named(known)
    categories_of = np.full(len(groups), -1, np.int64)
    categories_of[[bool(group) for group in groups]] = numbers
    return Examples(files, labels, categories_of, classes, categories)


def _labels(source: Path, texts: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """One label a row, or several where any row joins them by ``|`` or ``;``."""
    split = [[part.strip() for part in text.replace(";", "|").split("|")] for text in texts]
    if all(len(parts) == 1 for parts in split):
        for row, parts in enumerate(split):
            if not parts[0]:
                _check.refuse(f"{source} row {row + 1} has no label.")
        return named(parts[0] for parts in split)
    kept = [[part for part in parts if part] for parts in split]
    numbers, classes = named(part for parts in kept for part in parts)
    hot = np.zeros((len(kept), len(classes)), bool)
    hot[np.repeat(np.arange(len(kept)), [len(parts) for parts in kept]), numbers] = True
    return hot, classes


def _of_arrays(source: Path) -> Examples:
    columns = read_columns(source)
    inputs = next((name for name in INPUTS if name in columns), None)
    label = "labels" if "labels" in columns else find_column(columns, "label")
    if inputs is None or not label:
        held = ", ".join(sorted(columns)) or "nothing"
        _check.refuse(
            f"{source} must hold 'labels' and one of 'features', 'embeddings' or 'images'; "
            f"it holds {held}."
        )
    labels, class_names = _number(columns[label])
    categories, category_names = _number(columns.get("categories"))
    values = columns[inputs]
    if values.ndim == 2 and values.dtype in (np.int8, np.uint8):
        values = values.astype(np.float32)  # embeddings as services sell them
    return Examples(values, labels, categories, class_names, category_names)


def _number(values: Any) -> tuple[Any, tuple[str, ...]]:
    """Names (n,) as numbers, and the names; numbers as they are."""
    if values is not None and values.dtype.kind in "UT" and values.ndim == 1:
        return named(values.tolist())
    return values, ()
