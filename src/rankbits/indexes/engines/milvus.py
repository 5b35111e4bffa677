"""Milvus: codes in a collection of a server, or of milvus-lite in one file."""

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
from rankbits.indexes.engines.rows import codes_by_id
from rankbits.indexes.index import Index
from rankbits.types import Codes, Results

if TYPE_CHECKING:
    from typing import Self

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
    deleting it first. One process has the file.

    On a server each 10,000 rows are one request, and what a request cut short leaves behind is up
    to the server. Any number may write: ids that are not given are drawn at random from 63 bits,
    for writers cannot agree on the next number; the first ``add`` makes the collection, and the
    kind of its ids and its facts stay as that one made them.
    """

    most_found = MOST

    def __init__(
        self, place: str, bits: int | None = None, *, table: str = "codes", mode: str = "w"
    ) -> None:
        self.place, self.table = str(place), check_name("table", table)
        self._mode = _check.choice("mode", mode, ("r", "w"))
        self._file = None if "://" in self.place else Path(self.place)
        self._pending = None if self._file is None else Pending(self._file)
        self._one, self._closed, self._exists, self._text = threading.RLock(), False, False, False
        if mode == "w" and self._file is not None and self._pending and not self._file.exists():
            agree_on_bits(f"{self.place}, collection {self.table}", None, bits)  # before it is made
            self._pending.forget()  # of a file that somebody has deleted
        self._client = lite.connect(self.place, self._file, mode, SECONDS)
        from grpc import RpcError  # what the client says of a server that answers too late
        from pymilvus import DataType, MilvusException

        self._string_type, self._failure = DataType.VARCHAR, (MilvusException, RpcError)
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
            if write:
                check_writable(self.place, self._mode)
            try:
                yield self._client
            except self._failure as error:
                rest = "; what was begun is finished when it is opened again" if write else ""
                said = error.details() if hasattr(error, "details") else first_line(error)
                _check.refuse(f"Milvus refuses: {said}{rest if self._file else ''}.")

    def _begin(self, bits: int | None) -> None:
        place = f"{self.place}, collection {self.table}"
        with self._asking():
            held = self._look()
            self.bits = agree_on_bits(place, held, bits)
            if held is None and self._mode == "r":
                _check.refuse(f"{place} does not exist; mode='w' makes it.")
            if held is None and self._file is not None:
                self._make(strings=False)
            self._redo()

    def _look(self) -> int | None:
        """Read what the collection says of itself, and the bits of its codes; None where there is
        none. On a server another writer may have made it since."""
        self._exists = self._client.has_collection(self.table, timeout=SECONDS)
        if not self._exists:
            return None
        about = self._client.describe_collection(self.table, timeout=SECONDS)
        bits, self._facts = read_note(about["description"], f"{self.place}, {self.table}")
        self._text = about["fields"][0]["type"] == self._string_type
        self._client.load_collection(self.table, timeout=SECONDS)
        return bits

    def _make(self, strings: bool) -> None:
        """A collection of the wanted kind of ids; in a file, in place of an empty one."""
        client, note = self._client, write_note(self.bits, self._facts)
        if self._file is not None:
            client.drop_collection(self.table, timeout=SECONDS)
        wanted = (self.bits, dict(self._facts), strings)
        try:
            collection.create_collection(client, self.table, self.bits, note, strings, SECONDS)
        except self._failure:
            if self._file is not None or not client.has_collection(self.table, timeout=SECONDS):
                raise  # where it is there now, another writer was quicker
        if (self._look(), dict(self._facts), self._text) != wanted:
            _check.refuse(f"Another writer has just made the collection {self.table}: try again.")

    def remember(self, facts: Mapping[str, str]) -> None:
        """Keep these ``facts`` with the collection; Milvus takes them only while it is empty, and a
        server only before it has the collection, which the first ``add`` makes."""
        kept = checks.check_facts(facts)
        with self._asking(write=True):
            if self._file is None:
                self._look()
            if kept == self._facts:
                return
            if self._exists and (self._file is None or self.count()):
                _check.refuse("Milvus keeps facts of an empty collection only; this one has codes.")
            self._facts = kept
            if self._file is not None:
                self._make(self._text)

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Remember ``codes`` under ``ids``; an id already there is replaced."""
        shared = self._file is None
        with self._asking(write=True):
            if shared:  # other writers may have made and filled it
                self._look()
            codes = self._codes_to_add(codes)
            given = None if ids is None else checks.new_ids(ids, codes)
            if not len(codes):
                return self
            held = self._exists if shared else bool(self.count())
            if given is None:
                if held and self._text:
                    checks.needs_ids()
                given = collection.draw_ids(len(codes))
                if not shared:
                    largest = collection.find_largest(self._count) if held else None
                    given = checks.numbered(largest, len(codes))
            if held:
                checks.same_kind(given, self._text)
            if given.dtype != object and given.min() < -checks.LARGEST:
                _check.refuse(f"Milvus takes no id below {-checks.LARGEST}; got {given.min()}.")
            self._do_noted("add", spell_ids(given), codes.packed)
        return self

    def _do_noted(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        """Do it; in a file, say so beforehand, so that the next to open can finish it."""
        if self._pending is None:
            return self._do(verb, keys, packed)
        self._pending.write(verb, self.table, keys, packed)
        try:
            self._do(verb, keys, packed)
        except BaseException:
            self.close()  # its process ends or has ended, and the next to open begins with the note
            raise
        return self._pending.forget()

    def _redo(self) -> None:
        """Finish what a killed process had begun; doing it twice is doing it once."""
        if self._pending is None or not (found := self._pending.read()):
            return
        table, verb, keys, packed = found
        if table != self.table:
            _check.refuse(f"{self._file} has an unfinished write: open its table {table} first.")
        self._do(verb, keys, packed)
        self._pending.forget()

    def _do(self, verb: str, keys: list, packed: np.ndarray | None) -> None:
        for s in range(0, len(keys), ROWS):
            some = keys[s : s + ROWS]
            if packed is None:
                self._client.delete(self.table, ids=some, timeout=SECONDS)
                continue
            strings = isinstance(some[0], str)
            if not self._exists or strings != self._text:  # only an empty index changes its kind
                self._make(strings)
            collection.put_codes(self._client, self.table, some, packed[s : s + ROWS], SECONDS)

    def remove(self, ids: Any) -> int:
        """Forget ``ids``; how many of them were there."""
        given = checks.parse_ids(ids)
        with self._asking(write=True):
            before = self.count()
            if not before or not len(given):
                return 0
            keys = spell_ids(checks.same_kind(given, self._text))
            self._do_noted("remove", keys, None)
            return before - self.count()

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        with self._asking():
            which = self._filter(among)
            held = self._count(which) if which is not None else 0
            wanted = min(k, held)
            if wanted > MOST:
                _check.refuse(f"Milvus finds at most {MOST:,} for a query; got k={k:,}.")
            ids = np.empty((len(queries), wanted), object if wanted and self._text else np.int64)
            distances = np.empty((len(queries), wanted), np.int32)
            if wanted:
                for i, hits in enumerate(self._find(queries, wanted, held, which, WHOLE)):
                    ids[i], distances[i] = read_ids(hits, self._text), [h["distance"] for h in hits]
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
            nothing: list = [()] * len(queries)
            most = min(held, MOST)
            for hits in self._find(queries, most, held, which, how) if held else nothing:
                if len(hits) == MOST < held:
                    _check.refuse(f"Milvus finds at most {MOST:,} for a query; lessen the radius.")
                ids += read_ids(hits, self._text)
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
            keys = spell_ids(checks.same_kind(wanted, self._text)) if self.count() else []
            for s in range(0, len(keys), ROWS):
                some = keys[s : s + ROWS]
                packed |= collection.fetch_codes(self._client, self.table, some, SECONDS)
        return codes_by_id(wanted, packed, self.bits, self.fingerprint)

    def _find(self, queries: Codes, limit: int, held: int, which: Any, how: dict) -> Iterator[list]:
        asked = queries.packed, limit, held, which, how
        return collection.find(self._client, self.table, *asked, SECONDS)

    def _filter(self, among: Any) -> str | None:
        """A condition of Milvus; None where nothing can be found."""
        if among is None:
            return ""
        given = checks.parse_ids(among, "among")
        if not len(given) or not self.count():
            return None
        return f"id in {json.dumps(spell_ids(checks.same_kind(given, self._text, 'among')))}"

    @property
    def has_string_ids(self) -> bool | None:
        return self._text if self.count() else None

    def _count(self, which: str) -> int:
        if not self._exists and self._look() is None:
            return 0
        found = self._client.query(
            self.table, filter=which, output_fields=["count(*)"], timeout=SECONDS
        )
        return int(found[0]["count(*)"])

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
