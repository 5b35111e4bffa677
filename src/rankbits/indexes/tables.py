"""When a block of codes gets tables, and whether a query is answered by them or by a scan.

Within a query, the tables count what comes next and give up where a scan is cheaper. Which way is
taken at all is learned from the time that both took for queries like it. A way that was never tried
is expected to be quick, so that both are tried early; the slower one is tried again only when that
adds a thirty-second part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from rankbits.indexes.table_files import TableFile
from rankbits.kernels import Tables, Words, make_tables, tables_bytes, time_tables
from rankbits.kernels.backend import choose_backend

ASKED = 512  # queries that were scanned before tables are made: about what making them costs
READ = 64  # the same before tables are read from a file
SMALLEST = 1 << 20  # bytes of codes: a scan of fewer is over before a look-up pays
LARGEST = 1 << 30  # bytes of tables that are made without being asked for
MOST_ROWS = (1 << 32) - 1  # a table numbers its rows in 32 bits
EXPLORE = 32  # the slower way is tried again when the quicker one took so many times as long,
CLOSE = 2  # and sooner where it was tried a few times only and is not so many times slower
TWICE = 2  # timings of tables before they are compared: memory that is read first is cold

Answer = TypeVar("Answer")


@dataclass
class Pace:
    """Seconds a query by scans and by tables, at first what may be hoped for, how often each was
    timed, and the seconds spent by the quicker way since the slower one was tried."""

    scan: float
    tables: float = 0.0
    scans: int = 0
    look_ups: int = 0
    since: float = 0.0

    def prefers_tables(self) -> bool:
        if self.look_ups < TWICE:
            return True
        quicker = self.tables <= self.scan
        slow, quick = max(self.tables, self.scan), min(self.tables, self.scan)
        tries = self.scans if quicker else self.look_ups
        wait = min(EXPLORE, 2 << min(tries, EXPLORE)) if slow < CLOSE * quick else EXPLORE
        return quicker != (self.since >= wait * slow)

    def learn(self, by_tables: bool, seconds: float) -> None:
        quicker = by_tables == (self.tables <= self.scan)
        if by_tables:
            self.tables = _estimate(self.tables, self.look_ups, seconds, quicker)
            self.look_ups += 1
        else:
            self.scan = _estimate(self.scan, self.scans, seconds, quicker)
            self.scans += 1
        self.since = self.since + (self.tables if by_tables else self.scan) if quicker else 0.0


def _estimate(before: float, times: int, seconds: float, quicker: bool) -> float:
    """Seconds to expect of a way that was timed ``times`` times, which told ``before``, and once
    more: the less of the first two; then a mean of the last few for the quicker way and the newest
    for the other. No answer counts for more than twice what was expected: others on the machine
    may have held it up."""
    if times < TWICE:
        return min(before, seconds) if times else seconds
    seconds = min(seconds, 2 * before)
    return before + (seconds - before) / 4 if quicker else seconds


class LazyTables:
    """The tables of a block of codes, made once they are worth it, or read from a ``file``."""

    def __init__(self, words: Words, file: TableFile | None = None) -> None:
        self._words, self._file = words, file
        self._tables: Tables | None = None
        self._paces: dict[Hashable, Pace] = {}
        self._asked = 0
        self._was_read = self._is_saved = False
        self._making = threading.Lock()

    def answer(
        self,
        case: Hashable,
        queries: int,
        look_up: Callable[[Tables], Answer],
        scan: Callable[[], Answer],
    ) -> Answer:
        """What ``look_up(tables)`` or ``scan()`` gives, which is the same: by the way that was
        quicker for queries of this ``case``."""
        tables = self.ask(queries)
        if tables is None:
            return scan()
        pace = self._paces.get(case)
        if pace is None:
            pace = self._paces[case] = Pace(tables.scan_seconds(queries) / 2)
        by_tables = pace.prefers_tables()
        begin = time.perf_counter()
        answer = look_up(tables) if by_tables else scan()
        pace.learn(by_tables, (time.perf_counter() - begin) / queries)
        return answer

    @cached_property
    def size(self) -> int:
        """The bytes that the tables take; 0 where there can be none."""
        rows = len(self._words)
        if self._words.words.nbytes < SMALLEST or rows > MOST_ROWS:
            return 0
        return tables_bytes(self._words.bits, rows)

    def ask(self, queries: int) -> Tables | None:
        """The tables for so many queries; None where a scan is the better way. They are read or
        made here when enough queries were scanned; while one thread does so, others scan."""
        if not queries or not self.size or choose_backend("cpu") != "cpu":
            return None
        if self._tables is None:
            self._asked += 1 + (queries - 1) // 4  # queries of a batch share a scan
            make = self._asked >= ASKED and self.size <= LARGEST
            read = self._asked >= READ and self._file is not None and not self._was_read
            if not (make or read) or not self._making.acquire(blocking=False):
                return None
            try:
                self._prepare(make)
            finally:
                self._making.release()
        return self._tables

    def build(self) -> int:
        """Make the tables now, whatever their size; the bytes they take."""
        if self.size:
            with self._making:
                self._prepare(True)
        return self.size

    def save(self) -> None:
        """Write tables that were made here to the file they may be read from."""
        if self._file is not None and self._tables is not None and not self._is_saved:
            self._file.write(self._tables)
            self._is_saved = True

    def _prepare(self, make: bool) -> None:
        """Read the tables, or make them where there are none to read and ``make`` says so."""
        if self._tables is None and self._file is not None and not self._was_read:
            kept, self._was_read = self._file.read(self._words), True
            if kept is not None:
                self._tables, self._is_saved = time_tables(kept, self._words), True
        if self._tables is None and make:
            self._tables = make_tables(self._words)
