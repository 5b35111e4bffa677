"""Tables over a block of codes, which find the nearest codes without a scan of all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.kernels import backend
from rankbits.kernels.codes import Words, hamming_topk
from rankbits.types import Results
from rankbits.types.decoder import freeze

LONGEST = 22  # most bits of a part: its table has an entry of 4 bytes for every value
FEWER = (5, 3)  # bits that a part has less than log2(rows), for codes of one word and of several
ONE_WORD = (2.0, 40.0, 2.5)  # prices of a value, a run of rows and a row, about nanoseconds
MORE_WORDS = (2.0, 100.0, 15.0)  # the same for codes of several words, which lie apart
SAMPLE = 1 << 24  # most rows of a timed scan
TIMED = 32  # queries of a timed batch
SLACK = 2.0  # scans that a query may cost; the index learns whether to use tables at all
RETRY = 1.5  # queries that were given up are tried again where the budget grows by this factor


@dataclass(frozen=True, eq=False)
class Tables:
    """The rows of a block of codes, sorted once for each part of the codes.

    ``parts`` (tables, 4) holds the word, the lowest bit and the number of bits of each part, and
    where its table begins in ``begin``. ``rows`` (tables * n,) holds the rows of all tables.
    ``codes`` are in the order of each table where they have one word, else by row. ``probe``,
    ``scan`` and ``scan_batch`` are seconds: of a unit of the prices above, of a row in a scan for
    one query, and of a row for each query in a scan for 32.
    """

    parts: np.ndarray
    begin: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    bits: int
    probe: float = 1e-9
    scan: float = math.inf
    scan_batch: float = math.inf

    @staticmethod
    def empty(parts: np.ndarray, rows: int, bits: int) -> Tables:
        """Tables that are still to be filled."""
        entries, words = _count_cells(parts, rows, bits)
        begin, places = np.zeros(entries, np.uint32), np.empty(len(parts) * rows, np.uint32)
        return Tables(parts.copy(), begin, places, np.empty(words, np.uint64), bits)

    def freeze(self) -> Tables:
        """Make all arrays read-only and return self."""
        for array in self.arrays:
            array.flags.writeable = False
        return self

    def __len__(self) -> int:
        return len(self.rows) // len(self.parts)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.parts, self.begin, self.rows, self.codes

    @property
    def prices(self) -> np.ndarray:
        return np.array(ONE_WORD if self.bits <= 64 else MORE_WORDS)

    def scan_seconds(self, queries: int) -> float:
        """Seconds of a scan for each of ``queries``, between those timed for 1 and for 32."""
        if not self.scan_batch < self.scan:
            return len(self) * self.scan_batch
        share = min(1.0, math.log(queries) / math.log(TIMED))
        return len(self) * self.scan ** (1 - share) * self.scan_batch**share

    def budget(self, queries: int) -> float:
        """The cost, in units of the prices, at which each of ``queries`` is given up for a scan."""
        threads = min(queries, backend.count_threads())
        return SLACK * threads * self.scan_seconds(queries) / self.probe


def cut_parts(bits: int, rows: int) -> np.ndarray:
    """Cut codes into parts (tables, 4), a few bits shorter than log2(rows), none across words."""
    parts, start = [], 0
    for word in range(-(-bits // 64)):
        size = 8 * -(-min(64, bits - 64 * word) // 8)  # in whole bytes: all codes share the padding
        wanted = max(1.0, math.log2(max(rows, 2)) - FEWER[bits > 64])
        count = min(max(-(-size // LONGEST), round(size / wanted)), size)
        low = 0
        for i in range(count):
            length = size // count + (i < size % count)
            parts.append((word, low, length, start))
            low, start = low + length, start + (1 << length) + 1
    return np.array(parts, np.uint64)


def tables_bytes(bits: int, rows: int) -> int:
    """The memory that tables over ``rows`` codes take."""
    parts = cut_parts(bits, rows)
    entries, words = _count_cells(parts, rows, bits)
    return 4 * entries + 4 * len(parts) * rows + 8 * words


def _count_cells(parts: np.ndarray, rows: int, bits: int) -> tuple[int, int]:
    """How long ``begin`` and ``codes`` are in tables of these parts."""
    width = -(-bits // 64)
    entries = int(parts[-1, 3]) + (1 << int(parts[-1, 2])) + 1
    return entries, rows * (len(parts) if width == 1 else width)


def make_tables(database: Words, *, timed: bool = True) -> Tables:
    """Make tables over ``database``; ``timed``: measure what scans and look-ups cost here."""
    words, bits = database.words, database.bits
    parts = cut_parts(bits, len(database))
    tables = Tables.empty(parts, len(database), bits)
    rows = tables.rows.reshape(len(parts), -1)
    if len(words) > 1:
        tables.codes.reshape(len(database), -1)[:] = words.T
    codes = tables.codes.reshape(-1, len(database))
    backend.load("cpu", "tables").sort_rows(words, parts, tables.begin, rows, codes)
    tables.freeze()
    return time_tables(tables, database) if timed else tables


def time_tables(tables: Tables, database: Words) -> Tables:
    """Measure the seconds that look-ups and scans of these codes take here; new ``Tables``."""
    sample = Words(database.words[:, :SAMPLE], database.bits)
    queries = Words(_take_rows(database, 0), database.bits)
    query = Words(np.ascontiguousarray(queries.words[:, :1]), database.bits)
    tables_topk(query, tables, 1)  # compiles, so that the first search need not
    scan = _time_quickest(lambda: hamming_topk(query, sample, 10)) / len(sample)
    batch = _time_quickest(lambda: hamming_topk(queries, sample, 10)) / len(sample) / TIMED
    probe = _time_look_ups(tables, database, batch * len(database))
    return replace(tables, probe=probe, scan=scan, scan_batch=batch)


def _time_look_ups(tables: Tables, database: Words, scan: float) -> float:
    """Measure the seconds of a unit of the prices, in searches at most as long as a ``scan``."""
    k, rates = min(10, len(tables)), [tables.probe]
    for turn in range(6):  # new rows each turn, or all they read would be in the cache already
        rows = np.ascontiguousarray(_take_rows(database, turn).T)
        budget = scan / float(np.median(rates))
        begin = time.perf_counter()
        search = backend.load("cpu", "tables").try_search
        cost = search(rows, tables.arrays, k, tables.bits, budget, tables.prices)
        seconds = max(time.perf_counter() - begin, 1e-9)
        rates = [*rates, seconds / cost] if turn else rates  # the first turn also compiles
    return float(np.median(rates[1:]))


def _take_rows(database: Words, turn: int) -> np.ndarray:
    """Take 32 rows from all over the database, (words, 32), different ones at each turn."""
    places = np.linspace(0, len(database) - 1, TIMED).astype(np.int64)
    return np.ascontiguousarray(database.words[:, (places + 7 * turn) % len(database)])


def _time_quickest(function: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the quickest of several calls, after one that may compile."""
    samples = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return max(min(samples[1:]), 1e-9)


