"""Items: what an index is made of and asked with, whatever file or folder it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.examples import Examples
from rankbits.data.folders import by_folder, named, read_examples
from rankbits.data.images import SUFFIXES, ImageFiles
from rankbits.data.metadata import find_metadata
from rankbits.data.tables import read_text_columns

TABLES = (".csv", ".tsv")
ARRAYS = (".npy", ".npz", ".safetensors", ".parquet")
VECTORS = ("embeddings", "features")


def file_id(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> str:
    """The id of a file: its path below the folder that was given, with forward slashes.

    >>> file_id("photos/birds/a.jpg", "photos")
    'birds/a.jpg'
    """
    return Path(os.path.relpath(path, folder)).as_posix()


@dataclass(frozen=True, eq=False)
class Items:
    """Inputs under ``ids`` (n,): vectors (n, dim), images in memory or image files.

    ``labels`` are (n,) numbers of ``names``, -1 where none is known, or (n, C) multi-hot; None
    where nothing is known of any. ``titles`` are what a person reads (n,).
    """

    inputs: np.ndarray | ImageFiles
    ids: np.ndarray
    labels: np.ndarray | None = None
    names: tuple[str, ...] = ()
    titles: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def examples(self) -> Examples:
        """The inputs as a network takes them, with labels of zero where none are known."""
        labels = np.zeros(len(self), np.int64) if self.labels is None else self.labels
        return Examples(self.inputs, labels, class_names=self.names)

    @property
    def paths(self) -> np.ndarray | None:
        """Where the image files lie; None where the inputs are no files."""
        return self.inputs.paths if isinstance(self.inputs, ImageFiles) else None

    def subset(self, rows: np.ndarray) -> Items:
        return Items(
            self.inputs[rows],
            self.ids[rows],
            None if self.labels is None else self.labels[rows],
            self.names,
            None if self.titles is None else tuple(self.titles[row] for row in rows.tolist()),
        )


def read_items(source: str | os.PathLike[str]) -> Items:
    """Items of what a user has.

    - a folder: every image in it. An id is the path below the folder, the folders on that path are
      the label, and the file's name is the title;
    - an image: one item;
    - a table (.csv, .tsv, or .parquet with a column of paths), as ``read_examples`` reads it: the
      column id, or else the path, is the id, and the column title, name or text the title;
    - vectors (.npy, .npz, .safetensors, .parquet), with ``ids``, ``labels`` and ``titles`` beside
      them where the file has them; without ids they are numbered.
    """
    where = Path(source)
    if where.is_dir():
        return _of_folder(where)
    if not where.is_file():
        _check.refuse(f"{where} does not exist.")
    if where.suffix.lower() in SUFFIXES:
        paths = np.array([str(where)])
        return Items(ImageFiles(paths), _words([where.name]), titles=(where.stem,))
    if where.suffix.lower() in TABLES:
        return _of_table(where)
    if where.suffix.lower() in ARRAYS:
        return _of_arrays(where)
    _check.refuse(
        f"{where} must be a folder of images, an image, a table ({', '.join(TABLES)}) or vectors "
        f"({', '.join(ARRAYS)})."
    )


def _words(values: list[str]) -> np.ndarray:
    words = np.empty(len(values), object)
    words[:] = values
    return words


def _of_folder(folder: Path) -> Items:
    files = by_folder(folder)
    if not files:
        _check.refuse(f"{folder} holds no image ({', '.join(SUFFIXES)}).")
    if find_metadata(folder) is not None:
        return _of_examples(read_examples(folder), folder)
    labels: np.ndarray | None = None
    names: tuple[str, ...] = ()
    if any(files.values()):
        inside = ["/".join(above) for above in files.values()]
        numbers, names = named(name for name in inside if name)
        labels = np.full(len(inside), -1, np.int64)
        labels[[bool(name) for name in inside]] = numbers
    return Items(
        ImageFiles(np.array(list(files))),
        _words([file_id(path, folder) for path in files]),
        labels,
        names,
        tuple(Path(path).stem for path in files),
    )


def _of_examples(examples: Examples, folder: Path) -> Items:
    assert isinstance(examples.inputs, ImageFiles)
    paths = examples.inputs.paths.tolist()
    return Items(
        examples.inputs,
        _words([file_id(path, folder) for path in paths]),
        examples.labels,
        examples.class_names,
        tuple(Path(path).stem for path in paths),
    )


def _of_table(source: Path) -> Items:
    items, columns = _of_examples(read_examples(source), source.parent), _text_columns(source)
    titles = next((columns[n] for n in ("title", "name", "text") if n in columns), None)
    return replace(
        items,
        ids=_words(columns["id"]) if "id" in columns else items.ids,
        titles=items.titles if titles is None else tuple(titles),
    )


def _text_columns(source: Path) -> dict[str, list[str]]:
    """The columns of a table by their names in small letters."""
    return {
        name.strip().lower(): list(values) for name, values in read_text_columns(source).items()
    }


def _of_arrays(source: Path) -> Items:
    columns = read_columns(source)
    name = next((name for name in (*VECTORS, "images") if name in columns), None)
    if name is None:
        tables = [n for n, a in columns.items() if a.ndim == 2 and a.dtype.kind == "f"]
        if len(tables) != 1:
            held = ", ".join(sorted(columns)) or "nothing"
            _check.refuse(f"{source} must hold 'embeddings', (n, dim) numbers; it holds {held}.")
        name = tables[0]
    inputs = columns[name]
    if name != "images" and inputs.ndim < 3:
        inputs = inputs[None] if inputs.ndim == 1 else inputs
        if inputs.dtype.kind in "iu":  # what embedding services sell
            inputs = inputs.astype(np.float32)
    rows = len(inputs)
    labels, names = _labels(columns, rows, source)
    titles = _column(columns, ("titles", "title", "texts", "text"), rows, source)
    ids = _column(columns, ("ids", "id", "paths", "path"), rows, source)
    if ids is None:
        ids = np.arange(rows)
    elif ids.dtype.kind == "U":
        ids = _words(ids.tolist())
    return Items(
        inputs, ids, labels, names, None if titles is None else tuple(map(str, titles.tolist()))
    )


def _column(
    columns: Mapping[str, np.ndarray], names: tuple[str, ...], rows: int, source: Path
) -> np.ndarray | None:
    name = next((n for n in names if n in columns and columns[n].ndim == 1), None)
    if name is None:
        return None
    _check.same_length(f"'{name}' in {source}", len(columns[name]), "the vectors", rows)
    return columns[name]


def _labels(
    columns: Mapping[str, np.ndarray], rows: int, source: Path
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    values = next((columns[n] for n in ("labels", "label") if n in columns), None)
    if values is None:
        return None, ()
    _check.same_length(f"labels in {source}", len(values), "the vectors", rows)
    if values.dtype.kind == "U" and values.ndim == 1:
        return named(values.tolist())
    return _check.labels(f"labels in {source}", values, rows), ()
