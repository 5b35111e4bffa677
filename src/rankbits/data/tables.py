"""Read tables (csv, tsv, JSON lines, parquet) as columns of text, and find columns by their names;
also the metadata of a folder of images, as in Hugging Face's imagefolder."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits.data.arrays import import_parquet

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
COLUMNS = {
    "path": ("path", "file", "image", "file_name", "filename"),
    "label": ("labels", "label", "class"),
    "category": ("category",),
    "text": ("text", "sentence", "content", "body", "passage"),
    "id": ("id", "_id"),
    "title": ("title", "name"),
}
"""The names, in small letters, that a column may have; an earlier one is preferred."""
MOST_FIELD = 1 << 30
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
Columns = dict[str, Sequence[str]]


def find_column(columns: Iterable[str], wanted: str) -> str:
    """The name of the column of a table that is ``wanted``, a key of ``COLUMNS``; '' if none is.

    >>> find_column(["Note", "Class "], "label")
    'Class '
    """
    by_lower = {name.strip().lower(): name for name in columns}
    return next((by_lower[name] for name in COLUMNS[wanted] if name in by_lower), "")


def is_table(source: Path) -> bool:
    """Whether a file is a table of paths or texts; a ``.parquet`` may hold vectors instead."""
    if source.suffix != ".parquet":
        return source.suffix in TABLES
    names = list_parquet_columns(source)
    if find_column(names, "path"):
        return True
    return bool(find_column(names, "text")) and len(names) == len(_read_schema(source))


def read_table(source: Path) -> Columns:
    """Every column of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` by its name; '' where a
    value is missing. The first line of a ``.csv`` or ``.tsv`` names the columns."""
    if source.suffix == ".parquet":
        return _read_parquet(source)
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            if source.suffix == ".jsonl":
                return _read_json_lines(source, file)
            return _read_csv(source, file)
    except UnicodeDecodeError:
        _check.refuse(f"{source} line {_find_bad_line(source)} is not text in UTF-8.")
    except csv.Error:
        _check.refuse(f"{source} is not a table in UTF-8 text.")


def _find_bad_line(source: Path) -> int:
    with open(source, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number


def read_fields(
    path: str | os.PathLike[str], form: str, skip: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """The number and the words of each line after the first ``skip``; refuses a line that has not
    as many words as ``form``."""
    if not Path(path).is_file():
        _check.refuse(f"{path} does not exist or is not a file.")
    wanted, empty = len(form.split()), True
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if number <= skip or not words:
                    continue
                if len(words) != wanted:
                    _check.refuse(f"{path} line {number} must be '{form}'; got {line.strip()!r}.")
                empty = False
                yield number, words
    except UnicodeDecodeError:
        _check.refuse(f"{path} is not a text file of lines '{form}'.")
    if empty:
        _check.refuse(f"{path} is empty; it must hold lines '{form}'.")


def _read_csv(source: Path, lines: Iterable[str]) -> Columns:
    csv.field_size_limit(MOST_FIELD)  # for the whole process; the default refuses a long text
    reader = csv.reader(lines, delimiter="\t" if source.suffix == ".tsv" else ",")
    header = next(reader, [])
    rows = []
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            _check.refuse(
                f"{source} line {reader.line_num} must have {len(header)} fields; got {len(row)}."
            )
        rows.append(row)
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _read_json_lines(source: Path, lines: Iterable[str]) -> Columns:
    """A column for each key that any line has."""
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            _check.refuse(f"{source} line {number} is not a JSON object.")
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _make_strings(row.get(name) for row in rows) for name in names}


def _make_strings(values: Iterable[object]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def list_parquet_columns(source: Path) -> list[str]:
    """The names of the columns of a ``.parquet`` that are neither vectors nor structs.

    Refuses a file that holds the bytes of images, as some of Hugging Face's datasets do.
    """
    pyarrow, schema = import_parquet()[0], _read_schema(source)
    for field in schema:
        if pyarrow.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0:
            _check.refuse(
                f"{source} holds image files inside its column '{field.name}', which are not read: "
                "write each to a file, label/number.png, and give the folder."
            )
    return [field.name for field in schema if not pyarrow.types.is_nested(field.type)]


def _read_schema(source: Path) -> Any:
    pyarrow, parquet = import_parquet()
    try:
        return parquet.read_schema(source)
    except (pyarrow.ArrowException, OSError):
        _check.refuse(f"{source} is truncated, damaged or not a .parquet file.")


def _read_parquet(source: Path) -> Columns:
    names = list_parquet_columns(source)
    pyarrow, parquet = import_parquet()
    try:
        table = parquet.read_table(source, columns=names)
    except (pyarrow.ArrowException, OSError):
        _check.refuse(f"{source} is truncated, damaged or not a .parquet file.")
    return {name: _make_strings(table.column(name).to_pylist()) for name in names}


def find_metadata(folder: Path) -> tuple[Path, Columns] | None:
    """The table of metadata in a folder of images and its columns; None if no table has a column of
    paths. A path is relative to the table."""
    for name in METADATA:
        source = folder / name
        if not source.is_file():
            continue
        if source.suffix == ".parquet" and not find_column(list_parquet_columns(source), "path"):
            continue  # without reading its rows
        columns = read_table(source)
        if find_column(columns, "path"):
            return source, columns
    return None


def find_label_column(source: Path, columns: Columns) -> str:
    """The column of labels: by its name, or the only other whose values repeat; '' if none does.

    Values repeat if there are at least two different ones, and at most half as many as rows.

    >>> table = {"file_name": ["1", "2", "3", "4"], "text": list("abcd"), "bird": list("xyxy")}
    >>> find_label_column(Path("metadata.csv"), table)
    'bird'
    """
    label = find_column(columns, "label")
    if label:
        return label
    skipped = {find_column(columns, "path"), find_column(columns, "category")}
    repeating = [
        name
        for name, values in columns.items()
        if name not in skipped and all(values) and 2 <= len(set(values)) <= len(values) / 2
    ]
    if len(repeating) > 1:
        names = ", ".join(repeating)
        _check.refuse(f"{source} must call one column 'label'; it could be any of {names}.")
    return repeating[0] if repeating else ""
