"""Search on many workers: each searches a shard for some queries, and the nearest are merged."""

from __future__ import annotations

import os
import uuid
from functools import lru_cache
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.addresses import open_index
from rankbits.indexes.checks import check_k, check_radius
from rankbits.indexes.index import Index
from rankbits.indexes.shortlist import choose_width, order_shortlist
from rankbits.kernels import check_precision, hamming_topk, hamming_within, question_topk
from rankbits.scale.cluster import joined, mapped, spans
from rankbits.types import Codes, Questions, Results
from rankbits.types.codes import check_same_encoder

Queries = Codes | Questions
ROWS = 1 << 20
QUERIES = 1 << 10


@lru_cache(maxsize=4)
def _opened(place: str, job: str) -> Index:
    """An index in a worker, kept open for the parts of one job."""
    return open_index(place, mode="r")


def _in_index(
    queries: Queries,
    k: int | None,
    radius: int | None,
    how: dict[str, Any],
    place: tuple[str | None, str],
    job: str,
) -> tuple[np.ndarray, ...]:
    index = _opened(place[1], job)
    if k is not None:
        return _plain(index.search(queries, k, **how))
    return _plain(index.within(queries, radius or 0))


def _in_codes(
    queries: Queries,
    k: int | None,
    radius: int | None,
    how: dict[str, Any],
    packed: np.ndarray,
    first: int,
) -> tuple[np.ndarray, ...]:
    shard = Codes(packed, queries.bits)
    if isinstance(queries, Questions):
        assert k is not None
        found = question_topk(queries, shard, k, **how)
    elif k is not None:
        found = hamming_topk(queries, shard, k)
    else:
        found = hamming_within(queries, shard, radius or 0)
    return _plain(Results(found.ids + first, found.distances, found.offsets))


def _plain(found: Results) -> tuple[np.ndarray, ...]:
    pair = (found.ids, found.distances)
    return pair if found.offsets is None else (*pair, found.offsets)


def search(
    queries: Queries,
    database: Any,
    k: int | None = None,
    *,
    radius: int | None = None,
    precision: str = "int4",
    shortlist: int | None = None,
    address: str = "local",
    rows: int = ROWS,
) -> Results:
    """The k nearest, or everything within ``radius``, by the workers of a Ray cluster.

    ``database`` is ``Codes``, which go out in shards of ``rows`` and are found by row; or the
    address of an index (``rb.open_index``) that every worker can open; or several such addresses,
    the shards of one database: ties come by shard, then in the order of each index. A shard that
    lies on the disk of one node stays there: ``node:10.0.0.2:/data/shard.index`` is opened by
    workers of the node with that address alone.

    ``queries`` are ``Codes`` or, for the k nearest, ``Questions``, with ``precision`` and
    ``shortlist`` as in ``index.search``; several indexes have a shortlist each.
    """
    if (k is None) == (radius is None):
        _check.refuse("Give either k or a radius.")
    k = None if k is None else check_k(k)
    radius = None if radius is None else check_radius(radius)
    if not isinstance(queries, (Codes, Questions)):
        _check.refuse(f"Codes are wanted here (rb.pack makes them); got {type(queries).__name__}.")
    how = _check_how(queries, radius, precision, shortlist)
    if isinstance(queries, Questions) and shortlist is not None and isinstance(database, Codes):
        assert k is not None
        wide = max(k, _check.whole("shortlist", shortlist, 1))
        near = search(queries.codes(), database, wide, address=address, rows=rows)
        return order_shortlist(queries, near.ids, database.__getitem__, k)
    if isinstance(database, Codes):
        _check.same_bits(queries.bits, database.bits)
        check_same_encoder(queries.fingerprint, database.fingerprint, "the database")
        _check.not_empty("database", len(database))
    decoded = isinstance(queries, Questions) and queries.decoder is not None
    fetched = choose_width(k) if decoded and k and isinstance(database, Codes) else k
    with joined(address) as ray:
        if isinstance(database, Codes):
            pieces = [(ray.put(database.packed[s]), s.start) for s in spans(len(database), rows)]
            function: Any = _in_codes
        else:
            listed = [database] if isinstance(database, (str, os.PathLike)) else list(database)
            _check.not_empty("list of indexes", len(listed))
            job = uuid.uuid4().hex
            pieces, function = [(_split_host(str(place)), job) for place in listed], _in_index
        slices = spans(len(queries), QUERIES) or [slice(0, 0)]
        parts = [(queries[s], fetched, radius, how, *piece) for s in slices for piece in pieces]
        found = mapped(ray, function, parts, "search", len(parts), _host_of)
        merged = [_merged([next(found) for _ in pieces], fetched) for _ in slices]
    results = merged[0] if len(merged) == 1 else _stacked(merged)
    if fetched == k:
        return results
    assert isinstance(queries, Questions) and k is not None
    return order_shortlist(queries, results.ids, database.__getitem__, k)


def _check_how(
    queries: Queries, radius: int | None, precision: str, shortlist: int | None
) -> dict[str, Any]:
    """The options of a search by questions; none for codes."""
    check_precision(precision)
    if isinstance(queries, Codes):
        if shortlist is not None:
            _check.refuse("shortlist is for questions (encoder.ask); codes are searched exactly.")
        return {}
    if radius is not None:
        _check.refuse("A radius is a Hamming distance, which questions do not have: give k.")
    return {"precision": precision} | ({} if shortlist is None else {"shortlist": shortlist})


def _split_host(place: str) -> tuple[str | None, str]:
    """The node that has an index, None for any, and the address of the index there."""
    if not place.startswith("node:"):
        return None, _absolute(place)
    _, host, there = [*place.split(":", 2), "", ""][:3]
    if not host or not there:
        _check.refuse(f"A shard on a node is written node:ADDRESS:PATH; got {place!r}.")
    return host, there


def _host_of(part: tuple) -> str | None:
    place = part[4]
    return place[0] if isinstance(place, tuple) else None


def _absolute(place: str | os.PathLike[str]) -> str:
    """A worker runs in a folder of its own, so that a path must say where it begins."""
    text = str(place)
    scheme, colon, rest = text.partition(":")
    if os.path.exists(text) or not colon:
        return os.path.abspath(text)
    if scheme in ("file", "graph", "duckdb", "milvus") and "://" not in rest:
        return f"{scheme}:{os.path.abspath(rest)}"
    return text


def _merged(parts: list[tuple[np.ndarray, ...]], k: int | None) -> Results:
    """One query slice over all shards: by distance, then in the order of the shards."""
    if k is not None:
        ids, distances = (np.concatenate(side, axis=1) for side in zip(*parts, strict=True))
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return Results(*(np.take_along_axis(side, order, 1) for side in (ids, distances)))
    sizes = [np.diff(part[2]) for part in parts]
    owner = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    ids, distances = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    order = np.lexsort((distances, owner))
    offsets = np.concatenate([[0], np.cumsum(np.sum(sizes, axis=0))]).astype(np.int64)
    return Results(ids[order], distances[order], offsets)


def _stacked(slices: list[Results]) -> Results:
    """Slices of the queries, one after another."""
    ids, distances = (np.concatenate([getattr(s, n) for s in slices]) for n in ("ids", "distances"))
    if slices[0].offsets is None:
        return Results(ids, distances)
    sizes = np.concatenate([np.diff(s.offsets) for s in slices if s.offsets is not None])
    return Results(ids, distances, np.concatenate([[0], np.cumsum(sizes)]))
