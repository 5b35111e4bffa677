"""A connection to PostgreSQL that is renewed when it is lost, and writes that happen once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from rankbits import _check
from rankbits.indexes.engines.opening import check_writable, first_line, import_package

Method = TypeVar("Method", bound=Callable[..., Any])


class Lost(_check.Refusal):
    """The connection ended in the middle of a call, or could not be made again."""


def ask_twice(method: Method) -> Method:
    """Decorate a method that only reads: where the connection is lost, it is called once more."""

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except Lost:
            return method(*args, **options)

    return call  # type: ignore[return-value]


class Connection:
    """The part of ``PostgresIndex`` that connects, runs transactions and retries."""

    table: str
    _mode: str

    def _open(self, address: str) -> None:
        psycopg = import_package("psycopg", "PostgreSQL", "postgres")
        from psycopg import sql

        self._address, self._failure, self._sql = address, psycopg.Error, sql
        self._name, self._lock = sql.Identifier(self.table), threading.RLock()
        self._psycopg, self._closed = psycopg, False
        self._con = self._connect()

    def _connect(self) -> Any:
        try:
            return self._psycopg.connect(self._address)
        except self._failure as error:
            raise Lost(f"PostgreSQL cannot be reached: {first_line(error)}.") from None

    @contextmanager
    def _transaction(self, write: bool = False) -> Iterator[Any]:
        """A cursor inside one transaction; the server's errors become refusals."""
        with self._lock:
            if self._closed:
                _check.refuse(f"The index {self.table} is closed.")
            if write:
                check_writable(self.table, self._mode)
            if self._con.closed:
                self._con = self._connect()
            try:
                with self._con.transaction(), self._con.cursor() as cursor:
                    yield cursor
            except self._failure as error:
                if self._con.closed:
                    raise Lost(f"PostgreSQL closed the connection: {first_line(error)}.") from None
                _check.refuse(f"PostgreSQL refuses: {first_line(error)}; nothing was changed.")

    def _write(self, work: Callable[[Any], Any]) -> Any:
        """Run ``work(cursor)`` in one transaction while nobody else writes, and return its result.
        If the connection is lost, the server says whether the transaction was committed, so that
        the work is done once."""
        number = result = None
        for attempt in range(2):
            try:
                with self._transaction(write=True) as cursor:
                    self._run(cursor, "LOCK TABLE {t} IN SHARE ROW EXCLUSIVE MODE")
                    if number is not None:
                        cursor.execute("SELECT txid_status(%s)", [number])
                        if cursor.fetchone()[0] == "committed":
                            break
                    number = cursor.execute("SELECT txid_current()").fetchone()[0]
                    result = work(cursor)
                break
            except Lost as sentence:
                if attempt and number is not None:
                    text = str(sentence).rstrip(".")
                    _check.refuse(f"{text}; it is unknown whether this write was done.")
                if attempt:
                    raise
        return result

    def _run(self, cursor: Any, text: str, values: Any = None, **parts: Any) -> Any:
        """Execute ``text``; names and numbers are quoted into it, values are sent separately."""
        composed = self._sql.SQL(text).format(t=self._name, **parts)
        return cursor.execute(composed, values, prepare=False)

    def close(self) -> None:
        """Close the connection; every write that returned is on the server."""
        self._closed = True
        self._con.close()


def split_address(address: str) -> tuple[str, str | None]:
    """Split an address into one that libpq accepts and the table it names.

    >>> split_address("postgresql:///birds?host=/tmp&table=codes")
    ('postgresql:///birds?host=/tmp', 'codes')
    """
    place, _, query = address.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    tables = [value for name, value in pairs if name == "table"]
    rest = urlencode([p for p in pairs if p[0] != "table"], quote_via=quote, safe="/")
    return f"{place}?{rest}" if rest else place, tables[-1] if tables else None
