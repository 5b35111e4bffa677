"""Tables whose columns are read as text: csv, tsv and parquet, with one set of known names."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from rankbits import _check
from rankbits.data.arrays import import_parquet

COLUMNS = {
    "path": ("path", "file", "image", "file_name", "filename"),
    "label": ("label", "labels", "class"),
    "category": ("category",),
}
"""The names, in small letters, under which a table may have a column."""


def find_column(columns: Iterable[str], wanted: str) -> str:
    """The name under which a table has the column ``wanted``, or ''.

    >>> find_column(["Note", "Class "], "label")
    'Class '
    """
    return next((name for name in columns if name.strip().lower() in COLUMNS[wanted]), "")


def spell_column(wanted: str) -> str:
    """The names that a column may have, as a refusal lists them."""
    return " or ".join(f"'{name}'" for name in COLUMNS[wanted])


def read_text_columns(source: Path) -> dict[str, Sequence[str]]:
    """Every column of a ``.csv`` or ``.tsv`` by the name in its first line."""
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter="\t" if source.suffix == ".tsv" else ",")
            header = next(reader, [])
            rows = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    _check.refuse(
                        f"{source} line {reader.line_num} must have {len(header)} fields; "
                        f"got {len(row)}."
                    )
                rows.append(row)
    except (UnicodeDecodeError, csv.Error):
        _check.refuse(f"{source} is not a table in UTF-8 text.")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def list_parquet_columns(source: Path) -> list[str]:
    """The names of the columns of a ``.parquet`` that are neither vectors nor structs.

    Refuses a file that holds the bytes of images, as those of Hugging Face's datasets do.
    """
    pyarrow, parquet = import_parquet()
    try:
        schema = parquet.read_schema(source)
    except (pyarrow.ArrowException, OSError):
        _check.refuse(f"{source} is truncated, damaged or not a .parquet file.")
    for field in schema:
        if pyarrow.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0:
            _check.refuse(
                f"{source} holds image files inside its column '{field.name}', which are not read: "
                "write each to a file, label/number.png, and give the folder."
            )
    return [field.name for field in schema if not pyarrow.types.is_nested(field.type)]


def read_parquet_columns(source: Path) -> dict[str, Sequence[str]]:
    """The columns that ``list_parquet_columns`` names, as text; '' where a value is missing."""
    names = list_parquet_columns(source)
    pyarrow, parquet = import_parquet()
    try:
        table = parquet.read_table(source, columns=names)
    except (pyarrow.ArrowException, OSError):
        _check.refuse(f"{source} is truncated, damaged or not a .parquet file.")
    return {
        name: ["" if value is None else str(value) for value in table.column(name).to_pylist()]
        for name in names
    }
