"""Tables over a block of codes, by which the nearest are found without a scan of all of them."""

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

LONGEST = 22  # bits of a part: a table has an entry of 4 bytes for every value
FEWER = (5, 3)  # bits of a part below log2(rows), for codes of one word and of several
ONE_WORD = (2.0, 40.0, 2.5)  # what a value, a run of rows and a row cost, about nanoseconds
MORE_WORDS = (2.0, 100.0, 15.0)  # rows of several words lie apart
SAMPLE = 1 << 24  # rows of which a scan is timed
TIMED = 32  # queries that are timed
SLACK = 2.0  # scans that a query may cost: which way is taken at all is for the index to learn
RETRY = 1.5  # queries that were given up are tried again for so many times the price


@dataclass(frozen=True, eq=False)
class Tables:
    """Rows of a block of codes in the order of each part of their codes.

    ``parts`` (tables, 4): the word, the lowest bit and the bits of each part, and where its table
    begins in ``begin``; ``rows`` (tables * n,); ``codes`` in the order of each table where they
    have one word, else by row. ``probe``, ``scan`` and ``scan_batch`` are seconds: of a unit of the
    prices above, and of a row in a scan for one query and for each of 32.
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
        """Tables to be filled."""
        entries = int(parts[-1, 3]) + (1 << int(parts[-1, 2])) + 1
        width = -(-bits // 64)
        places = np.empty(len(parts) * rows, np.uint32)
        codes = np.empty(rows * (len(parts) if width == 1 else width), np.uint64)
        return Tables(parts.copy(), np.zeros(entries, np.uint32), places, codes, bits)

    def freeze(self) -> Tables:
        """Itself, none of whose arrays may be written to any more."""
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
        """What a scan takes for each of so many queries, between what was timed for 1 and 32."""
        if not self.scan_batch < self.scan:
            return len(self) * self.scan_batch
        share = min(1.0, math.log(queries) / math.log(TIMED))
        return len(self) * self.scan ** (1 - share) * self.scan_batch**share

    def budget(self, queries: int) -> float:
        """What a thread may spend on each of so many queries, by the prices, before it is given
        up to a scan."""
        threads = min(queries, backend.threads())
        return SLACK * threads * self.scan_seconds(queries) / self.probe


def cut_parts(bits: int, rows: int) -> np.ndarray:
    """(tables, 4): parts a few bits shorter than log2(rows), none of which lies in two words."""
    parts, start = [], 0
    for word in range(-(-bits // 64)):
        size = 8 * -(-min(64, bits - 64 * word) // 8)  # in whole bytes: padding is always equal
        wanted = max(1.0, math.log2(max(rows, 2)) - FEWER[bits > 64])
        many = max(-(-size // LONGEST), round(size / wanted))
        many = min(many, size)
        low = 0
        for i in range(many):
            length = size // many + (i < size % many)
            parts.append((word, low, length, start))
            low, start = low + length, start + (1 << length) + 1
    return np.array(parts, np.uint64)


def tables_bytes(bits: int, rows: int) -> int:
    """What tables over so many codes take in memory."""
    parts = cut_parts(bits, rows)
    width = -(-bits // 64)
    entries = int(parts[-1, 3]) + (1 << int(parts[-1, 2])) + 1
    codes = 8 * rows * (len(parts) if width == 1 else width)
    return 4 * entries + 4 * len(parts) * rows + codes


def make_tables(database: Words, *, timed: bool = True) -> Tables:
    """Tables over ``database``; where ``timed``, with what a scan and a look-up cost here."""
    words, bits = database.words, database.bits
    parts = cut_parts(bits, len(database))
    tables = Tables.empty(parts, len(database), bits)
    rows = tables.rows.reshape(len(parts), -1)
    if len(words) > 1:
        tables.codes.reshape(len(database), -1)[:] = words.T
    codes = tables.codes.reshape(-1, len(database))
    _module().sort_rows(words, parts, tables.begin, rows, codes)
    tables.freeze()
    return time_tables(tables, database) if timed else tables


def _module() -> Any:
    return backend.load("cpu", "tables")


def time_tables(tables: Tables, database: Words) -> Tables:
    """The tables with the seconds that looking up and scanning these codes take here."""
    sample = Words(database.words[:, :SAMPLE], database.bits)
    queries = Words(_take_rows(database, 0), database.bits)
    one = Words(np.ascontiguousarray(queries.words[:, :1]), database.bits)
    tables_topk(one, tables, 1)  # compiles what the first search would else wait for
    scan = _least(lambda: hamming_topk(one, sample, 10)) / len(sample)
    batch = _least(lambda: hamming_topk(queries, sample, 10)) / len(sample) / TIMED
    probe = _time_look_ups(tables, database, batch * len(database))
    return replace(tables, probe=probe, scan=scan, scan_batch=batch)


def _time_look_ups(tables: Tables, database: Words, scan: float) -> float:
    """Seconds of a unit of the prices in searches that may take as long as a ``scan``."""
    k, rates = min(10, len(tables)), [tables.probe]
    for turn in range(6):  # other rows each time, or all that they read would be in the cache
        rows = np.ascontiguousarray(_take_rows(database, turn).T)
        budget = scan / float(np.median(rates))
        begin = time.perf_counter()
        cost = _module().try_search(rows, tables.arrays, k, tables.bits, budget, tables.prices)
        seconds = max(time.perf_counter() - begin, 1e-9)
        rates = [*rates, seconds / cost] if turn else rates  # the first one also compiles
    return float(np.median(rates[1:]))


def _take_rows(database: Words, turn: int) -> np.ndarray:
    """(words, 32): rows from all over, others at each turn."""
    places = np.linspace(0, len(database) - 1, TIMED).astype(np.int64)
    return np.ascontiguousarray(database.words[:, (places + 7 * turn) % len(database)])


def _least(function: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the quickest of some calls, after one to compile."""
    samples = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return max(min(samples[1:]), 1e-9)


