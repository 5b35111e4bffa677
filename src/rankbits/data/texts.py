"""Texts, and how they are read from files, folders and tables.

A text that cannot be used (empty, binary, not in UTF-8) keeps its row, which holds a sentence
instead: the other texts can still be used, and the caller can say which were left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.files import list_files, make_file_id
from rankbits.data.images import Unreadable
from rankbits.data.labels import number_labels
from rankbits.data.tables import COLUMNS, Columns, find_column, read_table
from rankbits.data.vectors import number_nonempty

SUFFIXES = (".txt", ".md")


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts in memory: ``values`` (n,) holds a str, or an ``Unreadable`` where there is no text.

    >>> texts = make_texts(["a cat", " ", "a dog"])
    >>> len(texts), texts[np.array([2, 0])].values.tolist()
    (3, ['a dog', 'a cat'])
    >>> texts.sentences
    ('Text 2 is empty.',)
    """

    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Texts:
        return Texts(np.atleast_1d(self.values[rows]))

    @property
    def readable(self) -> np.ndarray:
        """The rows that hold a text."""
        return np.flatnonzero([isinstance(value, str) for value in self.values])

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why each of the other rows holds none."""
        return tuple(str(value) for value in self.values if not isinstance(value, str))


def make_texts(
    values: Iterable[Any], name: Callable[[int], str] = lambda row: f"Text {row + 1}"
) -> Texts:
    """Texts of strings; a sentence about a row begins with ``name(row)``."""
    rows = list(values)
    texts = np.empty(len(rows), object)
    for row, value in enumerate(rows):
        if not isinstance(value, (str, Unreadable)):
            _check.refuse(f"{name(row)} must be a string; got {type(value).__name__}.")
        texts[row] = value
        if isinstance(value, str) and not value.strip():
            texts[row] = Unreadable(f"{name(row)} is empty.")
    return Texts(texts)


@dataclass(frozen=True, eq=False)
class TextRows:
    """Texts with their ids, titles and labels, if known. ``labels`` are (n,) numbers of ``names``,
    -1 where there is none, or (n, C) multi-hot."""

    texts: Texts
    ids: Sequence[str] | None
    titles: Sequence[str] | None
    labels: np.ndarray | None
    names: tuple[str, ...]


def read_text_file(path: str | os.PathLike[str]) -> str | Unreadable:
    """The text of a file in UTF-8, or a sentence that says why it has none."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        return Unreadable(f"{path} cannot be read: {error.strerror}.")
    if b"\0" in raw[:4096]:
        return Unreadable(f"{path} is binary, not a text.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Unreadable(f"{path} line {line} is not text in UTF-8.")
    return text if text.strip() else Unreadable(f"{path} is empty.")


def read_text_folder(folder: Path) -> TextRows | None:
    """Every text file of a folder; None if it has none. An id is the path below the folder, the
    folders on that path are the label, and the file's name is the title."""
    files = list_files(folder, SUFFIXES)
    if not files:
        return None
    labels, names = number_nonempty("/".join(above) for above in files.values())
    return TextRows(
        make_texts(read_text_file(path) for path in files),
        [make_file_id(path, folder) for path in files],
        [Path(path).stem for path in files],
        labels if names else None,
        names,
    )


def holds_text(columns: Columns) -> bool:
    """Whether a table is one of texts: it has a column of texts and no paths of images."""
    return bool(find_column(columns, "text")) and not find_column(columns, "path")


def read_text_table(source: Path, wanted: Sequence[str] = ()) -> TextRows:
    """The texts of a table in a file, as ``make_text_rows`` takes them from its columns."""
    return make_text_rows(source, read_table(source), wanted)


def make_text_rows(source: Path, columns: Columns, wanted: Sequence[str] = ()) -> TextRows:
    """The texts of a table: its column text (or sentence, content, body, passage), or the columns
    ``wanted``, joined by a space; and its columns id, title and label, if it has them."""
    names = [_find_named_column(source, columns, name) for name in wanted]
    names = names or [_find_text_column(source, columns)]
    parts = zip(*(columns[name] for name in names), strict=True)
    texts = make_texts(
        (" ".join(filter(None, row)) for row in parts), lambda row: f"{source} row {row + 1}"
    )
    if not len(texts):
        _check.refuse(f"{source} has no rows.")
    id_column, title, label = (find_column(columns, name) for name in ("id", "title", "label"))
    labels, classes = number_labels(columns[label]) if label else (None, ())
    return TextRows(
        texts,
        columns[id_column] if id_column else None,
        columns[title] if title else None,
        labels if classes else None,
        classes,
    )


def _find_text_column(source: Path, columns: Columns) -> str:
    name = find_column(columns, "text")
    if not name:
        accepted = ", ".join(COLUMNS["text"])
        _check.refuse(
            f"{source} must have a column of texts ({accepted}), or --column must name it; it has "
            f"{', '.join(columns) or 'nothing'}."
        )
    return name


def _find_named_column(source: Path, columns: Columns, wanted: str) -> str:
    by_lower = {name.strip().lower(): name for name in columns}
    if wanted.strip().lower() not in by_lower:
        near = _check.suggest(wanted, columns)
        names = ", ".join(columns) or "nothing"
        _check.refuse(f"{source} has no column '{wanted}'{near}; it has {names}.")
    return by_lower[wanted.strip().lower()]


def make_snippet(text: object, most: int = 240) -> str:
    """The beginning of a text on one line, cut between words.

    >>> make_snippet("A long\\n  story about bones", 14)
    'A long story …'
    """
    # a text may be megabytes: a hundred times the snippet is enough to find its words
    words = " ".join(str(text)[: 100 * most].split())
    if len(words) <= most:
        return words
    return words[: most - 1].rsplit(" ", 1)[0] + " …"
