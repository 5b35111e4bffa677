"""What a server answers, row by row, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rankbits.indexes.checks import UnknownId
from rankbits.types import Codes, Results


def codes_by_id(
    ids: np.ndarray, packed: Mapping[Any, np.ndarray], bits: int, fingerprint: str | None
) -> Codes:
    """Codes of ``ids`` in their order out of packed rows by id; refuses an id that is missing."""
    missing = [name for name in ids.tolist() if name not in packed]
    if missing:
        raise UnknownId(f"This index does not hold id {missing[0]!r}.")
    rows = np.empty((len(ids), (bits + 7) // 8), np.uint8)
    for row, name in enumerate(ids.tolist()):
        rows[row] = packed[name]
    return Codes(rows, bits, fingerprint)


def square_results(found: list[list]) -> Results:
    """Rows of (id, distance), equally many for each query, as two arrays."""
    most = len(found[0]) if found else 0
    strings = bool(most) and isinstance(found[0][0][0], str)
    ids = np.empty((len(found), most), object if strings else np.int64)
    distances = np.empty((len(found), most), np.int32)
    for i, row in enumerate(found):
        ids[i] = [name for name, _ in row]
        distances[i] = [near for _, near in row]
    return Results(ids, distances)
