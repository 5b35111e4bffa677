"""A table of metadata in a folder of images, as Hugging Face's imagefolder has it.

Its column file_name says which image a row is about, relative to the table; another is the label.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rankbits import _check
from rankbits.data.tables import (
    find_column,
    list_parquet_columns,
    read_parquet_columns,
    read_text_columns,
)

FILES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
Columns = dict[str, Sequence[str]]


def find_metadata(folder: Path) -> tuple[Path, Columns] | None:
    """The metadata of a folder and its columns as text; None where no table names its images."""
    for name in FILES:
        source = folder / name
        if source.is_file():
            columns = _read(source)
            if find_column(columns, "path"):
                return source, columns
    return None


def find_label_column(source: Path, columns: Columns) -> str:
    """The column of labels: by its name, or the only other whose values repeat; '' where none does.

    Values repeat where there are at least two of them, and half as many as rows at most.

    >>> table = {"file_name": ["1", "2", "3", "4"], "text": list("abcd"), "bird": list("xyxy")}
    >>> find_label_column(Path("metadata.csv"), table)
    'bird'
    """
    label = find_column(columns, "label")
    if label:
        return label
    passed_over = {find_column(columns, "path"), find_column(columns, "category")}
    repeating = [
        name
        for name, values in columns.items()
        if name not in passed_over and all(values) and 2 <= len(set(values)) <= len(values) / 2
    ]
    if len(repeating) > 1:
        listed = ", ".join(repeating)
        _check.refuse(f"{source} must call one column 'label'; it could be any of {listed}.")
    return repeating[0] if repeating else ""


def _read(source: Path) -> Columns:
    if source.suffix == ".csv":
        return read_text_columns(source)
    if source.suffix == ".parquet":
        named = find_column(list_parquet_columns(source), "path")
        return read_parquet_columns(source) if named else {}
    return _read_json_lines(source)


def _read_json_lines(source: Path) -> Columns:
    """A column for each key of any line; '' where a line lacks it."""
    try:
        lines = source.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        _check.refuse(f"{source} is not text in UTF-8.")
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
    return {
        name: ["" if row.get(name) is None else str(row[name]) for row in rows] for name in names
    }
