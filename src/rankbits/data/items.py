"""Items: inputs with ids, labels and titles, read from a file or folder; an index is made of
items and searched with items."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.arrays import FORMS
from rankbits.data.examples import Examples
from rankbits.data.files import make_file_id
from rankbits.data.folders import list_images, read_examples
from rankbits.data.images import SUFFIXES, ImageFiles
from rankbits.data.tables import TABLES, find_metadata, is_table, read_table
from rankbits.data.texts import SUFFIXES as TEXTS
from rankbits.data.texts import (
    TextRows,
    Texts,
    holds_text,
    make_text_rows,
    make_texts,
    read_text_file,
    read_text_folder,
    read_text_table,
)
from rankbits.data.vectors import number_nonempty, read_rows


@dataclass(frozen=True, eq=False)
class Items:
    """Inputs (vectors (n, dim), images in memory, image files or texts) and their ``ids`` (n,).

    ``labels`` are (n,) numbers of ``names``, -1 where none is known, or (n, C) multi-hot; None if
    no input has one. ``titles`` (n,) are shown to people.
    """

    inputs: np.ndarray | ImageFiles | Texts
    ids: np.ndarray
    labels: np.ndarray | None = None
    names: tuple[str, ...] = ()
    titles: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def examples(self) -> Examples:
        """The inputs as a network takes them; labels are zero if none are known."""
        labels = np.zeros(len(self), np.int64) if self.labels is None else self.labels
        return Examples(self.inputs, labels, class_names=self.names)

    @property
    def paths(self) -> np.ndarray | None:
        """The paths of the image files; None if the inputs are not files."""
        return self.inputs.paths if isinstance(self.inputs, ImageFiles) else None

    def subset(self, rows: np.ndarray) -> Items:
        return Items(
            self.inputs[rows],
            self.ids[rows],
            None if self.labels is None else self.labels[rows],
            self.names,
            None if self.titles is None else tuple(self.titles[row] for row in rows.tolist()),
        )


def read_items(
    source: str | os.PathLike[str], *, texts: bool = False, columns: Sequence[str] = ()
) -> Items:
    """Read items from a file or folder:

    - a folder: every image in it. An id is the path below the folder, the folders on that path are
      the label, and the file's name is the title;
    - an image: one item;
    - a table (.csv, .tsv, or .parquet with a column of paths), as ``read_examples`` reads it: the
      column id, or else the path, is the id, and the column title, name or text the title;
    - a folder of texts (.txt, .md), like one of images; one such file is one item;
    - a table (also .jsonl) with a column text, and perhaps id, title and label;
    - vectors (.npy, .npz, .safetensors, .parquet), with the arrays ids, labels and titles if the
      file has them; without ids they are numbered.

    ``texts`` reads the texts of a source that holds both texts and images or vectors. ``columns``
    of a table are its text, joined by a space.
    """
    where = Path(source)
    if where.is_dir():
        return _read_folder(where, texts)
    if not where.is_file():
        _check.refuse(f"{where} does not exist.")
    if where.suffix.lower() in TEXTS:
        text = make_texts([read_text_file(where)])
        return _make_text_items(TextRows(text, [where.name], [where.stem], None, ()))
    if where.suffix.lower() in SUFFIXES:
        paths = np.array([str(where)])
        return Items(ImageFiles(paths), _as_objects([where.name]), titles=(where.stem,))
    if columns or (texts and where.suffix in TABLES):
        return _make_text_items(read_text_table(where, columns))
    if is_table(where):
        return _read_table(where)
    if where.suffix in FORMS:
        return _read_arrays(where)
    _check.refuse(
        f"{where} must be an image, a text ({', '.join(TEXTS)}), a folder of either, a table "
        f"({', '.join(TABLES)}) or vectors ({', '.join(FORMS)})."
    )


def _as_objects(values: list) -> np.ndarray:
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _make_text_items(rows: TextRows) -> Items:
    ids = np.arange(len(rows.texts)) if rows.ids is None else _as_objects(list(rows.ids))
    titles = None if rows.titles is None else tuple(rows.titles)
    return Items(rows.texts, ids, rows.labels, rows.names, titles)


def _read_folder(folder: Path, texts: bool) -> Items:
    files = {} if texts else list_images(folder)
    if not files:
        rows = read_text_folder(folder)
        if rows is None:
            kinds = "" if texts else f"no image ({', '.join(SUFFIXES)}) and "
            _check.refuse(f"{folder} holds {kinds}no text ({', '.join(TEXTS)}).")
        return _make_text_items(rows)
    if find_metadata(folder) is not None:
        return _make_image_items(read_examples(folder), folder)
    labels, names = number_nonempty("/".join(above) for above in files.values())
    paths = np.array(list(files))
    items = _make_image_items(Examples(ImageFiles(paths), labels, class_names=names), folder)
    return items if names else replace(items, labels=None)


def _make_image_items(examples: Examples, folder: Path) -> Items:
    assert isinstance(examples.inputs, ImageFiles)
    paths = examples.inputs.paths.tolist()
    return Items(
        examples.inputs,
        _as_objects([make_file_id(path, folder) for path in paths]),
        examples.labels,
        examples.class_names,
        tuple(Path(path).stem for path in paths),
    )


def _read_table(source: Path) -> Items:
    table = read_table(source)
    if holds_text(table):
        return _make_text_items(make_text_rows(source, table))
    items = _make_image_items(read_examples(source), source.parent)
    columns = {name.strip().lower(): values for name, values in table.items()}
    titles = next((columns[n] for n in ("title", "name", "text") if n in columns), None)
    return replace(
        items,
        ids=_as_objects(list(columns["id"])) if "id" in columns else items.ids,
        titles=items.titles if titles is None else tuple(titles),
    )


def _read_arrays(source: Path) -> Items:
    rows = read_rows(source)
    ids = np.arange(len(rows.inputs)) if rows.ids is None else rows.ids
    if ids.dtype.kind == "U":
        ids = _as_objects(ids.tolist())
    titles = None if rows.titles is None else tuple(map(str, rows.titles.tolist()))
    return Items(rows.inputs, ids, rows.labels, rows.class_names, titles)