def tables_topk(
    queries: Words, tables: Tables, k: int, allowed: np.ndarray | None = None
) -> tuple[Results, np.ndarray]:
    """The k nearest of the ``allowed`` rows, at least k, as ``hamming_topk`` orders them; and the
    queries (n,) that were given up because a scan is cheaper, whose results mean nothing."""
    rows, mask = _lay_out(queries, tables, allowed)

    def search(asked: np.ndarray, budget: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _module().tables_topk(
            asked, tables.arrays, mask, k, tables.bits, budget, tables.prices
        )

    budget = tables.budget(max(1, len(rows)))
    ids, distances, costs = search(rows, budget)
    left = np.flatnonzero(costs < 0)
    few = tables.budget(max(1, len(left)))
    if len(left) < len(rows) and few > RETRY * budget:  # a scan for few costs each of them more
        ids[left], distances[left], costs[left] = search(rows[left], few)
        left = left[costs[left] < 0]
    return Results(ids, distances), left


def tables_within(queries: Words, tables: Tables, radius: int) -> Results | None:
    """All rows within the radius, as ``hamming_within`` orders them; None where a scan is cheaper
    for one of the queries."""
    rows, mask = _lay_out(queries, tables, None)
    budget, limit = tables.budget(max(1, len(rows))), min(radius, tables.bits)
    keys, costs = _module().tables_within(rows, tables.arrays, mask, limit, budget, tables.prices)
    if (costs < 0).any():
        return None
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in keys])])
    joined = np.concatenate(keys)
    ids = (joined & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return Results(ids, (joined >> np.uint64(32)).astype(np.int32), offsets)


def _lay_out(
    queries: Words, tables: Tables, allowed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    _check.same_bits(queries.bits, tables.bits)
    mask = np.empty(0, bool) if allowed is None else allowed
    view = mask.view()
    view.flags.writeable = False
    return np.ascontiguousarray(queries.words.T), view
