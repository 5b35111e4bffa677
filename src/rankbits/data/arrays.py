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

    ``.npy`` is memory-mapped: its pages are read when they are wanted, not before.
    """
    columns = read_columns(path, name)
    if name in columns:
        return columns[name]
    tables = [a for a in columns.values() if a.ndim == 2 and a.dtype.kind == "f"]
    # uint8 with two dimensions may as well be packed codes: these need the name
    tables = tables or [a for a in columns.values() if a.ndim == 2 and a.dtype == np.int8]
    if len(tables) != 1:
        listed = ", ".join(sorted(columns)) or "nothing"
        _check.refuse(f"{path} must hold an array called '{name}'; it holds {listed}.")
    return tables[0]


def read_columns(path: str | os.PathLike[str], only: str = "embeddings") -> dict[str, np.ndarray]:
    """Every array of a file by name; a ``.npy`` has one, called ``only``.

    A ``.parquet`` gives its columns of numbers, of strings ('' where one is missing) and of
    vectors; other columns, such as dates and structs, are left out.
    """
    source = Path(path)
    if not source.is_file():
        _check.refuse(f"{source} does not exist or is not a file.")
    if source.suffix not in FORMS:
        _check.refuse(f"{source} must end in one of {', '.join(FORMS)}; got '{source.suffix}'.")
    try:
        return _READERS[source.suffix](source, only)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, _check.Refusal):
            raise
        if "Object arrays" in str(error) or "Python objects" in str(error):  # numpy's words
            _check.refuse(
                f"{source} holds Python objects, which are not read; save strings with dtype=str."
            )
        _check.refuse(f"{source} is truncated, damaged or not a {source.suffix} file.")


def _read_npy(source: Path, only: str) -> dict[str, np.ndarray]:
    return {only: np.load(source, mmap_mode="r", allow_pickle=False)}


def _read_npz(source: Path, only: str) -> dict[str, np.ndarray]:
    with open(source, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_safetensors(source: Path, only: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(source)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {name: _check.array(name, value) for name, value in tensors.items()}


def import_parquet() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``; refuses where they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        _check.refuse("Parquet files need the package pyarrow: pip install 'rankbits[parquet]'.")
    return pyarrow, parquet


def _read_parquet(source: Path, only: str) -> dict[str, np.ndarray]:
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
    """Numbers (n,), strings (n,) or vectors of numbers (n, dim); None for what is none of these."""
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
    if types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    if types.is_boolean(kind) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _make_strings(column.to_pylist())
    return None


def _make_strings(values: list[str | None]) -> np.ndarray:
    """Strings of one width, '' where there is none; of any width where that takes less memory."""
    texts = ["" if value is None else value for value in values]
    widest = max(map(len, texts), default=0)
    if widest * len(texts) > MOST_CHARACTERS:
        return np.array(texts, dtype=np.dtypes.StringDType())
    return np.array(texts, dtype=str)


_READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}
