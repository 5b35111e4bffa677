"""Near duplicates without a scan: exact search within a small radius by buckets of 16 bits.

Cut the first 16 m bits of a code into m chunks. Two codes at distance r = m s + a agree, up to s
bits, on one of the first a + 1 chunks, or up to s - 1 bits on one of the others (Norouzi, Punjani,
Fleet: Fast Exact Search in Hamming Space with Multi-Index Hashing, 2014). So only rows that share a
chunk, or nearly, are compared. For the k nearest this does not pay: among 1,000,000 uniform codes
of 64 bits the tenth neighbour is about 15 bits away, which takes 2,788 buckets and some 42,000 rows
out of order, as dear as the scan of all of them in order.
"""

from __future__ import annotations

import threading
from functools import cache
from itertools import combinations

import numpy as np

from rankbits.kernels import Words

CHUNK = 16
ASKED = 128  # queries that were scanned before tables are made: about what making them costs
WORTH = 500_000  # pairs of query and row below which a scan is quicker than the first bucket
LARGEST = 1 << 24  # rows past which tables would take more memory than anybody expects
SPARSE = 64  # buckets are left where they hold more than one row in so many: in order is quicker
ROOM = 1 << 21  # rows compared at a time


@cache
def _patterns(radius: int) -> np.ndarray:
    """All 16-bit differences of at most ``radius`` bits."""
    found = [
        sum(1 << b for b in places)
        for many in range(radius + 1)
        for places in combinations(range(CHUNK), many)
    ]
    return np.array(found, np.uint16)


class Buckets:
    """Tables over a block of codes, made once they are worth it: for each chunk the rows by its
    value, 4 bytes a row."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._tables: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._asked = 0
        self._making = threading.Lock()

    def _plan(self, radius: int) -> list[tuple[int, int]]:
        """(chunk, its radius) for all chunks to look at; none where it cannot pay."""
        chunks = self._words.bits // CHUNK
        if not chunks or radius >= 2 * chunks:
            return []
        whole, rest = divmod(radius, chunks)
        return [(c, whole) for c in range(rest + 1)] + [
            (c, whole - 1) for c in range(rest + 1, chunks) if whole
        ]

    def _column(self, words: np.ndarray, chunk: int) -> np.ndarray:
        return words[chunk // 4].view(np.uint16)[chunk % 4 :: 4]

    def _made(self, chunks: list[int]) -> bool:
        """Whether all tables are there, made now if need be; False while another thread makes
        them, for a scan is done before they are."""
        missing = [chunk for chunk in chunks if chunk not in self._tables]
        if not missing:
            return True
        if not self._making.acquire(blocking=False):
            return False
        try:
            for chunk in missing:
                keys = self._column(self._words.words, chunk)
                begin = np.zeros((1 << CHUNK) + 1, np.int64)
                np.cumsum(np.bincount(keys, minlength=1 << CHUNK), out=begin[1:])
                self._tables[chunk] = np.argsort(keys, kind="stable").astype(np.int32), begin
        finally:
            self._making.release()
        return True

    def within(
        self, queries: Words, radius: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """(query, row, distance) of all within the radius, by query, distance and row; None where
        a scan is the better way."""
        plan, rows = self._plan(radius), len(self._words)
        if not plan or len(queries) * rows < max(WORTH, 1) or rows > LARGEST:
            return None
        self._asked += len(queries)
        if self._asked < ASKED or not self._made([chunk for chunk, _ in plan]):
            return None
        parts = []
        for chunk, near in plan:
            order, begin = self._tables[chunk]
            probes = self._column(queries.words, chunk)[:, None] ^ _patterns(near)
            first = begin[probes]
            parts.append((order, first, begin[probes.astype(np.int64) + 1] - first))
        load = sum(sizes.sum(axis=1) for _, _, sizes in parts)
        if SPARSE * load.sum() > len(queries) * rows:
            return None
        cuts = np.searchsorted(np.cumsum(load), np.arange(ROOM, load.sum() + ROOM, ROOM))
        found, at = [], 0
        for stop in [*np.unique(cuts).tolist(), len(queries)]:
            if stop > at:
                found.append(self._compared(queries, slice(at, stop), parts, radius))
                at = stop
        owner, row, far = (np.concatenate(side) for side in zip(*found, strict=True))
        return owner, row, far

    def _compared(
        self, queries: Words, span: slice, parts: list, radius: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        owners, rows = [], []
        for order, first, sizes in parts:
            begin, size = first[span].ravel(), sizes[span].ravel()
            end = np.cumsum(size)
            places = np.arange(end[-1] if len(end) else 0) + np.repeat(begin - end + size, size)
            rows.append(order[places])
            owners.append(np.repeat(np.arange(span.start, span.stop), sizes[span].sum(axis=1)))
        owner, row = np.concatenate(owners), np.concatenate(rows)
        far = np.zeros(len(row), np.int32)
        for mine, theirs in zip(self._words.words, queries.words, strict=True):
            far += np.bitwise_count(mine[row] ^ theirs[owner])
        kept = far <= radius
        owner, row, far = owner[kept], row[kept].astype(np.int64), far[kept]
        sorting = np.lexsort((row, far, owner))  # a row met in two chunks now stands beside itself
        owner, row, far = owner[sorting], row[sorting], far[sorting]
        again = np.zeros(len(row), bool)
        again[1:] = (owner[1:] == owner[:-1]) & (row[1:] == row[:-1])
        return owner[~again], row[~again], far[~again]
