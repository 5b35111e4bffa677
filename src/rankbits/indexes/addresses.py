"""Where an index lives, by its address."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any
from urllib.parse import parse_qsl

from rankbits import _check
from rankbits.indexes.index import Index

SCHEMES = ("file", "graph", "duckdb", "postgresql", "postgres", "milvus")


def open_index(address: str | os.PathLike[str], bits: int | None = None, **options: Any) -> Index:
    """Open the index at ``address``, or make it there where ``bits`` are given; no encoder is
    attached. ``rb.open_index`` (``encoder/indexing.py``) does that, and says what addresses are."""
    if not isinstance(address, (str, os.PathLike)) or not str(address):
        _check.refuse(f"address must be a path or the address of a database; got {address!r}.")
    text = str(address)
    # one letter is a drive, not a scheme; and a path object is a path, whatever it is called
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text) if isinstance(address, str) else None
    name = scheme[1].lower() if scheme else ""
    if scheme is None or (name not in SCHEMES and os.path.exists(text)):
        return _construct(_import_file_index(), text, bits, options)
    if name not in SCHEMES:
        listed = ", ".join(f"{s}:" for s in SCHEMES)
        _check.refuse(
            f"address must be a path or begin with one of {listed}; got {text!r}"
            f"{_check.nearest(name, SCHEMES)}."
        )
    rest = text[scheme.end() :]
    if not rest:
        _check.refuse(f"The address {text!r} names no place.")
    if name == "file":
        return _construct(_import_file_index(), rest, bits, options)
    if name == "graph":
        from rankbits.indexes.engines.graph import GraphIndex

        return _construct(GraphIndex, rest, bits, options)
    if name.startswith("postgres"):
        from rankbits.indexes.engines.postgres import PostgresIndex

        return _construct(PostgresIndex, text, bits, options)
    place, asked = _split_query(text, rest)
    twice = asked.keys() & options.keys()
    if twice:
        _check.refuse(f"{min(twice)} is given twice: in the address and as an option.")
    if name == "duckdb":
        from rankbits.indexes.engines.duckdb import DuckDBIndex

        return _construct(DuckDBIndex, place, bits, asked | options)
    from rankbits.indexes.engines.milvus import MilvusIndex

    return _construct(MilvusIndex, place, bits, asked | options)


def _import_file_index() -> type[Index]:
    from rankbits.indexes.durable import FileIndex

    return FileIndex


def _split_query(text: str, rest: str) -> tuple[str, dict[str, Any]]:
    """The place, and the options that follow a question mark: ``table=`` alone."""
    place, _, query = rest.partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    for name in asked:
        if name != "table":
            _check.refuse(f"The address {text!r} may ask for table= only; got '{name}'.")
    return place, asked


def _construct(kind: type, place: str, bits: int | None, options: dict[str, Any]) -> Index:
    """An index of a class, its options checked by name."""
    known = list(inspect.signature(kind).parameters)[2:]
    for name in options:
        if name not in known:
            _check.refuse(
                f"{kind.__name__} has no option '{name}'{_check.nearest(name, known)}; "
                f"it has {', '.join(known)}."
            )
    return kind(place, bits, **options)
