"""DuckDB: codes are stored in a database file and searched in memory by our kernels."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbits import _check
from rankbits.indexes import checks
from rankbits.indexes.engines.columns import check_column, choose_type
from rankbits.indexes.engines.notes import read_note, write_note
from rankbits.indexes.engines.opening import (
    agree_on_bits,
    check_name,
    check_writable,
    first_line,
    import_package,
)
from rankbits.indexes.file import mask_padding
from rankbits.indexes.hamming import HammingIndex
from rankbits.indexes.ids import Column
from rankbits.indexes.segments import Segment, Snapshot
from rankbits.kernels import Words, words
from rankbits.types import Codes, Results

if TYPE_CHECKING:
    from typing import Self

SAFE = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
RESERVED = ("rankbits_incoming", "rankbits_new")

_open: set[tuple[str, str]] = set()
_opening = threading.Lock()


class DuckDBIndex(HammingIndex):
    """Codes in a table of a DuckDB file, read into memory once and searched by our kernels.

    ``add`` and ``remove`` are transactions, on the disk when they return. The table has the columns
    ``id``, ``place`` (order of insertion), ``w0``, ``w1``, ... (64 bits of the code each) and those
    given to ``add(..., columns={"price": [...]})``. ``search`` and ``within`` can filter by them:
    ``where="price < 10"``. The condition is SQL and is trusted: never put a stranger's text into
    it. It can read any table of the database, as in
    ``"id IN (SELECT id FROM products WHERE stock > 0)"``, but no files. Ids are never put into SQL.

    Ties come by order of insertion, as in ``HammingIndex``. One process has the file at a time;
    with ``mode="r"`` several can read it while none writes.

    >>> import tempfile, pathlib
    >>> from rankbits import pack
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.duckdb"
    >>> with DuckDBIndex(path, bits=2) as index:
    ...     index = index.add(pack([[1, 1], [1, -1]]), ids=["a", "b"], columns={"price": [20, 5]})
    ...     index.search(pack([[1, 1]]), k=2, where="price < 10").ids
    array([['b']], dtype=object)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int | None = None,
        *,
        table: str = "codes",
        mode: str = "w",
    ) -> None:
        super().__init__(1)
        duckdb = import_package("duckdb", "DuckDB", "duckdb")
        self.path, self.table, self._failure = Path(path), check_name("table", table), duckdb.Error
        if self.table.lower() in RESERVED:
            _check.refuse(f"rankbits uses the table {self.table} itself; choose another name.")
        self._quoted = f'"{self.table}"'  # it may be a word of SQL
        self._mode = _check.choice("mode", mode, ("r", "w"))
        self._columns: Mapping[str, Any] = {}
        self._key = (str(self.path.resolve()), self.table.lower())
        with _opening:
            if self._key in _open:
                _check.refuse(f"{self.path} is open already: a process can open a table once.")
            self._con = self._connect(duckdb, bits)
            try:
                self._load(bits)
            except BaseException:
                self._con.close()
                raise
            _open.add(self._key)
        self._closed = False

    def _connect(self, duckdb: Any, bits: Any) -> Any:
        new = not self.path.exists()
        if new and not self.path.parent.is_dir():
            _check.refuse(
                f"Cannot write {self.path}: the folder {self.path.parent} does not exist."
            )
        if new and self._mode == "r":
            _check.refuse(f"{self.path} does not exist or is not a file.")
        if new:  # refuse before a file is made
            agree_on_bits(f"{self.path}, table {self.table}", None, bits)
        try:
            return duckdb.connect(str(self.path), read_only=self._mode == "r", config=SAFE)
        except duckdb.Error as error:
            if "Could not set lock" in str(error):
                _check.refuse(
                    f"{self.path} is open in another process: DuckDB lets one process write to a "
                    "file, or several read it (mode='r')."
                )
            _check.refuse(
                f"{self.path} is truncated, damaged or not a DuckDB file: {first_line(error)}."
            )

    def _load(self, bits: int | None) -> None:
        place = f"{self.path}, table {self.table}"
        try:
            row = self._con.execute(
                "SELECT comment FROM duckdb_tables() "
                "WHERE lower(table_name) = ? AND schema_name = 'main'",
                [self.table.lower()],
            ).fetchone()
            note = (None, {}) if row is None else read_note(str(row[0] or ""), place)
            self.bits = agree_on_bits(place, note[0], bits)
            self._state = Snapshot(self.bits, facts=note[1])
            self._names = [f"w{i}" for i in range(-(-self.bits // 64))]
            if row is None:
                if self._mode == "r":
                    _check.refuse(f"{place} does not exist; mode='w' makes it.")
                self._create_table()
            self._read_rows(place)
        except self._failure as error:
            _check.refuse(f"{place} is truncated or damaged: {first_line(error)}.")

    def _create_table(self) -> None:
        listed = ", ".join(f"{name} UBIGINT NOT NULL" for name in self._names)
        self._con.execute(
            f"BEGIN; CREATE TABLE {self._quoted} (id BIGINT PRIMARY KEY, place BIGINT NOT NULL, "
            f"{listed}); {self._comment_sql(self._state)}; COMMIT"
        )

    def _comment_sql(self, state: Snapshot) -> str:
        note = write_note(self.bits, state.facts).replace("'", "''")
        return f"COMMENT ON TABLE {self._quoted} IS '{note}'"

    def _put_facts(self, state: Snapshot) -> None:
        check_writable(self.path, self._mode)
        try:
            self._con.execute(self._comment_sql(state))
        except self._failure as error:
            _check.refuse(f"DuckDB cannot write to {self.path}: {first_line(error)}.")
        self._state = state

    def _read_rows(self, place: str) -> None:
        """Read the whole table into memory, in order of insertion."""
        listed = ", ".join(["id", "place", *self._names])
        rows = self._con.execute(f"SELECT {listed} FROM {self._quoted} ORDER BY place").fetchnumpy()
        self._kind = "VARCHAR" if rows["id"].dtype == object else "BIGINT"
        self._next = int(rows["place"][-1]) + 1 if len(rows["place"]) else 0
        codes = np.stack([rows[name] for name in self._names])
        if codes.dtype != np.uint64 or (codes[-1] & mask_padding(self.bits)).any():
            _check.refuse(f"{place} is damaged: some rows are not codes of {self.bits} bits.")
        segments = (Segment(Words(codes, self.bits), Column(rows["id"])),) if len(codes[0]) else ()
        self._state = replace(self._state, segments=segments)

    def snapshot(self) -> Snapshot:
        if self._closed:
            _check.refuse(f"The index {self.path} is closed.")
        return self._state

    def add(
        self, codes: Codes, ids: Any = None, *, columns: Mapping[str, Any] | None = None
    ) -> Self:
        """Store ``codes`` under ``ids``, with ``columns`` (n,) of numbers, bools or strings.

        For an id that is already stored, the code and the given columns are replaced.
        """
        with self._writing:
            codes = self._to_new_codes(codes)
            self._columns = {n: check_column(n, v, len(codes)) for n, v in (columns or {}).items()}
            try:
                return super().add(codes, ids)
            finally:
                self._columns = {}

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        check_writable(self.path, self._mode)
        rows: dict[str, np.ndarray] = {"id": ids.all()}
        if codes is not None:
            rows["place"] = np.arange(self._next, self._next + len(codes))
            rows |= dict(zip(self._names, words(codes).words, strict=True)) | dict(self._columns)
        try:
            self._con.register("rankbits_incoming", rows)
            self._con.begin()
            try:
                self._insert(rows) if verb == "add" else self._delete()
                self._con.commit()
            except BaseException:
                self._con.rollback()
                raise
            finally:
                self._con.unregister("rankbits_incoming")
        except self._failure as error:
            _check.refuse(
                f"DuckDB could not write to {self.path}: {first_line(error)}; nothing was changed."
            )
        if codes is not None:
            self._kind = "VARCHAR" if ids.strings else "BIGINT"
            self._next += len(codes)
        self._state = state

    def _insert(self, rows: dict[str, np.ndarray]) -> None:
        kind = "VARCHAR" if rows["id"].dtype == object else "BIGINT"
        if kind != self._kind:  # only an empty index changes the kind of its ids
            self._con.execute(
                f"CREATE TABLE rankbits_new AS SELECT CAST(id AS {kind}) AS id, * EXCLUDE (id) "
                f"FROM {self._quoted} LIMIT 0; DROP TABLE {self._quoted}; "
                f"ALTER TABLE rankbits_new RENAME TO {self._quoted}; "
                f"ALTER TABLE {self._quoted} ADD PRIMARY KEY (id); "
                f"{self._comment_sql(self._state)}"
            )
        for name, values in self._columns.items():
            sql = f'ALTER TABLE {self._quoted} ADD COLUMN IF NOT EXISTS "{name}"'
            self._con.execute(f"{sql} {choose_type(values)}")
        quoted = [f'"{name}"' for name in rows]
        listed, changed = ", ".join(quoted), ", ".join(f"{n} = excluded.{n}" for n in quoted[1:])
        self._con.execute(
            f"INSERT INTO {self._quoted} ({listed}) SELECT {listed} FROM rankbits_incoming "
            f"ON CONFLICT (id) DO UPDATE SET {changed}"
        )

    def _delete(self) -> None:
        self._con.execute(
            f"DELETE FROM {self._quoted} WHERE id IN (SELECT id FROM rankbits_incoming)"
        )

    def search(
        self, queries: Any, k: int, *, among: Any = None, where: str | None = None, **options: Any
    ) -> Results:
        """The k nearest ``among`` ids and ``where`` a condition holds; see ``Index.search``."""
        _check.cutoff(k)
        return super().search(queries, k, among=self._combine_filters(among, where), **options)

    def within(
        self, queries: Codes, radius: int, *, among: Any = None, where: str | None = None
    ) -> Results:
        """Everything at distance ``radius`` or less, filtered as in ``search``."""
        checks.check_radius(radius)
        return super().within(queries, radius, among=self._combine_filters(among, where))

    def _combine_filters(self, among: Any, where: str | None) -> Any:
        """``among``, less the ids that do not meet the condition ``where``."""
        if where is None:
            return among
        state, selected = self.snapshot(), self._select_ids(where)
        if among is None:
            return selected
        parsed = checks.parse_ids(among, "among, beside where,")
        allowed = set(checks.same_kind(parsed, state.strings, "among").tolist())
        return selected[[name in allowed for name in selected.tolist()]]

    def _select_ids(self, where: str) -> np.ndarray:
        sql = f"SELECT id FROM {self._quoted} WHERE ({where}\n)"
        cursor = self._con.cursor()
        try:
            if len(cursor.extract_statements(sql)) != 1:
                _check.refuse(f"where must be one condition of SQL; got {where!r}.")
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return checks.parse_ids(cursor.execute(sql).fetchnumpy()["id"], "where")
        except self._failure as error:
            _check.refuse(f"where must be a condition of SQL: {first_line(error)}.")
        finally:
            cursor.close()

    def scan(self, queries: Codes, k: int) -> Results:
        """The k nearest, searched by DuckDB in SQL: the distances of ``search``, ties by id."""
        laid_out, k = words(self._to_query_codes(queries)), _check.cutoff(k)
        distance = " + ".join(f"bit_count(xor({n}, ?::UBIGINT))" for n in self._names)
        sql = f"SELECT id, {distance} AS d FROM {self._quoted} ORDER BY d, id LIMIT {k}"
        cursor = self._con.cursor()
        answers = [cursor.execute(sql, q.tolist()).fetchnumpy() for q in laid_out.words.T]
        cursor.close()
        shape = (len(queries), -1) if len(queries) else (0, 0)
        ids, near = (np.array([a[n] for a in answers]).reshape(shape) for n in ("id", "d"))
        return Results(ids, near.astype(np.int32))

    def close(self) -> None:
        """Close the file; every write that returned is in it already."""
        with self._writing:
            if not self._closed:
                self._closed = True
                self._con.close()
                _open.discard(self._key)
