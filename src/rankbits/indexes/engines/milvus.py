"""Milvus: codes in a collection of a server, or of milvus-lite in one file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from rankbits import _check
from rankbits.indexes import checks
from rankbits.indexes.engines import lite
from rankbits.indexes.engines.notes import read_note, write_note
from rankbits.indexes.engines.opening import agreed_bits, first_line, plain_name
from rankbits.indexes.engines.pending import Pending
from rankbits.indexes.engines.rows import codes_by_id
from rankbits.indexes.file import failing
from rankbits.indexes.index import Index
from rankbits.types import Codes, Results

if TYPE_CHECKING:
    from typing import Self

MOST = 16_384  # results of one query, by Milvus' own limit
ROWS = 10_000  # of one request, well below gRPC's limit of 64 MB at 1,024 bits
SECONDS = 60.0  # after which a request counts as lost; without it the client asks for minutes
WHOLE = {"metric_type": "HAMMING", "params": {}}


class MilvusIndex(Index):
    """Codes in a Milvus collection: ``milvus:codes.db`` is a file (milvus-lite), ``milvus:http://…``
    a server. Exact: a flat index, read with strong consistency.

    Codes are padded with zero bits to whole bytes, which changes no distance. A query finds at most
    16,384; one that would find more is refused. Ties come in any order, and which of the items tied
    at the k-th distance are returned is Milvus' choice. String ids are kept percent-encoded, for
    milvus-lite does not quote them.

    In a file, an ``add`` or ``remove`` is first written down beside it (``codes.db.pending``) and
    done again by the next ``open`` where it was cut short, since milvus-lite replaces a row by
    deleting it first. One process has the file. On a server each 10,000 rows are one request, and
    what a request cut short leaves behind is up to the server.
    """

    most_found = MOST

    def __init__(
        self, place: str, bits: int | None = None, *, table: str = "codes", mode: str = "w"
    ) -> None:
        self.place, self.table = str(place), plain_name("table", table)
        self._mode = _check.choice("mode", mode, ("r", "w"))
        self._file = None if "://" in self.place else Path(self.place)
        self._pending = None if self._file is None else Pending(self._file)
        self._one, self._closed = threading.RLock(), False
        if mode == "w" and self._file is not None and not self._file.exists():
            agreed_bits(f"{self.place}, collection {self.table}", None, bits)  # before it is made
        self._client = lite.connected(self.place, self._file, mode, SECONDS)
        from pymilvus import DataType, MilvusException

        self._types, self._failure = DataType, MilvusException
        try:
            self._begin(bits)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"MilvusIndex({self.count():,} rows of {self.bits} bits)"

    @contextmanager
    def _asking(self, write: bool = False) -> Iterator[Any]:
        """The client, one request after another; Milvus' refusals become ours."""
        with self._one:
            if self._closed:
                _check.refuse(f"The index {self.place} is closed.")
            if write and self._mode == "r":
                _check.refuse(f"{self.place} is open for reading: mode='w' writes to it.")
            try:
                yield self._client
            except self._failure as error:
                rest = "; what was begun is finished when it is opened again" if write else ""
                _check.refuse(f"Milvus refuses: {first_line(error)}{rest if self._file else ''}.")

    def _begin(self, bits: int | None) -> None:
        place = f"{self.place}, collection {self.table}"
        with self._asking() as client:
            found = None
            if client.has_collection(self.table, timeout=SECONDS):
                facts = client.describe_collection(self.table, timeout=SECONDS)
                found, self._facts = read_note(facts["description"], place)
                self._text = facts["fields"][0]["type"] == self._types.VARCHAR
            self.bits = agreed_bits(place, found, bits)
            if found is None:
                if self._mode == "r":
                    _check.refuse(f"{place} does not exist; mode='w' makes it.")
                self._make(strings=False)
            client.load_collection(self.table, timeout=SECONDS)
            self._redo()

    def _make(self, strings: bool) -> None:
        """A collection of the wanted kind of ids, in place of an empty one."""
        client, kinds = self._client, self._types
        client.drop_collection(self.table, timeout=SECONDS)
        schema = client.create_schema(
            auto_id=False,
            enable_dynamic_field=False,
            description=write_note(self.bits, self._facts),
        )
        if strings:
            schema.add_field("id", kinds.VARCHAR, is_primary=True, max_length=3 * checks.LONGEST)
        else:
            schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("code", kinds.BINARY_VECTOR, dim=-(-self.bits // 8) * 8)
        how = client.prepare_index_params()
        how.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        client.create_collection(
            self.table, schema=schema, index_params=how, consistency_level="Strong", timeout=SECONDS
        )
        self._text = strings

    def remember(self, facts: Mapping[str, str]) -> None:
        """Keep these ``facts`` with the collection; Milvus takes them only while it is empty."""
        kept = checks.check_facts(facts)
        with self._asking(write=True) as client:
            if kept == self._facts:
                return
            if self.count():
                _check.refuse("Milvus keeps facts of an empty collection only; this one has codes.")
            self._facts = kept
            self._make(self._text)
            client.load_collection(self.table, timeout=SECONDS)

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Remember ``codes`` under ``ids``; an id already there is replaced."""
        codes = self._codes_to_add(codes)
        given = None if ids is None else checks.new_ids(ids, codes)
        if not len(codes):
            return self
        with self._asking(write=True):
            held = self.count()
            if given is None:
                if held and self._text:
                    checks.needs_ids()
                given = checks.numbered(self._largest() if held else None, len(codes))
            if held:
                checks.same_kind(given, self._text)
            if given.dtype != object and given.min() < -checks.LARGEST:
                _check.refuse(f"Milvus takes no id below {-checks.LARGEST}; got {given.min()}.")
            self._doing("add", _keys(given), codes.packed)
        return self

    def _largest(self) -> int:
        """The largest id, by halving: Milvus has no max()."""
        low, high = -checks.LARGEST, checks.LARGEST
        while low < high:
            middle = low + (high - low) // 2
            if self._count(f"id > {middle}"):
                low = middle + 1
            else:
                high = middle
        return low

    def _doing(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        """Do it; in a file, say so beforehand, so that the next to open can finish it."""
        if self._pending is None:
            self._do(verb, keys, packed)
            return
        try:
            self._pending.write(verb, self.table, keys, packed)
        except OSError as error:
            failing(self.place, error)
        try:
            self._do(verb, keys, packed)
        except BaseException:
            self.close()  # its process ends or has ended, and the next to open begins with the note
            raise
        self._pending.done()

    def _redo(self) -> None:
        """Finish what a killed process had begun; doing it twice is doing it once."""
        if self._pending is None or not (found := self._pending.read()):
            return
        table, verb, keys, packed = found
        if table != self.table:
            _check.refuse(f"{self._file} has an unfinished write: open its table {table} first.")
        self._do(verb, keys, packed)
        self._pending.done()

    def _do(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        for s in range(0, len(keys), ROWS):
            some = keys[s : s + ROWS]
            if packed is None:
                self._client.delete(self.table, ids=some, timeout=SECONDS)
                continue
            if isinstance(some[0], str) != self._text:  # only an empty index changes its kind
                self._make(strings=not self._text)
                self._client.load_collection(self.table, timeout=SECONDS)
            rows = [
                {"id": key, "code": code.tobytes()}
                for key, code in zip(some, packed[s : s + ROWS], strict=True)
            ]
            self._client.upsert(self.table, rows, timeout=SECONDS)

    def remove(self, ids: Any) -> int:
        """Forget ``ids``; how many of them were there."""
        given = checks.parse_ids(ids)
        with self._asking(write=True):
            before = self.count()
            if not before or not len(given):
                return 0
            keys = _keys(checks.same_kind(given, self._text))
            self._doing("remove", keys, None)
            return before - self.count()

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        with self._asking():
            which = self._filter(among)
            wanted = min(k, self._count(which) if which is not None else 0)
            if wanted > MOST:
                _check.refuse(f"Milvus finds at most {MOST:,} for a query; got k={k:,}.")
            ids = np.empty((len(queries), wanted), object if wanted and self._text else np.int64)
            distances = np.empty((len(queries), wanted), np.int32)
            if wanted:
                for i, hits in enumerate(self._hits(queries, wanted, which, WHOLE)):
                    ids[i], distances[i] = _ids(hits, self._text), [h["distance"] for h in hits]
        return Results(ids, distances)

    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at distance ``radius`` or less, by distance."""
        queries = self._query_codes(queries)
        radius = min(checks.check_radius(radius), self.bits)
        how = {"metric_type": "HAMMING", "params": {"radius": radius + 1}}  # Milvus' is exclusive
        ids: list = []
        sizes, distances = [0], []
        with self._asking():
            which = self._filter(among)
            held = self._count(which) if which is not None else 0
            found = (
                self._hits(queries, min(held, MOST), which, how) if held else [()] * len(queries)
            )
            for hits in found:
                if len(hits) == MOST < held:
                    _check.refuse(f"Milvus finds at most {MOST:,} for a query; lessen the radius.")
                ids += _ids(hits, self._text)
                distances += [hit["distance"] for hit in hits]
                sizes.append(len(hits))
        names = np.empty(len(ids), object if ids and self._text else np.int64)
        names[:] = ids
        return Results(names, np.array(distances, np.int32), np.cumsum(sizes))

    def codes(self, ids: Any) -> Codes:
        """The stored codes of ``ids``, in their order."""
        wanted = checks.parse_ids(ids)
        packed: dict[Any, np.ndarray] = {}
        with self._asking():
            keys = _keys(checks.same_kind(wanted, self._text)) if self.count() else []
            for s in range(0, len(keys), ROWS):
                rows = self._client.get(
                    self.table, keys[s : s + ROWS], output_fields=["code"], timeout=SECONDS
                )
                for row, name in zip(rows, _ids(rows, self._text), strict=True):
                    packed[name] = np.frombuffer(b"".join(row["code"]), np.uint8)
        return codes_by_id(wanted, packed, self.bits, self.fingerprint)

    def _hits(self, queries: Codes, limit: int, which: Any, how: dict) -> Iterator[list]:
        step = max(1, MOST * 8 // limit)
        for s in range(0, len(queries), step):
            asked = [code.tobytes() for code in queries.packed[s : s + step]]
            yield from self._client.search(
                self.table, asked, filter=which, limit=limit, search_params=how, timeout=SECONDS
            )

    def _filter(self, among: Any) -> str | None:
        """A condition of Milvus; None where nothing can be found."""
        if among is None:
            return ""
        given = checks.parse_ids(among, "among")
        if not len(given) or not self.count():
            return None
        return f"id in {json.dumps(_keys(checks.same_kind(given, self._text, 'among')))}"

    def _count(self, which: str) -> int:
        found = self._client.query(
            self.table, filter=which, output_fields=["count(*)"], timeout=SECONDS
        )
        return int(found[0]["count(*)"])

    @property
    def has_string_ids(self) -> bool | None:
        """Whether ids are strings; None while the index is empty and may become either."""
        return self._text if self.count() else None

    def count(self) -> int:
        """How many codes are remembered."""
        with self._asking():
            return self._count("")

    def close(self) -> None:
        """Let go of the server or the file; nothing acknowledged is lost."""
        with self._one:
            if not self._closed:
                self._closed = True
                lite.release(self._client, self._file)


def _keys(ids: np.ndarray) -> list:
    """Ids as Milvus keeps them: strings without a character that means something in SQL."""
    return [quote(x, safe="") for x in ids.tolist()] if ids.dtype == object else ids.tolist()


def _ids(hits: Any, strings: bool) -> list:
    return [unquote(hit["id"]) if strings else hit["id"] for hit in hits]
