"""Turn the rows that a server returns into arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rankbits.indexes.checks import UnknownId
from rankbits.types import Codes, Results


def order_codes(
    ids: np.ndarray, packed: Mapping[Any, np.ndarray], bits: int, fingerprint: str | None
) -> Codes:
    """The codes of ``ids``, in the same order, from packed codes by id; refuse a missing id."""
    missing = [name for name in ids.tolist() if name not in packed]
    if missing:
        raise UnknownId(f"This index does not hold id {missing[0]!r}.")
    rows = np.empty((len(ids), (bits + 7) // 8), np.uint8)
    for row, name in enumerate(ids.tolist()):
        rows[row] = packed[name]
    return Codes(rows, bits, fingerprint)


def stack_results(rows: list[list]) -> Results:
    """Results of one list of (id, distance) for each query; all lists are equally long."""
    most = len(rows[0]) if rows else 0
    strings = bool(most) and isinstance(rows[0][0][0], str)
    ids = np.empty((len(rows), most), object if strings else np.int64)
    distances = np.empty((len(rows), most), np.int32)
    for i, row in enumerate(rows):
        ids[i] = [name for name, _ in row]
        distances[i] = [distance for _, distance in row]
    return Results(ids, distances)
