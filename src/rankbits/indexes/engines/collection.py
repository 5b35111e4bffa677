"""Requests to a Milvus collection: make it, fill it, search it, and spell its ids."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from rankbits.indexes import checks

MOST = 16_384  # results of one query: a limit of Milvus
COMPARED = 10**9  # pairs of a query and a code in one request: a few seconds on two cores


def create_collection(
    client: Any, table: str, bits: int, note: str, strings: bool, seconds: float
) -> None:
    """Make a collection of codes that is searched exactly; ``note`` is its description."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=note)
    if strings:
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=3 * checks.LONGEST)
    else:
        schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=-(-bits // 8) * 8)
    index_params = client.prepare_index_params()
    index_params.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(
        table,
        schema=schema,
        index_params=index_params,
        consistency_level="Strong",
        timeout=seconds,
    )


def find_largest(count: Callable[[str], int]) -> int:
    """The largest id, by bisection: Milvus can count by a condition but has no max()."""
    low, high = -checks.LARGEST, checks.LARGEST
    while low < high:
        middle = low + (high - low) // 2
        if count(f"id > {middle}"):
            low = middle + 1
        else:
            high = middle
    return low


def draw_ids(rows: int) -> np.ndarray:
    """Consecutive ids that start at a random number of 63 bits."""
    return checks.number_rows(secrets.randbelow(checks.LARGEST - rows), rows)


def spell_ids(ids: np.ndarray) -> list:
    """Ids as Milvus stores them: strings are percent-encoded, so that none needs quoting."""
    return [quote(x, safe="") for x in ids.tolist()] if ids.dtype == object else ids.tolist()


def read_ids(hits: Any, strings: bool) -> list:
    """The ids of hits; strings are decoded again."""
    return [unquote(hit["id"]) if strings else hit["id"] for hit in hits]


def put_codes(client: Any, table: str, keys: list, packed: np.ndarray, seconds: float) -> None:
    """Store packed codes under ``keys`` (ids as ``spell_ids`` gives them), replacing old ones."""
    pairs = zip(keys, packed, strict=True)
    client.upsert(table, [{"id": k, "code": c.tobytes()} for k, c in pairs], timeout=seconds)


def fetch_codes(client: Any, table: str, keys: list, seconds: float) -> dict[Any, np.ndarray]:
    """The packed codes of ``keys`` (ids as ``spell_ids`` gives them), by id."""
    rows = client.get(table, keys, output_fields=["code"], timeout=seconds)
    names = read_ids(rows, bool(keys) and isinstance(keys[0], str))
    codes = (np.frombuffer(b"".join(row["code"]), np.uint8) for row in rows)
    return dict(zip(names, codes, strict=True))


def find(
    client: Any,
    table: str,
    packed: np.ndarray,
    limit: int,
    rows: int,
    condition: Any,
    how: dict,
    seconds: float,
) -> Iterator[list]:
    """The hits of each query, at most ``limit``, among the ``rows`` rows that meet the condition;
    queries are sent in requests small enough to end in time."""
    step = max(1, min(MOST * 8 // limit, COMPARED // rows))
    for s in range(0, len(packed), step):
        queries = [code.tobytes() for code in packed[s : s + step]]
        yield from client.search(
            table, queries, filter=condition, limit=limit, search_params=how, timeout=seconds
        )
