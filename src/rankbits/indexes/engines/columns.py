"""Checks of the columns that users add to a DuckDB table."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.engines.opening import check_name

KINDS = {"b": "BOOLEAN", "i": "BIGINT", "u": "UBIGINT", "f": "DOUBLE", "U": "VARCHAR"}


def choose_type(values: np.ndarray) -> str:
    """The DuckDB type for these values."""
    return KINDS.get(values.dtype.kind, "VARCHAR")


def check_column(name: str, values: Any, rows: int) -> np.ndarray:
    """The values as an array: one for each row, all numbers, all bools or all strings."""
    check_name("The name of a column", name)
    if name.lower() in ("id", "place") or (name[0] in "wW" and name[1:].isdigit()):
        _check.refuse(f"The index uses the column '{name}' itself; choose another name.")
    column = np.asarray(values)
    if column.dtype.kind == "O" and not all(isinstance(x, str) or x is None for x in column.flat):
        _check.refuse(f"The column '{name}' must hold numbers, bools or strings of one kind.")
    if column.ndim != 1 or column.dtype.kind not in "biufUO":
        _check.refuse(
            f"The column '{name}' must be numbers, bools or strings (n,); "
            f"got {column.dtype} {column.shape}."
        )
    _check.same_length(f"The column '{name}'", len(column), "codes", rows)
    return column.astype(object) if column.dtype.kind == "U" else column
