"""Exact search of a snapshot: the kernels search each segment, and the results are merged.

A segment that has tables (``tables.py``) is looked up in them, and scanned for the queries that
they give up.

Rows that may not be found (removed, or not ``among`` the wanted) are left out in one of two ways.
If candidates are few or queries many, the candidates are gathered into a block of their own.
Otherwise the whole segment is searched for somewhat more than k, and rows that may not be found are
struck out; a query that is left with fewer than k is answered in the first way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rankbits.indexes.segments import Segment, Snapshot
from rankbits.kernels import (
    LaidOut,
    Tables,
    Words,
    hamming_topk,
    hamming_within,
    question_topk,
    tables_topk,
    tables_within,
    words,
)
from rankbits.types import Codes, Results

GATHER = 64  # rows that can be scanned in the time that gathering one takes


def list_candidates(
    state: Snapshot, mask: np.ndarray | None, ids: np.ndarray | None, queries: int
) -> list:
    """What may be found in each segment: None for all rows, a mask (n,), or row numbers where it
    pays to gather them for so many ``queries``."""
    if mask is None and ids is None:
        return [s.alive for s in state.segments]
    if ids is not None:
        pairs = zip(state.find(ids), state.segments, strict=True)
        return [_choose_rows_or_mask(rows, segment, queries) for rows, segment in pairs]
    assert mask is not None
    out, at = [], 0
    for segment in state.segments:
        part = mask[at : at + segment.live]
        at += segment.live
        if segment.alive is not None:
            full = np.zeros(len(segment.words), bool)
            full[segment.alive] = part
            part = full
        gather = _pays_to_gather(int(np.count_nonzero(part)), len(part), queries)
        out.append(np.flatnonzero(part) if gather else part)
    return out


def _pays_to_gather(few: int, rows: int, queries: int) -> bool:
    """Whether gathering ``few`` of the rows costs less than it saves the queries to scan."""
    return GATHER * few <= queries * (rows - few) or not few


def _choose_rows_or_mask(rows: np.ndarray, segment: Segment, queries: int) -> np.ndarray:
    """The row numbers, ascending and each once, or their mask."""
    if _pays_to_gather(len(rows), len(segment.words), queries):
        rows = np.sort(rows)
        return rows[np.diff(rows, prepend=-1) > 0]
    mask = np.zeros(len(segment.words), bool)
    mask[rows] = True
    return mask


def _all_topk(
    queries: Words | LaidOut, segment: Segment, k: int, device: str | None = None
) -> Results:
    """The nearest of all rows, removed ones included, by a scan."""
    if isinstance(queries, Words):
        return hamming_topk(queries, segment.on(device), k)
    inverses = None
    if queries.decoder is not None:
        inverses = segment.inverse_lengths(queries.decoder, device)
    return question_topk(queries, segment.on(device).prefix(queries.bits), k, inverses=inverses)


def _allowed_topk(
    queries: Words | LaidOut, segment: Segment, k: int, mask: np.ndarray | None, device: str | None
) -> Results:
    """The nearest of the rows in ``mask`` (None: of all), by tables or by a scan."""

    def scan(some_queries: Words | LaidOut = queries) -> Results:
        if mask is None:
            return _all_topk(some_queries, segment, k, device)
        return _mask_topk(some_queries, segment, k, mask)

    if not isinstance(queries, Words) or device is not None:
        return scan()
    allowed = segment.live
    if mask is not None and mask is not segment.alive:  # counting takes longer than a look-up
        allowed = int(np.count_nonzero(mask))

    def look_up(tables: Tables) -> Results:
        nearest, left = tables_topk(queries, tables, min(k, allowed), mask)
        if len(left):
            rest = scan(_take_queries(queries, left))
            nearest.ids[left], nearest.distances[left] = rest.ids, rest.distances
        return nearest

    share = len(segment.words) // max(1, allowed)
    case = (k.bit_length(), len(queries).bit_length(), share.bit_length())
    return segment.tables.answer(case, len(queries), look_up, scan)


def _rows_topk(queries: Words | LaidOut, segment: Segment, k: int, rows: np.ndarray) -> Results:
    """The nearest of these rows, which are gathered."""
    block = segment.gather(rows)
    if isinstance(queries, Words):
        nearest = hamming_topk(queries, block, k)
    else:
        inverses = None
        if queries.decoder is not None:
            inverses = segment.inverse_lengths_at(queries.decoder, rows)
        nearest = question_topk(queries, block.prefix(queries.bits), k, inverses=inverses)
    return Results(rows[nearest.ids], nearest.distances)


def _distance_type(queries: Words | LaidOut) -> type:
    return np.int32 if isinstance(queries, Words) else np.float32


def _mask_topk(queries: Words | LaidOut, segment: Segment, k: int, mask: np.ndarray) -> Results:
    """The nearest of the rows in ``mask``: those of all rows, less what the mask strikes out."""
    total, allowed = len(mask), int(np.count_nonzero(mask))
    k = min(k, allowed)
    ids = np.empty((len(queries), k), np.int64)
    distances: np.ndarray = np.empty((len(queries), k), _distance_type(queries))
    left = np.arange(len(queries))
    more = math.ceil(1.25 * k * total / allowed) + 16
    for fetch in (more, 16 * more):
        if fetch >= total // 2 or not len(left):
            break
        nearest = _all_topk(_take_queries(queries, left), segment, fetch)
        good = mask[nearest.ids]
        done = good.sum(axis=1) >= k
        order = np.argsort(~good[done], axis=1, kind="stable")[:, :k]
        ids[left[done]] = np.take_along_axis(nearest.ids[done], order, 1)
        distances[left[done]] = np.take_along_axis(nearest.distances[done], order, 1)
        left = left[~done]
    if len(left):
        nearest = _rows_topk(_take_queries(queries, left), segment, k, np.flatnonzero(mask))
        ids[left], distances[left] = nearest.ids, nearest.distances
    return Results(ids, distances)


def _take_queries(queries: Words | LaidOut, rows: np.ndarray) -> Words | LaidOut:
    if len(rows) == len(queries):
        return queries
    if isinstance(queries, LaidOut):
        return queries[rows]
    return Words(np.ascontiguousarray(queries.words[:, rows]), queries.bits)


def topk(
    state: Snapshot, queries: Codes | LaidOut, k: int, allowed: list, device: str | None = None
) -> Results:
    """The k nearest, (Q, min(k, candidates)) ids and distances; ties by order of insertion."""
    parts = []
    laid_out = queries if isinstance(queries, LaidOut) else words(queries)
    for segment, rows in zip(state.segments, allowed, strict=True):
        if rows is None or rows.dtype == bool:
            nearest = _allowed_topk(laid_out, segment, k, rows, device)
        elif len(rows):
            nearest = _rows_topk(laid_out, segment, k, rows)
        else:
            continue
        parts.append((segment.ids.at(nearest.ids), nearest.distances))
    if len(parts) == 1:
        return Results(*parts[0])
    if not parts:
        empty = np.empty((len(queries), 0), np.int64)
        ids = empty.astype(object) if state.strings else empty
        return Results(ids, empty.astype(_distance_type(laid_out)))
    return merge_nearest(parts, k)


def merge_nearest(parts: Iterable[tuple[np.ndarray, ...]], k: int) -> Results:
    """The k nearest of several lists, ids and distances (Q, S); ties by the order of the lists."""
    ids, distances = (np.concatenate(side, axis=1) for side in zip(*parts, strict=True))
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Results(np.take_along_axis(ids, order, 1), np.take_along_axis(distances, order, 1))


def _find_within(
    queries: Words, segment: Segment, radius: int, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(query, row, distance) of each row within the radius, by query, distance and row."""
    gather = rows is not None and rows.dtype != bool
    block = segment.gather(rows) if gather else segment.words  # type: ignore[arg-type]

    def scan() -> Results:
        return hamming_within(queries, block, radius)

    def look_up(tables: Tables) -> Results:
        return tables_within(queries, tables, radius) or scan()

    case = ("within", radius, len(queries).bit_length())
    near = scan() if gather else segment.tables.answer(case, len(queries), look_up, scan)
    assert near.offsets is not None
    owner = np.repeat(np.arange(len(queries)), np.diff(near.offsets))
    if rows is None:
        return owner, near.ids, near.distances
    if gather:
        return owner, rows[near.ids], near.distances
    good = rows[near.ids]
    return owner[good], near.ids[good], near.distances[good]


def within(state: Snapshot, queries: Codes, radius: int, allowed: list) -> Results:
    """All candidates within the radius, by distance, ties by order of insertion."""
    parts = []
    laid_out = words(queries)
    for segment, rows in zip(state.segments, allowed, strict=True):
        if rows is None or len(rows):
            owner, row, far = _find_within(laid_out, segment, radius, rows)
            parts.append((owner, segment.ids.at(row), far))
    if not parts:
        none = np.empty(0, object if state.strings else np.int64)
        return Results(none, np.empty(0, np.int32), np.zeros(len(queries) + 1, np.int64))
    owner, ids, far = parts[0]
    if len(parts) > 1:
        owner, ids, far = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = np.lexsort((far, owner))
        owner, ids, far = owner[order], ids[order], far[order]
    offsets = np.zeros(len(queries) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(queries)), out=offsets[1:])
    return Results(ids, far, offsets)
