"""Embeddings and labels in files: npy (memory-mapped), npz, safetensors, parquet."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check

FORMS = (".npy", ".npz", ".safetensors", ".parquet")
MOST_CHARACTERS = 1 << 26  # numpy gives every string of an array the width of the longest


def read_array(path: str | os.PathLike[str], name: str = "embeddings") -> np.ndarray:
    """The array called ``name`` in a file, or its only array of two dimensions.

    A ``.npy`` is memory-mapped: rows are read from disk when they are used.
    """
    columns = read_columns(path, name)
    if name in columns:
        return columns[name]
    tables = [a for a in columns.values() if a.ndim == 2 and a.dtype.kind == "f"]
    # a uint8 matrix may be packed codes, so embeddings of that type need the name
    tables = tables or [a for a in columns.values() if a.ndim == 2 and a.dtype == np.int8]
    if len(tables) != 1:
        names = ", ".join(sorted(columns)) or "nothing"
        _check.refuse(f"{path} must hold an array called '{name}'; it holds {names}.")
    return tables[0]


def read_columns(path: str | os.PathLike[str], name: str = "embeddings") -> dict[str, np.ndarray]:
    """Every array of a file by name; the array of a ``.npy`` is called ``name``.

    A ``.parquet`` gives its columns of numbers, of strings ('' where one is missing) and of
    vectors; other columns, such as dates and structs, are left out.
    """
    source = Path(path)
    if not source.is_file():
        _check.refuse(f"{source} does not exist or is not a file.")
    if source.suffix not in FORMS:
        _check.refuse(f"{source} must end in one of {', '.join(FORMS)}; got '{source.suffix}'.")
    try:
        if source.suffix == ".npy":
            return {name: np.load(source, mmap_mode="r", allow_pickle=False)}
        return _READERS[source.suffix](source)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, _check.Refusal):
            raise
        if "Object arrays" in str(error) or "Python objects" in str(error):  # numpy's words
            _check.refuse(
                f"{source} holds Python objects, which are not read; save strings with dtype=str."
            )
        _check.refuse(f"{source} is truncated, damaged or not a {source.suffix} file.")


def _read_npz(source: Path) -> dict[str, np.ndarray]:
    with open(source, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_safetensors(source: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(source)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {name: _check.array(name, value) for name, value in tensors.items()}


def import_parquet() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``; refuses if they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        _check.refuse("Parquet files need the package pyarrow: pip install 'rankbits[parquet]'.")
    return pyarrow, parquet


def _read_parquet(source: Path) -> dict[str, np.ndarray]:
    pyarrow, parquet = import_parquet()
    try:
        table = parquet.read_table(source)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = _convert_column(f"Column '{name}' of {source}", column.combine_chunks())
        if values is not None:
            columns[name] = values
    return columns


def _convert_column(name: str, column: Any) -> np.ndarray | None:
    """A column as numbers (n,), strings (n,) or vectors (n, dim); None if it is of another type."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
            return None
        if column.null_count:
            _check.refuse(f"{name} must have a vector in each row; {column.null_count} have none.")
        fixed = types.is_fixed_size_list(kind)
        lengths = {kind.list_size} if fixed else set(np.diff(column.offsets.to_numpy()).tolist())
        if len(lengths) != 1:
            _check.refuse(f"{name} must have rows of one length.")
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), lengths.pop())
    complete_booleans = types.is_boolean(kind) and not column.null_count
    if types.is_integer(kind) or types.is_floating(kind) or complete_booleans:
        return column.to_numpy(zero_copy_only=False)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _make_strings(column.to_pylist())
    return None


def _make_strings(values: list[str | None]) -> np.ndarray:
    """Strings (n,), '' where one is missing; not of numpy's fixed width if that takes too much."""
    texts = ["" if value is None else value for value in values]
    widest = max(map(len, texts), default=0)
    if widest * len(texts) > MOST_CHARACTERS:
        return np.array(texts, dtype=np.dtypes.StringDType())
    return np.array(texts, dtype=str)


_READERS = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}
