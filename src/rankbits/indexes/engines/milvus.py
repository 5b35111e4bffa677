"""Milvus: codes in a collection on a server, or in a milvus-lite file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbits import _check
from rankbits.indexes import checks
from rankbits.indexes.engines import collection, lite
from rankbits.indexes.engines.collection import MOST, read_ids, spell_ids
from rankbits.indexes.engines.notes import read_note, write_note
from rankbits.indexes.engines.opening import agree_on_bits, check_name, check_writable, first_line
from rankbits.indexes.engines.pending import Pending
from rankbits.indexes.engines.rows import order_codes
from rankbits.indexes.index import Index
from rankbits.types import Codes, Results

if TYPE_CHECKING:
    from typing import Self

ROWS = 10_000  # in one request: well below gRPC's limit of 64 MB at 1,024 bits
SECONDS = 60.0  # after which a request fails; by default the client retries for minutes
WHOLE = {"metric_type": "HAMMING", "params": {}}


class MilvusIndex(Index):
    """Codes in a Milvus collection: ``milvus:codes.db`` is a file (milvus-lite), ``milvus:http://…``
    a server. Exact: a flat index, read with strong consistency.

    Codes are padded with zero bits to whole bytes, which changes no distance. A query finds at most
    16,384; one that would find more is refused. Ties come in any order, and Milvus chooses which of
    the items tied at the k-th distance it returns. String ids are stored percent-encoded, because
    milvus-lite does not quote them.

    With a file, each ``add`` or ``remove`` is first noted beside it (``codes.db.pending``), because
    milvus-lite replaces a row by deleting it first. If the write is interrupted, opening the file
    again finishes it. One process has the file at a time.

    With a server, each 10,000 rows are one request, and the server decides what an interrupted
    request leaves behind. Any number of processes may write. They cannot agree on the next number,
    so ids that are not given are drawn at random from 63 bits. The first ``add`` makes the
    collection and fixes the kind of its ids and its facts.
    """

    most_found = MOST

    def __init__(
        self, place: str, bits: int | None = None, *, table: str = "codes", mode: str = "w"
    ) -> None:
        self.place, self.table = str(place), check_name("table", table)
        self._mode = _check.choice("mode", mode, ("r", "w"))
        self._file = None if "://" in self.place else Path(self.place)
        self._pending = None if self._file is None else Pending(self._file)
        self._lock, self._closed, self._exists, self._text = threading.RLock(), False, False, False
        if mode == "w" and self._file is not None and self._pending and not self._file.exists():
            agree_on_bits(f"{self.place}, collection {self.table}", None, bits)  # before it is made
            self._pending.forget()  # the note of a file that was deleted
        self._client = lite.connect(self.place, self._file, mode, SECONDS)
        from grpc import RpcError  # raised when a server answers too late
        from pymilvus import DataType, MilvusException

        self._string_type, self._failure = DataType.VARCHAR, (MilvusException, RpcError)
        try:
            self._open_collection(bits)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"MilvusIndex({self.count():,} rows of {self.bits} bits)"

    @contextmanager
    def _use_client(self, write: bool = False) -> Iterator[Any]:
        """The client, for one thread at a time; its errors become refusals."""
        with self._lock:
            if self._closed:
                _check.refuse(f"The index {self.place} is closed.")
            if write:
                check_writable(self.place, self._mode)
            try:
                yield self._client
            except self._failure as error:
                message = error.details() if hasattr(error, "details") else first_line(error)
                rest = "; opening it again finishes this write" if write and self._file else ""
                _check.refuse(f"Milvus refuses: {message}{rest}.")

    def _open_collection(self, bits: int | None) -> None:
        place = f"{self.place}, collection {self.table}"
        with self._use_client():
            stored_bits = self._read_collection()
            self.bits = agree_on_bits(place, stored_bits, bits)
            if stored_bits is None and self._mode == "r":
                _check.refuse(f"{place} does not exist; mode='w' makes it.")
            if stored_bits is None and self._file is not None:
                self._make_collection(strings=False)
            self._finish_pending()

    def _read_collection(self) -> int | None:
        """Read the facts and the kind of ids of the collection; returns the bits of its codes, None
        where it does not exist. On a server another writer may have made it since."""
        self._exists = self._client.has_collection(self.table, timeout=SECONDS)
        if not self._exists:
            return None
        about = self._client.describe_collection(self.table, timeout=SECONDS)
        bits, self._facts = read_note(about["description"], f"{self.place}, {self.table}")
        self._text = about["fields"][0]["type"] == self._string_type
        self._client.load_collection(self.table, timeout=SECONDS)
        return bits

    def _make_collection(self, strings: bool) -> None:
        """Make the collection for ids of this kind; in a file it replaces an empty one."""
        client, note = self._client, write_note(self.bits, self._facts)
        if self._file is not None:
            client.drop_collection(self.table, timeout=SECONDS)
        wanted = (self.bits, dict(self._facts), strings)
        try:
            collection.create_collection(client, self.table, self.bits, note, strings, SECONDS)
        except self._failure:
            if self._file is not None or not client.has_collection(self.table, timeout=SECONDS):
                raise  # if it exists now, another writer was quicker
        if (self._read_collection(), dict(self._facts), self._text) != wanted:
            _check.refuse(f"Another writer has just made the collection {self.table}: try again.")

    def remember(self, facts: Mapping[str, str]) -> None:
        """Replace the facts by these. A file takes them while it has no codes, a server before the
        first ``add``, which makes the collection."""
        facts = checks.check_facts(facts)
        with self._use_client(write=True):
            if self._file is None:
                self._read_collection()
            if facts == self._facts:
                return
            if self._exists and (self._file is None or self.count()):
                _check.refuse("Milvus takes facts of an empty collection only; this one has codes.")
            self._facts = facts
            if self._file is not None:
                self._make_collection(self._text)

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Store ``codes`` under ``ids``; the code of an id that is already stored is replaced."""
        shared = self._file is None
        with self._use_client(write=True):
            if shared:  # another writer may have made the collection
                self._read_collection()
            codes = self._to_new_codes(codes)
            new_ids = None if ids is None else checks.parse_distinct_ids(ids, len(codes))
            if not len(codes):
                return self
            has_kind = self._exists if shared else bool(self.count())
            if new_ids is None:
                if has_kind and self._text:
                    checks.refuse_missing_ids()
                new_ids = collection.draw_ids(len(codes))
                if not shared:
                    largest = collection.find_largest(self._count) if has_kind else None
                    new_ids = checks.number_rows(largest, len(codes))
            if has_kind:
                checks.same_kind(new_ids, self._text)
            if new_ids.dtype != object and new_ids.min() < -checks.LARGEST:
                _check.refuse(f"Milvus takes no id below {-checks.LARGEST}; got {new_ids.min()}.")
            self._do_with_note("add", spell_ids(new_ids), codes.packed)
        return self

    def _do_with_note(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        """Do a write; for a file, note it first, so that the next to open can finish it."""
        if self._pending is None:
            return self._apply(verb, keys, packed)
        self._pending.write(verb, self.table, keys, packed)
        try:
            self._apply(verb, keys, packed)
        except BaseException:
            self.close()  # the next to open finishes the write from the note
            raise
        return self._pending.forget()

    def _finish_pending(self) -> None:
        """Finish the write of a killed process; doing it twice has the same result as once."""
        if self._pending is None or not (note := self._pending.read()):
            return
        table, verb, keys, packed = note
        if table != self.table:
            _check.refuse(f"{self._file} has an unfinished write: open its table {table} first.")
        self._apply(verb, keys, packed)
        self._pending.forget()

    def _apply(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        for s in range(0, len(keys), ROWS):
            part = keys[s : s + ROWS]
            if packed is None:
                self._client.delete(self.table, ids=part, timeout=SECONDS)
                continue
            strings = isinstance(part[0], str)
            if not self._exists or strings != self._text:  # the index is empty
                self._make_collection(strings)
            collection.put_codes(self._client, self.table, part, packed[s : s + ROWS], SECONDS)

    def remove(self, ids: Any) -> int:
        """Remove ``ids``; returns how many of them were stored."""
        parsed = checks.parse_ids(ids)
        with self._use_client(write=True):
            before = self.count()
            if not before or not len(parsed):
                return 0
            keys = spell_ids(checks.same_kind(parsed, self._text))
            self._do_with_note("remove", keys, None)
            return before - self.count()

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        with self._use_client():
            which, rows = self._make_filter(among)
            wanted = min(k, rows)
            if wanted > MOST:
                _check.refuse(f"Milvus finds at most {MOST:,} for a query; got k={k:,}.")
            ids = np.empty((len(queries), wanted), object if wanted and self._text else np.int64)
            distances = np.empty((len(queries), wanted), np.int32)
            if wanted:
                for i, hits in enumerate(self._find(queries, wanted, rows, which, WHOLE)):
                    ids[i], distances[i] = read_ids(hits, self._text), [h["distance"] for h in hits]
        return Results(ids, distances)

    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at distance ``radius`` or less, by distance."""
        queries = self._to_query_codes(queries)
        radius = min(checks.check_radius(radius), self.bits)
        how = {"metric_type": "HAMMING", "params": {"radius": radius + 1}}  # excluded in Milvus
        ids: list = []
        sizes, distances = [0], []
        with self._use_client():
            which, rows = self._make_filter(among)
            nothing: list = [()] * len(queries)
            most = min(rows, MOST)
            for hits in self._find(queries, most, rows, which, how) if rows else nothing:
                if len(hits) == MOST < rows:
                    _check.refuse(f"Milvus finds at most {MOST:,} for a query; lower the radius.")
                ids += read_ids(hits, self._text)
                distances += [hit["distance"] for hit in hits]
                sizes.append(len(hits))
        names = np.empty(len(ids), object if ids and self._text else np.int64)
        names[:] = ids
        return Results(names, np.array(distances, np.int32), np.cumsum(sizes))

    def codes(self, ids: Any) -> Codes:
        """The stored codes of ``ids``, in the same order."""
        wanted = checks.parse_ids(ids)
        packed: dict[Any, np.ndarray] = {}
        with self._use_client():
            keys = spell_ids(checks.same_kind(wanted, self._text)) if self.count() else []
            for s in range(0, len(keys), ROWS):
                part = keys[s : s + ROWS]
                packed |= collection.fetch_codes(self._client, self.table, part, SECONDS)
        return order_codes(wanted, packed, self.bits, self.fingerprint)

    def _find(self, queries: Codes, limit: int, rows: int, which: Any, how: dict) -> Iterator[list]:
        arguments = queries.packed, limit, rows, which, how
        return collection.find(self._client, self.table, *arguments, SECONDS)

    def _make_filter(self, among: Any) -> tuple[str, int]:
        """The condition for ``among`` in Milvus' language, and how many rows meet it."""
        if among is None:
            return "", self.count()
        parsed = checks.parse_ids(among, "among")
        if not len(parsed) or not self.count():
            return "", 0
        keys = spell_ids(checks.same_kind(parsed, self._text, "among"))
        which = f"id in {json.dumps(keys)}"
        return which, self._count(which)

    @property
    def has_string_ids(self) -> bool | None:
        return self._text if self.count() else None

    def _count(self, which: str) -> int:
        if not self._exists and self._read_collection() is None:
            return 0
        (answer,) = self._client.query(
            self.table, filter=which, output_fields=["count(*)"], timeout=SECONDS
        )
        return int(answer["count(*)"])

    def count(self) -> int:
        """How many codes are stored."""
        with self._use_client():
            return self._count("")

    def close(self) -> None:
        """Close the file or the connection; no write that returned is lost."""
        with self._lock:
            if not self._closed:
                self._closed = True
                lite.release(self._client, self._file)
