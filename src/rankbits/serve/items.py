"""What the ids of an index stand for: titles, labels, texts and images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data import items as data_items
from rankbits.data import tables
from rankbits.data.labels import number_labels
from rankbits.data.texts import Texts, make_snippet
from rankbits.indexes.checks import parse_distinct_ids
from rankbits.indexes.ids import Column
from rankbits.serve.pictures import draw_array, draw_file

COLUMNS = tables.COLUMNS
MOST_THUMBNAILS = 512  # in memory
SNIPPET, WHOLE = 240, 10_000  # characters of a text in a list, and on its own


class Items:
    """Titles, texts (n,), labels and images by id. ``labels`` are (n,) numbers, -1 where unknown,
    or (n, C) multi-hot; ``names`` are the words for them.

    >>> items = Items([7, 9], titles=["a cat", "a dog"], labels=[1, 0], names=("dog", "cat"))
    >>> items.row(9), items.title(9), items.label(items.row(7))
    (1, 'a dog', 'cat')
    """

    def __init__(
        self,
        ids: Any,
        *,
        titles: Sequence[str] | None = None,
        texts: Sequence[object] | None = None,
        labels: Any = None,
        names: Sequence[str] = (),
        images: np.ndarray | None = None,
        paths: Sequence[str | None] | None = None,
    ) -> None:
        self.ids = Column(parse_distinct_ids(ids, len(ids), "items"))
        columns = {"titles": titles, "texts": texts, "labels": labels, "images": images}
        for name, value in columns.items():
            if value is not None:
                _check.same_length(name, len(value), "the items", len(self.ids))
        self.titles, self.texts, self.names = titles, texts, tuple(names)
        self.labels = None if labels is None else _check.labels("labels", labels, len(self.ids))
        self._images, self._paths = images, paths
        self._thumbnails: dict[int, tuple[bytes, str]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, name: int | str) -> int:
        """Find the row of an id; -1 where there is none."""
        key = np.empty(1, object if isinstance(name, str) else np.int64)
        key[0] = name
        return int(self.ids.rows_of(key)[0])

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.ids.rows_of(ids)

    def title(self, name: int | str, row: int | None = None) -> str:
        row = self.row(name) if row is None else row
        return str(name) if self.titles is None or row < 0 else self.titles[row]

    def text(self, row: int, most: int = SNIPPET) -> str | None:
        """Read the beginning of an item's text."""
        return None if self.texts is None or row < 0 else make_snippet(self.texts[row], most)

    def label(self, row: int) -> str | None:
        """Spell an item's labels in words."""
        if self.labels is None or row < 0:
            return None
        value = self.labels[row]
        if self.labels.ndim == 2:
            return "|".join(self._spell(i) for i in np.flatnonzero(value).tolist()) or None
        return None if value < 0 else self._spell(int(value))

    def _spell(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else str(number)

    def find_labelled(self, text: str) -> np.ndarray:
        """Find the rows that have the label ``text``."""
        if self.labels is None:
            return np.empty(0, np.int64)
        if text in self.names:
            number = self.names.index(text)
        elif not self.names and text.isdecimal() and text.isascii() and len(text) < 19:
            number = int(text)
        else:
            return np.empty(0, np.int64)
        if self.labels.ndim == 2:
            inside = number < self.labels.shape[1]
            return np.flatnonzero(self.labels[:, number]) if inside else np.empty(0, np.int64)
        return np.flatnonzero(self.labels == number)

    def has_picture(self, row: int) -> bool:
        if row < 0:
            return False
        return self._images is not None or bool(self._paths is not None and self._paths[row])

    def picture(self, row: int) -> tuple[bytes, str] | None:
        """Draw the thumbnail of an item -> its bytes and its type; None where it has no image."""
        if not self.has_picture(row):
            return None
        picture = self._thumbnails.get(row)
        if picture is None:
            if self._images is not None:
                picture = draw_array(self._images[row])
            else:
                assert self._paths is not None
                picture = draw_file(str(self._paths[row]))
            if len(self._thumbnails) >= MOST_THUMBNAILS:
                self._thumbnails.pop(next(iter(self._thumbnails)), None)
            self._thumbnails[row] = picture
        return picture


def describe_items(items: data_items.Items) -> Items:
    """Make the items of a page from the inputs that an index was made of."""
    inputs = items.inputs
    pixels = isinstance(inputs, np.ndarray) and inputs.ndim == 4
    return Items(
        items.ids,
        titles=items.titles,
        texts=inputs.values if isinstance(inputs, Texts) else None,  # type: ignore[arg-type]
        labels=items.labels,
        names=items.names,
        images=inputs if pixels else None,  # type: ignore[arg-type]
        paths=None if items.paths is None else items.paths.tolist(),
    )


def read_items(path: str | os.PathLike[str], strings: bool | None) -> Items:
    """Read the items of a folder of images or texts, or of a table (.csv, .tsv, .jsonl, .parquet).

    A folder's images are numbered in the order of their names, as ``rankbits embed`` reads them;
    where the index holds strings, their ids are their paths below the folder. The folder of an
    image is its label. A table may have the columns id, path, text, label and title. Without ids
    its rows are numbered; paths are relative to the table.
    """
    source = Path(path)
    if source.is_dir():
        items = data_items.read_items(source)
        return describe_items(items if strings else replace(items, ids=np.arange(len(items))))
    if not source.is_file():
        _check.refuse(f"{source} does not exist.")
    if source.suffix not in tables.TABLES:
        _check.refuse(f"{source} must be a folder or a table ({', '.join(tables.TABLES)}).")
    texts = tables.read_table(source)
    columns = {name.strip().lower(): values for name, values in texts.items()}
    rows = max(map(len, columns.values()), default=0)
    if not rows:
        _check.refuse(f"{source} must have a header and rows.")

    def find(wanted: str) -> list[str] | None:
        name = next((name for name in COLUMNS[wanted] if name in columns), None)
        return None if name is None else [text.strip() for text in columns[name]]

    ids: Any = find("id") or [str(row) for row in range(rows)]
    if not strings:
        try:
            ids = [int(name) for name in ids]
        except ValueError:
            _check.refuse(f"The ids of {source} must be whole numbers, as those of the index are.")
    paths = find("path")
    label = find("label")
    labels, names = (None, ()) if label is None else number_labels(label)
    return Items(
        ids,
        titles=find("title") or paths,
        texts=find("text"),
        labels=labels,
        names=names,
        paths=None if paths is None else [str(source.parent / p) if p else None for p in paths],
    )
