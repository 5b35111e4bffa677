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


def read_array(path: str | os.PathLike[str], name: str = "embeddings") -> np.ndarray:
    """The array called ``name`` in a file, or its only array of two dimensions.

    ``.npy`` is memory-mapped: its pages are read when they are wanted, not before.
    """
    found = read_columns(path, name)
    if name in found:
        return found[name]
    tables = [a for a in found.values() if a.ndim == 2 and a.dtype.kind == "f"]
    # uint8 with two dimensions may as well be packed codes: these need the name
    tables = tables or [a for a in found.values() if a.ndim == 2 and a.dtype == np.int8]
    if len(tables) != 1:
        listed = ", ".join(sorted(found)) or "nothing"
        _check.refuse(f"{path} must hold an array called '{name}'; it holds {listed}.")
    return tables[0]


def read_columns(path: str | os.PathLike[str], only: str = "embeddings") -> dict[str, np.ndarray]:
    """Every array of a file by name; a ``.npy`` has one, called ``only``."""
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
        _check.refuse(f"{source} is truncated, damaged or not a {source.suffix} file.")


def _npy(source: Path, only: str) -> dict[str, np.ndarray]:
    return {only: np.load(source, mmap_mode="r", allow_pickle=False)}


def _npz(source: Path, only: str) -> dict[str, np.ndarray]:
    with open(source, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _safetensors(source: Path, only: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(source)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {name: _check.array(name, value) for name, value in tensors.items()}


def _parquet(source: Path, only: str) -> dict[str, np.ndarray]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        _check.refuse("Parquet files need the package pyarrow: pip install pyarrow.")
    try:
        table = parquet.read_table(source)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        whole = column.combine_chunks()
        if pyarrow.types.is_fixed_size_list(whole.type):
            flat = whole.flatten().to_numpy(zero_copy_only=False)
            found[name] = flat.reshape(len(whole), whole.type.list_size)
        elif pyarrow.types.is_list(whole.type) or pyarrow.types.is_large_list(whole.type):
            lengths = set(np.diff(whole.offsets.to_numpy()).tolist())
            if len(lengths) != 1:
                _check.refuse(f"Column '{name}' of {source} must have rows of one length.")
            flat = whole.flatten().to_numpy(zero_copy_only=False)
            found[name] = flat.reshape(len(whole), lengths.pop())
        elif pyarrow.types.is_integer(whole.type) or pyarrow.types.is_floating(whole.type):
            found[name] = whole.to_numpy(zero_copy_only=False)
    return found


_READERS = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".parquet": _parquet}
