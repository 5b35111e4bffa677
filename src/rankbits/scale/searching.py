"""Search on many workers: each searches a shard, and the nearest are merged."""

from __future__ import annotations

import os
import uuid
from functools import lru_cache
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.addresses import open_index
from rankbits.indexes.checks import check_radius
from rankbits.indexes.index import Index
from rankbits.indexes.scan import merge_nearest
from rankbits.indexes.shortlist import choose_width, order_shortlist
from rankbits.kernels import check_precision, hamming_topk, hamming_within, question_topk
from rankbits.scale.cluster import cut_spans, join_cluster, run_parts
from rankbits.types import Codes, Questions, Results
from rankbits.types.codes import check_same_encoder

Queries = Codes | Questions
ROWS = 1 << 20
QUERIES = 1 << 10


@lru_cache(maxsize=4)
def _open_once(place: str, job: str) -> Index:
    """Open an index in a worker and keep it open for the parts of one job."""
    return open_index(place, mode="r")


def _search_index(
    queries: Queries,
    k: int | None,
    radius: int | None,
    how: dict[str, Any],
    place: tuple[str | None, str],
    job: str,
) -> tuple[np.ndarray, ...]:
    index = _open_once(place[1], job)
    if k is not None:
        return _to_arrays(index.search(queries, k, **how))
    return _to_arrays(index.within(queries, radius or 0))


def _search_shard(
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
        results = question_topk(queries, shard, k, **how)
    elif k is not None:
        results = hamming_topk(queries, shard, k)
    else:
        results = hamming_within(queries, shard, radius or 0)
    return _to_arrays(Results(results.ids + first, results.distances, results.offsets))


def _to_arrays(results: Results) -> tuple[np.ndarray, ...]:
    pair = (results.ids, results.distances)
    return pair if results.offsets is None else (*pair, results.offsets)


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

    ``database`` is ``Codes``, which are sent in shards of ``rows`` and whose ids are row numbers;
    or the address of an index (``rb.open_index``) that every worker can open; or several such
    addresses, the shards of one database: ties come by shard, then in the order of each index. A
    shard may be on the disk of one node: only workers of the node 10.0.0.2 open
    ``node:10.0.0.2:/data/shard.index``.

    ``queries`` are ``Codes`` or, for the k nearest, ``Questions``, with ``precision`` and
    ``shortlist`` as in ``index.search``; each index makes a shortlist of its own.
    """
    if (k is None) == (radius is None):
        _check.refuse("Give either k or a radius.")
    k = None if k is None else _check.cutoff(k)
    radius = None if radius is None else check_radius(radius)
    if not isinstance(queries, (Codes, Questions)):
        _check.refuse(f"Codes are wanted here (rb.pack makes them); got {type(queries).__name__}.")
    how = _check_options(queries, radius, precision, shortlist)
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
    with join_cluster(address) as ray:
        if isinstance(database, Codes):
            shards = cut_spans(len(database), rows)
            pieces = [(ray.put(database.packed[s]), s.start) for s in shards]
            function: Any = _search_shard
        else:
            places = [database] if isinstance(database, (str, os.PathLike)) else list(database)
            _check.not_empty("list of indexes", len(places))
            job = uuid.uuid4().hex
            pieces, function = [(_split_host(str(place)), job) for place in places], _search_index
        slices = cut_spans(len(queries), QUERIES) or [slice(0, 0)]
        parts = [(queries[s], fetched, radius, how, *piece) for s in slices for piece in pieces]
        answers = run_parts(ray, function, parts, "search", _find_host)
        merged = [_merge_shards([next(answers) for _ in pieces], fetched) for _ in slices]
    results = merged[0] if len(merged) == 1 else _stack_slices(merged)
    if fetched == k:
        return results
    assert isinstance(queries, Questions) and k is not None
    return order_shortlist(queries, results.ids, database.__getitem__, k)


def _check_options(
    queries: Queries, radius: int | None, precision: str, shortlist: int | None
) -> dict[str, Any]:
    """Check the options of a search by questions; returns none for codes."""
    check_precision(precision)
    if isinstance(queries, Codes):
        if shortlist is not None:
            _check.refuse("shortlist is for questions (encoder.ask); codes are searched exactly.")
        return {}
    if radius is not None:
        _check.refuse("A radius is a Hamming distance, which questions do not have: give k.")
    return {"precision": precision} | ({} if shortlist is None else {"shortlist": shortlist})


def _split_host(place: str) -> tuple[str | None, str]:
    """Split off the node that has the index, None for any, from the address of the index."""
    if not place.startswith("node:"):
        return None, _make_absolute(place)
    _, host, path = [*place.split(":", 2), "", ""][:3]
    if not host or not path:
        _check.refuse(f"A shard on a node is written node:ADDRESS:PATH; got {place!r}.")
    return host, path


def _find_host(part: tuple) -> str | None:
    place = part[4]
    return place[0] if isinstance(place, tuple) else None


def _make_absolute(place: str | os.PathLike[str]) -> str:
    """Make the path in an address absolute: a worker runs in another folder."""
    text = str(place)
    scheme, colon, rest = text.partition(":")
    if os.path.exists(text) or not colon:
        return os.path.abspath(text)
    if scheme in ("file", "graph", "duckdb", "milvus") and "://" not in rest:
        return f"{scheme}:{os.path.abspath(rest)}"
    return text


def _merge_shards(parts: list[tuple[np.ndarray, ...]], k: int | None) -> Results:
    """Merge the results of all shards for some queries: by distance, then by shard."""
    if k is not None:
        return merge_nearest(parts, k)
    sizes = [np.diff(part[2]) for part in parts]
    owner = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    ids, distances = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    order = np.lexsort((distances, owner))
    offsets = np.concatenate([[0], np.cumsum(np.sum(sizes, axis=0))]).astype(np.int64)
    return Results(ids[order], distances[order], offsets)


def _stack_slices(slices: list[Results]) -> Results:
    """Join the results of slices of the queries, one after another."""
    ids, distances = (np.concatenate([getattr(s, n) for s in slices]) for n in ("ids", "distances"))
    if slices[0].offsets is None:
        return Results(ids, distances)
    sizes = np.concatenate([np.diff(s.offsets) for s in slices if s.offsets is not None])
    return Results(ids, distances, np.concatenate([[0], np.cumsum(sizes)]))
