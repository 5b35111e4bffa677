"""Open an index by its address."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any
from urllib.parse import parse_qsl

from rankbits import _check
from rankbits.indexes.durable import FileIndex
from rankbits.indexes.index import Index

SCHEMES = ("file", "graph", "duckdb", "postgresql", "postgres", "milvus")


def open_index(address: str | os.PathLike[str], bits: int | None = None, **options: Any) -> Index:
    """Open the index at ``address``; with ``bits``, make it if it does not exist.

    No encoder is attached: ``rb.open_index`` does that, and describes addresses.
    """
    if not isinstance(address, (str, os.PathLike)) or not str(address):
        _check.refuse(f"address must be a path or the address of a database; got {address!r}.")
    text = str(address)
    # a single letter is a drive of Windows; a path object is always a path
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text) if isinstance(address, str) else None
    name = scheme[1].lower() if scheme else ""
    if scheme is None or (name not in SCHEMES and os.path.exists(text)):
        return _construct(FileIndex, text, bits, options)
    if name not in SCHEMES:
        listed = ", ".join(f"{s}:" for s in SCHEMES)
        _check.refuse(
            f"address must be a path or begin with one of {listed}; got {text!r}"
            f"{_check.suggest(name, SCHEMES)}."
        )
    rest = text[scheme.end() :]
    if not rest:
        _check.refuse(f"The address {text!r} names no place.")
    if name == "file":
        return _construct(FileIndex, rest, bits, options)
    if name == "graph":
        from rankbits.indexes.engines.graph import GraphIndex

        return _construct(GraphIndex, rest, bits, options)
    if name.startswith("postgres"):
        from rankbits.indexes.engines.postgres import PostgresIndex

        return _construct(PostgresIndex, text, bits, options)
    place, in_address = _split_query(text, rest)
    twice = in_address.keys() & options.keys()
    if twice:
        _check.refuse(f"{min(twice)} is given twice: in the address and as an option.")
    if name == "duckdb":
        from rankbits.indexes.engines.duckdb import DuckDBIndex

        return _construct(DuckDBIndex, place, bits, in_address | options)
    from rankbits.indexes.engines.milvus import MilvusIndex

    return _construct(MilvusIndex, place, bits, in_address | options)


def _split_query(text: str, rest: str) -> tuple[str, dict[str, Any]]:
    """Split off the options behind a question mark; the only one is ``table=``."""
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name != "table":
            _check.refuse(f"The address {text!r} may ask for table= only; got '{name}'.")
    return place, options


def _construct(kind: type, place: str, bits: int | None, options: dict[str, Any]) -> Index:
    """Make an index of class ``kind``; refuse an option that it does not have."""
    allowed = list(inspect.signature(kind).parameters)[2:]
    for name in options:
        if name not in allowed:
            _check.refuse(
                f"{kind.__name__} has no option '{name}'{_check.suggest(name, allowed)}; "
                f"it has {', '.join(allowed)}."
            )
    return kind(place, bits, **options)
