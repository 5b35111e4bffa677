"""PostgreSQL with pgvector: codes in a table of a server, searched by the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbits import _check
from rankbits.indexes import checks
from rankbits.indexes.engines.connection import Connection, ask_twice, split_address
from rankbits.indexes.engines.copying import lay_out_rows
from rankbits.indexes.engines.notes import read_note, write_note
from rankbits.indexes.engines.opening import agree_on_bits, check_name
from rankbits.indexes.engines.rows import order_codes, stack_results
from rankbits.indexes.index import Index
from rankbits.types import Codes, Results

if TYPE_CHECKING:
    from typing import Self

MOST_BITS = 64_000  # the limit of pgvector's HNSW on type bit


class PostgresIndex(Connection, Index):
    """Codes in a table ``(id, code bit(n))`` of a PostgreSQL server with pgvector.

    Searches are exact by default: the server reads the whole table, and ties come by id. ``add``
    and ``remove`` are transactions, and any number of writers take turns; an ``add`` of any size is
    one COPY. You may add other columns to the table; ``add`` leaves them alone. A lost connection
    is made again: a search is repeated, and a write is done once, since the server says whether it
    was committed. Where the server cannot be reached, the write is refused as unknown.

    ``index="hnsw"`` makes and uses pgvector's graph, which is approximate: it may miss neighbours,
    and chance decides which of the items tied at the k-th distance it returns. ``within`` and
    ``among`` stay exact.

    The address is one that libpq accepts, ``postgresql://user@host/database``. Put a password into
    ``PGPASSWORD`` or a service file rather than the address. ``?table=`` names the table.
    """

    def __init__(
        self,
        address: str,
        bits: int | None = None,
        *,
        table: str | None = None,
        mode: str = "w",
        index: str | None = None,
    ) -> None:
        address, named = split_address(address)
        self.table = check_name("table", table or named or "codes")
        self._mode = _check.choice("mode", mode, ("r", "w"))
        if index is not None:
            _check.choice("index", index, ("hnsw",))
        self._hnsw = index == "hnsw"
        self._open(address)
        try:
            self._open_table(bits)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresIndex({self.count():,} rows of {self.bits} bits)"

    def _open_table(self, bits: int | None) -> None:
        with self._transaction() as cursor:
            if self._mode == "w":  # two processes must not both make the table
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext('rankbits'))")
                cursor.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
                if cursor.fetchone() is None:
                    cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute(
                "SELECT attname, atttypid::regtype::text, atttypmod FROM pg_attribute "
                "WHERE attrelid = to_regclass(quote_ident(%s)) AND attname IN ('id', 'code')",
                [self.table],
            )
            columns = {name: (kind, size) for name, kind, size in cursor.fetchall()}
            place = f"The table {self.table}"
            kinds = [columns[name][0] for name in ("id", "code") if name in columns]
            if columns and kinds not in (["bigint", "bit"], ["text", "bit"]):
                _check.refuse(f"{place} was not made by rankbits; name another table.")
            self.bits = agree_on_bits(place, columns["code"][1] if columns else None, bits)
            if self.bits > MOST_BITS:
                _check.refuse(f"PostgreSQL takes at most {MOST_BITS:,} bits; got {self.bits:,}.")
            cursor.execute("SELECT obj_description(to_regclass(quote_ident(%s)))", [self.table])
            note = (cursor.fetchone() or [None])[0]  # tables of earlier versions have none
            self._facts = read_note(note, place)[1] if note and note.startswith("rankbits ") else {}
            if not columns:
                if self._mode == "r":
                    _check.refuse(f"{place} does not exist; mode='w' makes it.")
                text = "CREATE TABLE {t} (id bigint PRIMARY KEY, code bit({n}) NOT NULL)"
                self._run(cursor, text, n=self._sql.Literal(self.bits))
            if self._hnsw and self._mode == "w":
                self._run(
                    cursor,
                    "CREATE INDEX IF NOT EXISTS {i} ON {t} USING hnsw (code bit_hamming_ops)",
                    i=self._sql.Identifier(f"{self.table[:58]}_hnsw"),
                )

    def remember(self, facts: Mapping[str, str]) -> None:
        """Replace the facts, which are stored in the table's comment."""
        facts = checks.check_facts(facts)
        note = self._sql.Literal(write_note(self.bits, facts))
        self._write(lambda cursor: self._run(cursor, "COMMENT ON TABLE {t} IS {n}", n=note))
        self._facts = facts

    def _read_kind(self, cursor: Any) -> bool | None:
        """Whether ids are strings; None in an empty index, which takes either kind."""
        if self._run(cursor, "SELECT 1 FROM {t} LIMIT 1").fetchone() is None:
            return None
        return self._column_is_text(cursor)

    def _column_is_text(self, cursor: Any) -> bool:
        text = (
            "SELECT pg_typeof(id) = 'text'::regtype FROM (SELECT NULL) AS nothing "
            "LEFT JOIN {t} ON false"
        )
        return bool(self._run(cursor, text).fetchone()[0])

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Store ``codes`` under ``ids`` in one transaction; codes of stored ids are replaced."""
        codes = self._to_new_codes(codes)
        new_ids = None if ids is None else checks.parse_distinct_ids(ids, len(codes))
        if not len(codes):
            return self
        self._write(lambda cursor: self._insert(cursor, codes, new_ids))
        return self

    def _insert(self, cursor: Any, codes: Codes, ids: np.ndarray | None) -> None:
        strings = self._read_kind(cursor)
        if ids is None:
            if strings:
                checks.refuse_missing_ids()
            largest = None
            if strings is not None:
                largest = self._run(cursor, "SELECT max(id) FROM {t}").fetchone()[0]
            ids = checks.number_rows(largest, len(codes))
        text = ids.dtype == object
        kind = self._sql.SQL("text" if text else "bigint")
        if strings is not None:
            checks.same_kind(ids, strings)
        elif text != self._column_is_text(cursor):
            self._run(cursor, "ALTER TABLE {t} ALTER id TYPE {k} USING NULL", k=kind)
        self._run(
            cursor,
            "CREATE TEMP TABLE rankbits_incoming (id {k}, code bit({n})) ON COMMIT DROP",
            k=kind,
            n=self._sql.Literal(self.bits),
        )
        with cursor.copy("COPY rankbits_incoming FROM STDIN (FORMAT binary)") as copy:
            for part in lay_out_rows(codes, ids):
                copy.write(part)
        self._run(
            cursor,
            "INSERT INTO {t} (id, code) SELECT id, code FROM rankbits_incoming "
            "ON CONFLICT (id) DO UPDATE SET code = excluded.code",
        )

    def remove(self, ids: Any) -> int:
        """Remove ``ids``; returns how many of them were stored."""
        parsed = checks.parse_ids(ids)

        def delete(cursor: Any) -> int:
            strings = self._read_kind(cursor)
            if strings is None or not len(parsed):
                return 0
            names = checks.same_kind(parsed, strings).tolist()
            return int(self._run(cursor, "DELETE FROM {t} WHERE id = ANY(%s)", [names]).rowcount)

        return int(self._write(delete))

    @ask_twice
    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        limit = self._sql.Literal(k)
        with self._transaction() as cursor:
            candidates = self._parse_among(cursor, among)
            text = "SELECT id, {d} AS d FROM {t}{w} ORDER BY d, {c} LIMIT {k}"
            exact = self._make_search(cursor, text, candidates, k=limit)
            if not len(queries):  # one search tells how wide the empty results are
                blank = stack_results([exact(np.zeros(queries.packed.shape[1], np.uint8))])
                return Results(blank.ids[:0], blank.distances[:0])
            if not self._hnsw or among is not None:
                self._avoid_graph(cursor)
                return stack_results([exact(q) for q in queries.packed])
            wanted = min(k, self.count())
            cursor.execute(f"SET LOCAL hnsw.ef_search = {min(1000, max(40, 2 * k))}")
            cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            text = "SELECT id, {d} AS d FROM {t}{w} ORDER BY {d} LIMIT {k}"
            by_graph = self._make_search(cursor, text, candidates, k=limit)
            rows = [by_graph(q) for q in queries.packed]
            short = [i for i, row in enumerate(rows) if len(row) < wanted]
            if short:
                self._avoid_graph(cursor)
                for i in short:
                    rows[i] = exact(queries.packed[i])
            return stack_results(rows)

    @ask_twice
    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at distance ``radius`` or less, ties by id; always exact."""
        queries = self._to_query_codes(queries)
        radius = checks.check_radius(radius)
        with self._transaction() as cursor:
            search = self._make_search(
                cursor,
                "SELECT id, d FROM (SELECT id, {d} AS d FROM {t}{w}) AS near WHERE d <= {r} "
                "ORDER BY d, {c}",
                self._parse_among(cursor, among),
                r=self._sql.Literal(min(radius, self.bits)),
            )
            self._avoid_graph(cursor)
            rows = [search(q) for q in queries.packed]
        offsets = np.cumsum([0, *map(len, rows)])
        flat = stack_results([[pair for row in rows for pair in row]])
        strings = bool(len(flat.ids[0])) and isinstance(flat.ids[0][0], str)
        ids = flat.ids[0] if strings else flat.ids[0].astype(np.int64)
        return Results(ids, flat.distances[0], offsets)

    @ask_twice
    def codes(self, ids: Any) -> Codes:
        """The stored codes of ``ids``, in the same order."""
        wanted = checks.parse_ids(ids)
        with self._transaction() as cursor:
            strings = self._read_kind(cursor)
            checks.same_kind(wanted, strings)
            text = "SELECT id, code FROM {t} WHERE id = ANY(%s)"
            rows = [] if strings is None else self._run(cursor, text, [wanted.tolist()]).fetchall()
        packed = {name: np.packbits(np.array([*code]) == "1") for name, code in rows}
        return order_codes(wanted, packed, self.bits, self.fingerprint)

    def _avoid_graph(self, cursor: Any) -> None:
        """Forbid the planner the graph, which it would use for an ORDER BY distance."""
        cursor.execute("SET LOCAL enable_indexscan = off")

    def _parse_among(self, cursor: Any, among: Any) -> list | None:
        if among is None:
            return None
        parsed = checks.parse_ids(among, "among")
        strings = self._read_kind(cursor)
        return [] if strings is None else checks.same_kind(parsed, strings, "among").tolist()

    def _make_search(
        self, cursor: Any, text: str, candidates: list | None, **parts: Any
    ) -> Callable[[np.ndarray], list]:
        """Make a function that takes one packed query and returns its rows (id, distance)."""
        strings = self._column_is_text(cursor)
        condition = self._sql.SQL("")
        if candidates is not None:
            kind = "text" if strings else "bigint"
            condition = self._sql.SQL(f" WHERE id = ANY(%(ids)s::{kind}[])")
        named = {
            "d": self._sql.SQL("(code <~> %(q)s::bit({n}))").format(n=self._sql.Literal(self.bits)),
            "c": self._sql.SQL('id COLLATE "C"' if strings else "id"),
        }

        def search(query: np.ndarray) -> list:
            bits = "".join(map(str, np.unpackbits(query, count=self.bits)))
            values = {"q": bits} if candidates is None else {"q": bits, "ids": candidates}
            return self._run(cursor, text, values, w=condition, **named, **parts).fetchall()

        return search

    @property
    @ask_twice
    def has_string_ids(self) -> bool | None:
        with self._transaction() as cursor:
            return self._read_kind(cursor)

    @ask_twice
    def count(self) -> int:
        """How many codes are stored."""
        with self._transaction() as cursor:
            return int(self._run(cursor, "SELECT count(*) FROM {t}").fetchone()[0])
