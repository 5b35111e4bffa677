"""Multi-index hashing: look rows up by the parts of their codes around those of a query.

Codes are cut into parts. For each part a table holds the rows sorted by its value: where each value
begins, the rows, and, for codes of one word, the codes themselves, so that rows of one value are
read in one run. Let table j be searched up to ``radius[j]`` flipped bits of its part. A row that no
table shows differs in more than ``radius[j]`` bits in every part, hence in at least the sum of
``radius[j] + 1``. So each further shell of any table completes the rows at one more bit of distance
(Norouzi, Punjani, Fleet: Fast Exact Search in Hamming Space with Multi-Index Hashing, 2014; there
the tables take turns). The search takes the cheapest shell next: the places where values begin tell
exactly how many rows a shell holds before any of them is read.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import cut_tiles, make_read_only
from rankbits.kernels.cpu.shells import (
    AHEAD,
    VALUES,
    find_near_codes,
    find_near_rows,
    find_runs,
    measure_distance,
    prefetch,
    price_shell,
    was_seen,
)

PIECE = 256  # rows compared together before the near ones are kept
START = 10_000.0  # what a query costs before anything is looked up, by the prices
TRIAL = 0.05  # share of the budget that is spent before the rest of the search is estimated


@njit(nogil=True, cache=True)
def _sort_by_part(words, shift, mask, begin, rows, codes):
    for i in range(words.shape[0]):
        begin[((words[i] >> shift) & mask) + np.uint64(1)] += np.uint32(1)
    for value in range(1, begin.shape[0]):
        begin[value] += begin[value - 1]
    place = begin[:-1].copy()
    for i in range(words.shape[0]):
        value = (words[i] >> shift) & mask
        at = place[value]
        place[value] = at + np.uint32(1)
        rows[at] = i
        if codes.shape[0]:
            codes[at] = words[i]


def sort_rows(words: np.ndarray, parts: np.ndarray, begin, rows, codes) -> None:  # type: ignore[no-untyped-def]
    """Fill ``begin``, ``rows`` (tables, n) and, for one word, ``codes`` (tables, n)."""
    (words,) = make_read_only(words)

    def work(t: int) -> None:
        word, shift, length, start = (int(x) for x in parts[t])
        own = codes[t] if len(words) == 1 else np.empty(0, np.uint64)
        table = begin[start : start + (1 << length) + 1]
        _sort_by_part(
            words[word], np.uint64(shift), np.uint64((1 << length) - 1), table, rows[t], own
        )

    run_tasks(work, range(len(parts)))


@njit(nogil=True, cache=True)
def _search(query, parts, begin, rows, codes, allowed, k, limit, budget, prices):
    """Find the rows within ``limit``, or the ``k`` nearest of them where k > 0, as sorted keys
    (distance * 2^32 + row), and what that cost. The cost is negative where the search was given up
    because it would cost more than ``budget``."""
    tables, width = parts.shape[0], query.shape[0]
    n = rows.shape[0] // tables
    keys = np.empty(2 * k + 64, np.uint64)
    filled, bound = 0, np.uint64(1) << np.uint64(63)
    counts = np.zeros(limit + 1, np.int64)
    within = 0
    radius = np.full(tables, -1)
    costs = np.full(tables, prices[0])  # of the next shell: a lower bound, then exact
    values = np.ones(tables)  # in the next shell
    exact = np.zeros(tables, np.bool_)
    firsts, lasts = np.empty(VALUES, np.int64), np.empty(VALUES, np.int64)
    hits = np.empty(2 * PIECE, np.int64)
    pending, waiting = np.empty(2 * PIECE, np.uint32), 0  # rows whose codes are read together
    complete, spent = -1, 0.0  # all rows up to this distance have been shown
    while complete < limit:
        t = np.argmin(costs)
        length, start = parts[t, 2], np.int64(parts[t, 3])
        value = (query[parts[t, 0]] >> parts[t, 1]) & ((np.uint64(1) << length) - np.uint64(1))
        weight = radius[t] + 1
        table = begin[start : start + (np.int64(1) << np.int64(length)) + 1]
        if not exact[t]:
            costs[t] = price_shell(table, value, length, weight, prices)
            exact[t] = True
            continue
        growth = (np.int64(length) - weight) / (weight + 1.0)
        if spent + costs[t] > TRIAL * budget:
            left, cost, ahead = limit - complete, costs[t], 0.0
            while left > 0:
                ahead += cost * min(left, tables)
                cost *= growth
                left -= tables
            if START + spent + ahead > budget:
                return keys[:0], -START - spent
        flips = (np.uint64(1) << np.uint64(weight)) - np.uint64(1)
        while flips < np.uint64(1) << length:
            many, flips = find_runs(table, value, length, weight, flips, firsts, lasts)
            for i in range(many + AHEAD):
                if i < many:
                    if width > 1:
                        prefetch(rows, t * n + firsts[i])
                    else:
                        prefetch(codes, t * n + firsts[i])
                        prefetch(codes, t * n + lasts[i] - 1)
                if i < AHEAD:
                    continue
                end = t * n + lasts[i - AHEAD]
                for first in range(t * n + firsts[i - AHEAD], end, PIECE):
                    last = min(first + PIECE, end)
                    if width > 1:
                        for place in range(first, last):
                            pending[waiting] = rows[place]
                            waiting += 1
                        if waiting < PIECE and (last < end or i < many + AHEAD - 1):
                            continue
                        near = find_near_rows(query, codes, pending, waiting, limit, hits)
                        waiting = 0
                    else:
                        near = find_near_codes(query[0], codes, first, last, limit, hits)
                    for h in range(near):
                        row = hits[h] if width > 1 else np.int64(rows[hits[h]])
                        at = width * row if width > 1 else hits[h]
                        far = measure_distance(query, codes, at)
                        key = np.uint64(far) << np.uint64(32) | np.uint64(row)
                        if far > limit or key >= bound or (allowed.shape[0] and not allowed[row]):
                            continue
                        if was_seen(query, codes, at, parts, t, radius):
                            continue
                        keys[filled] = key
                        filled += 1
                        if k:
                            counts[far] += 1
                            within += 1
                            while within - counts[limit] >= k:
                                within -= counts[limit]
                                limit -= 1
                            if filled == keys.shape[0]:
                                keys.sort()
                                filled, bound = k, keys[k - 1]
                        elif filled == keys.shape[0]:
                            keys = np.concatenate((keys, np.empty_like(keys)))
        spent += costs[t]
        radius[t] = weight
        complete += 1
        if growth <= 0:
            break  # the table has shown every row
        values[t] *= growth
        costs[t] = prices[0] * values[t]
        exact[t] = False
    nearest = np.sort(keys[:filled])
    return (nearest[:k] if k else nearest), START + spent


@njit(nogil=True, cache=True)
def _search_tile(queries, tables, allowed, k, bits, budget, prices, ids, out, costs):
    for i in range(queries.shape[0]):
        keys, costs[i] = _search(queries[i], *tables, allowed, k, bits, budget, prices)
        if costs[i] >= 0:
            for j in range(k):
                ids[i, j] = np.int64(keys[j] & np.uint64(0xFFFFFFFF))
                out[i, j] = np.int32(keys[j] >> np.uint64(32))


@njit(nogil=True, cache=True)
def try_search(queries, tables, k, bits, budget, prices):
    """The cost, in units of the prices, of a search for the k nearest of each query in turn, up to
    where it is given up."""
    none, cost = np.empty(0, np.bool_), 0.0
    for i in range(queries.shape[0]):
        cost += abs(_search(queries[i], *tables, none, k, bits, budget, prices)[1])
    return cost


def tables_topk(queries, tables, allowed, k, bits, budget, prices):  # type: ignore[no-untyped-def]
    """ids (Q, k), distances (Q, k) and costs (Q,), negative where a query was given up."""
    (queries,) = make_read_only(queries)
    ids = np.empty((len(queries), k), np.int64)
    distances = np.empty((len(queries), k), np.int32)
    costs = np.empty(len(queries))

    def work(tile: slice) -> None:
        settings = tables, allowed, k, bits, budget, prices
        _search_tile(queries[tile], *settings, ids[tile], distances[tile], costs[tile])

    run_tasks(work, cut_tiles(len(queries), 16))
    return ids, distances, costs


def tables_within(queries, tables, allowed, radius, budget, prices):  # type: ignore[no-untyped-def]
    """Keys (distance * 2^32 + row) of each query, ascending, and costs as in ``tables_topk``."""
    (queries,) = make_read_only(queries)

    def work(i: int) -> tuple[np.ndarray, float]:
        return _search(queries[i], *tables, allowed, 0, radius, budget, prices)

    keys, costs = zip(*run_tasks(work, range(len(queries))), strict=True)
    return keys, np.array(costs)
