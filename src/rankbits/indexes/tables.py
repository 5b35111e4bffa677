"""When a block of codes gets tables, by which the nearest are found without a scan."""

from __future__ import annotations

import threading

from rankbits.kernels import Tables, Words, make_tables, tables_bytes
from rankbits.kernels.backend import chosen

ASKED = 512  # queries that were scanned before tables are made: about what making them costs
SMALLEST = 1 << 20  # bytes of codes: a scan of fewer is over before a look-up pays
LARGEST = 1 << 30  # bytes of tables that are made without being asked for


class LazyTables:
    """The tables of a block of codes, made once they are worth it."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._tables: Tables | None = None
        self._asked = 0
        self._making = threading.Lock()

    def ask(self, queries: int) -> Tables | None:
        """The tables for so many queries; None where a scan is the better way. They are made here
        when enough queries were scanned; while a thread makes them, others scan."""
        small = not queries or self._words.words.nbytes < SMALLEST
        if small or chosen("cpu") != "cpu":
            return None
        if self._tables is None:
            self._asked += 1 + (queries - 1) // 4  # queries of a batch share a scan
            large = tables_bytes(self._words.bits, len(self._words)) > LARGEST
            if self._asked < ASKED or large or not self._making.acquire(blocking=False):
                return None
            try:
                self._make()
            finally:
                self._making.release()
        return self._tables

    def build(self) -> int:
        """Make the tables now, whatever their size; the bytes they take."""
        if self._words.words.nbytes < SMALLEST:
            return 0
        with self._making:
            self._make()
        return tables_bytes(self._words.bits, len(self._words))

    def _make(self) -> None:
        if self._tables is None:
            self._tables = make_tables(self._words)
