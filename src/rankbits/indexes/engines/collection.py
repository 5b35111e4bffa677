"""A collection of Milvus: how it is made, asked and filled, and how its ids are spelled."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from rankbits.indexes import checks

MOST = 16_384  # results of one query, by Milvus' own limit
COMPARED = 10**9  # pairs of a query and a code in one request: some seconds on two cores


def create_collection(
    client: Any, table: str, bits: int, note: str, strings: bool, seconds: float
) -> None:
    """Make a collection of codes under ids of one kind, searched exactly; ``note`` describes it."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=note)
    if strings:
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=3 * checks.LONGEST)
    else:
        schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=-(-bits // 8) * 8)
    how = client.prepare_index_params()
    how.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(
        table, schema=schema, index_params=how, consistency_level="Strong", timeout=seconds
    )


def find_largest(count: Callable[[str], int]) -> int:
    """The largest id, by halving: Milvus counts by a condition and has no max()."""
    low, high = -checks.LARGEST, checks.LARGEST
    while low < high:
        middle = low + (high - low) // 2
        if count(f"id > {middle}"):
            low = middle + 1
        else:
            high = middle
    return low


def draw_ids(rows: int) -> np.ndarray:
    """Ids that follow each other from a random number of 63 bits on."""
    return checks.numbered(secrets.randbelow(checks.LARGEST - rows), rows)


def spell_ids(ids: np.ndarray) -> list:
    """Ids as Milvus keeps them: strings without a character that means something in SQL."""
    return [quote(x, safe="") for x in ids.tolist()] if ids.dtype == object else ids.tolist()


def read_ids(hits: Any, strings: bool) -> list:
    return [unquote(hit["id"]) if strings else hit["id"] for hit in hits]


def put_codes(client: Any, table: str, keys: list, packed: np.ndarray, seconds: float) -> None:
    """Put packed codes under ``keys``, as Milvus spells them, in place of what was there."""
    pairs = zip(keys, packed, strict=True)
    client.upsert(table, [{"id": k, "code": c.tobytes()} for k, c in pairs], timeout=seconds)


def fetch_codes(client: Any, table: str, keys: list, seconds: float) -> dict[Any, np.ndarray]:
    """The packed codes of ``keys``, as they are spelled in Milvus, by id."""
    rows = client.get(table, keys, output_fields=["code"], timeout=seconds)
    names = read_ids(rows, bool(keys) and isinstance(keys[0], str))
    codes = (np.frombuffer(b"".join(row["code"]), np.uint8) for row in rows)
    return dict(zip(names, codes, strict=True))


def find(
    client: Any,
    table: str,
    packed: np.ndarray,
    limit: int,
    held: int,
    condition: Any,
    how: dict,
    seconds: float,
) -> Iterator[list]:
    """What each query finds among the ``held`` rows that meet the condition, ``limit`` at most, by
    requests that end in time."""
    step = max(1, min(MOST * 8 // limit, COMPARED // held))
    for s in range(0, len(packed), step):
        asked = [code.tobytes() for code in packed[s : s + step]]
        yield from client.search(
            table, asked, filter=condition, limit=limit, search_params=how, timeout=seconds
        )