def tables_topk(
    queries: Words, tables: Tables, k: int, allowed: np.ndarray | None = None
) -> tuple[Results, np.ndarray]:
    """Find the k nearest of the ``allowed`` rows, of which there are at least k, in the order of
    ``hamming_topk``. Returns the results and the numbers (n,) of the queries that were given up
    because a scan is cheaper; the results of these mean nothing."""
    rows, mask = _lay_out(queries, tables, allowed)

    def search(some: np.ndarray, budget: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return backend.load("cpu", "tables").tables_topk(
            some, tables.arrays, mask, k, tables.bits, budget, tables.prices
        )

    budget = tables.budget(max(1, len(rows)))
    ids, distances, costs = search(rows, budget)
    given_up = np.flatnonzero(costs < 0)
    larger = tables.budget(max(1, len(given_up)))
    # a scan for few queries costs more for each of them, so that they may spend more here
    if len(given_up) < len(rows) and larger > RETRY * budget:
        ids[given_up], distances[given_up], costs[given_up] = search(rows[given_up], larger)
        given_up = given_up[costs[given_up] < 0]
    return Results(ids, distances), given_up


def tables_within(queries: Words, tables: Tables, radius: int) -> Results | None:
    """Find all rows within the radius, in the order of ``hamming_within``; None where a scan is
    cheaper for one of the queries."""
    rows, mask = _lay_out(queries, tables, None)
    budget, limit = tables.budget(max(1, len(rows))), min(radius, tables.bits)
    search = backend.load("cpu", "tables").tables_within
    parts, costs = search(rows, tables.arrays, mask, limit, budget, tables.prices)
    if (costs < 0).any():
        return None
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    keys = np.concatenate(parts)
    ids = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return Results(ids, (keys >> np.uint64(32)).astype(np.int32), offsets)


def _lay_out(
    queries: Words, tables: Tables, allowed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The words of the queries row by row, and a read-only mask of the allowed rows, empty where
    all are."""
    _check.same_bits(queries.bits, tables.bits)
    mask = freeze(np.empty(0, bool) if allowed is None else allowed)
    return np.ascontiguousarray(queries.words.T), mask
