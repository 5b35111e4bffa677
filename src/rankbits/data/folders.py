"""A user's own examples: images or texts in a folder or a table, or a file of arrays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.files import list_files
from rankbits.data.images import SUFFIXES, ImageFiles
from rankbits.data.labels import make_multi_hot, split_labels
from rankbits.data.tables import (
    COLUMNS,
    TABLES,
    Columns,
    find_column,
    find_label_column,
    find_metadata,
    is_table,
    read_table,
)
from rankbits.data.texts import SUFFIXES as TEXTS
from rankbits.data.texts import TextRows, holds_text, make_text_rows, read_text_folder
from rankbits.data.vectors import number_names, number_nonempty, read_rows

ARRAYS = (".npz", ".safetensors", ".parquet")
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "query", "gallery"}


def read_examples(path: str | os.PathLike[str]) -> Examples:
    """Read labelled examples from a file or folder:

    - a folder ``class/*.png`` or ``category/class/*.png``; the depth says which;
    - a folder with images and a table metadata.csv (or .jsonl, .parquet), as in Hugging Face's
      imagefolder: the column file_name, and label or the only other column whose values repeat;
    - a ``.csv``, ``.tsv`` or ``.parquet`` table with the columns path, label and perhaps category;
      paths are relative to the table, and labels joined by ``|`` or ``;`` are several;
    - a folder ``class/*.txt``, or a table (also ``.jsonl``) with the columns text and label;
    - an ``.npz`` or ``.safetensors`` with features (or embeddings, or uint8 images), labels and
      perhaps categories.

    Images stay on disk; none is opened here.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "list.csv").write_text("path,label\\na.png,cat\\nb.png,cat|dog\\n")
    ...     examples = read_examples(Path(folder, "list.csv"))
    >>> examples.class_names, examples.labels.tolist()
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
    """Read examples, and leave out image files that lie at another depth than most."""
    source = Path(path)
    if source.is_dir():
        return _read_folder(source)
    return Reading(_read_file(source))


def _read_file(source: Path) -> Examples:
    if not source.is_file():
        _check.refuse(f"{source} does not exist.")
    if is_table(source):
        columns = read_table(source)
        if holds_text(columns):
            return _make_examples(source, make_text_rows(source, columns))
        return _read_table(source, columns)
    if source.suffix in ARRAYS:
        return _read_arrays(source)
    _check.refuse(
        f"{source} must be a folder of images, a table ({', '.join(TABLES)}) or arrays "
        f"({', '.join(ARRAYS)})."
    )


def holds_texts(source: Path) -> bool:
    """Whether ``read_examples`` reads texts from a file or folder."""
    if source.is_dir():
        return not list_images(source) and bool(list_files(source, TEXTS))
    if not source.is_file() or not is_table(source):
        return False
    return holds_text(read_table(source))


def list_images(folder: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Every image file under a folder, with the folders that lead to it."""
    return list_files(folder, SUFFIXES)


def _read_folder(folder: Path) -> Reading:
    images = list_images(folder)
    if not images:
        rows = read_text_folder(folder)
        if rows is None:
            _check.refuse(f"{folder} holds no image ({', '.join(SUFFIXES)}) and no text.")
        return Reading(_make_examples(folder, rows))
    metadata = find_metadata(folder)
    if metadata is not None:
        source, columns = metadata
        label = find_label_column(source, columns)
        if label:
            return _read_metadata(source, columns, label, images)
        if not any(images.values()):
            _check.refuse(
                f"{source} must have a column 'label', or one whose values repeat; it has "
                f"{', '.join(columns)}."
            )
    return _read_class_folders(folder, images)


def _make_examples(source: Path, rows: TextRows) -> Examples:
    """Labelled texts; refuses if a text or a label is missing."""
    if rows.texts.sentences:
        _check.refuse(rows.texts.sentences[0])
    labels = rows.labels
    if labels is None or (labels.ndim == 1 and (labels < 0).any()):
        _check.refuse(f"{source} must have a label for each text.")
    return Examples(rows.texts, labels, class_names=rows.names)


def _read_metadata(
    source: Path, columns: Columns, label: str, images: dict[str, tuple[str, ...]]
) -> Reading:
    names = find_column(columns, "path"), find_column(columns, "category")
    table = {name: columns[name] for name in names if name} | {"label": columns[label]}
    examples = _read_table(source, table)
    notes = [f"labels are the column '{label}' of {source.name}"]
    listed = {os.path.normpath(path) for path in examples.inputs.paths}  # type: ignore[union-attr]
    unlisted = sum(os.path.normpath(path) not in listed for path in images)
    if unlisted:
        notes.append(f"{unlisted:,} images are not in {source.name}, and are left out")
    return Reading(examples, notes=tuple(notes))


def _read_class_folders(folder: Path, images: dict[str, tuple[str, ...]]) -> Reading:
    counts = Counter(len(names) for names in images.values())
    depth = min(counts, key=lambda depth: (-counts[depth], depth))
    misplaced = tuple(path for path, names in images.items() if len(names) != depth)
    images = {path: names for path, names in images.items() if len(names) == depth}
    if depth not in (1, 2):
        _check.refuse(
            f"{folder} must hold class/*.png or category/class/*.png; got {next(iter(images))}."
        )
    tops = {names[0] for names in images.values()}
    if {top.lower() for top in tops} <= SPLITS:
        what = "classes" if depth == 1 else "categories"
        _check.refuse(
            f"{folder} holds splits ({', '.join(sorted(tops))}), not {what}: give one of them."
        )
    labels, classes = number_names(["/".join(names) for names in images.values()])
    files = ImageFiles(np.array(list(images), dtype=str))
    if depth == 1:
        return Reading(Examples(files, labels, class_names=classes), misplaced)
    groups, categories = number_names([names[0] for names in images.values()])
    return Reading(Examples(files, labels, groups, classes, categories), misplaced)


def _read_table(source: Path, columns: Columns) -> Examples:
    names = {wanted: find_column(columns, wanted) for wanted in COLUMNS}
    for wanted in ("path", "label"):
        if not names[wanted]:
            accepted = " or ".join(f"'{name}'" for name in COLUMNS[wanted])
            present = ", ".join(columns) or "nothing"
            _check.refuse(f"{source} must have a column {accepted}; it has {present}.")
    paths = [path.strip() for path in columns[names["path"]]]
    if not paths:
        _check.refuse(f"{source} must have rows; it has only its header.")
    if "" in paths:
        _check.refuse(f"{source} row {paths.index('') + 1} has no path.")
    files = ImageFiles(np.array([str(source.parent / path) for path in paths], dtype=str))
    labels, classes = _read_labels(source, columns[names["label"]])
    if not names["category"]:
        return Examples(files, labels, class_names=classes)
    categories, category_names = number_nonempty(map(str.strip, columns[names["category"]]))
    return Examples(files, labels, categories, classes, category_names)


def _read_labels(source: Path, texts: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels (n,), or (n, C) multi-hot if any row joins several by ``|`` or ``;``; refuses a
    missing one of (n,)."""
    if any("|" in text or ";" in text for text in texts):
        return make_multi_hot(split_labels(texts))
    names = [text.strip() for text in texts]
    if "" in names:
        _check.refuse(f"{source} row {names.index('') + 1} has no label.")
    return number_names(names)


def _read_arrays(source: Path) -> Examples:
    rows = read_rows(source)
    if rows.labels is None:
        _check.refuse(f"{source} must hold 'labels' beside its vectors or images.")
    return Examples(
        rows.inputs, rows.labels, rows.categories, rows.class_names, rows.category_names
    )
