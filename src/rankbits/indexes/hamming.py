"""HammingIndex: exact search of codes in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbits import _check
from rankbits.indexes import checks, scan
from rankbits.indexes.ids import Column
from rankbits.indexes.index import Index
from rankbits.indexes.segments import MOST_BITS, Segment, Snapshot
from rankbits.indexes.shortlist import search_questions
from rankbits.kernels import LaidOut, Words, words
from rankbits.types import Codes, Questions, Results

if TYPE_CHECKING:
    from typing import Self

    from rankbits.indexes.file import Source


class HammingIndex(Index):
    """Codes in memory, searched exactly: by distance, ties by order of insertion.

    An id that is added again counts as inserted anew. Searches from any number of threads may run
    beside one writer, and see the index as it was when they began. ``among`` is ids, or a mask (n,)
    over the rows in order of insertion, as ``ids`` lists them. Once asked often, an index makes
    tables of at most 1 GiB (``build_tables``), which find what is near without a scan.
    ``device="cuda"`` keeps a copy of the codes on a GPU, where ``search`` answers large batches
    faster; what it finds is the same.

    >>> from rankbits import pack
    >>> codes = pack([[1, 1, 1], [-1, 1, 1], [-1, -1, -1]])
    >>> index = HammingIndex(bits=3).add(codes, ids=[10, 20, 30])
    >>> found = index.search(pack([[1, 1, 1]]), k=2)
    >>> found.ids, found.distances
    (array([[10, 20]]), array([[0, 1]], dtype=int32))
    >>> index.search(pack([[1, 1, 1]]), k=2, among=[20, 30]).ids
    array([[20, 30]])
    >>> index.remove([10, 99]), len(index)
    (1, 2)
    """

    device: str | None = None
    _source: Source | None = None  # the file of codes that are mapped

    def __init__(self, bits: int, device: str | None = None) -> None:
        self.device = device
        self.bits = _check.whole("bits", bits, 1)
        if self.bits > MOST_BITS:
            _check.refuse(f"bits must be at most {MOST_BITS:,}; got {self.bits:,}.")
        self._state = Snapshot(self.bits)
        self._writing = threading.RLock()

    def __repr__(self) -> str:
        rows = self.count()
        return f"{type(self).__name__}({rows:,} row{'' if rows == 1 else 's'} of {self.bits} bits)"

    def _now(self) -> Snapshot:
        """What the index holds at this moment; it never changes."""
        if self._source is not None:
            self._source.check()
        return self._state

    def snapshot(self) -> Snapshot:
        """What the index holds at this moment; it never changes, whatever is written later."""
        return self._now()

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        """Make ``state`` the present one. A durable index first writes down what was done."""
        self._state = state

    @property
    def facts(self) -> Mapping[str, str]:
        return self._now().facts

    def remember(self, facts: Mapping[str, str]) -> None:
        """Keep these ``facts`` in place of those before."""
        with self._writing:
            self._describe(replace(self._now(), facts=checks.check_facts(facts)))

    def _describe(self, state: Snapshot) -> None:
        """Make ``state``, whose facts are new, the present one. A durable index writes them down
        first."""
        self._state = state

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Remember ``codes`` under ``ids`` (n,), whole numbers or strings; returns self.

        An id already there is replaced. None: numbered on from the largest that is there.
        """
        codes = self._codes_to_add(codes)
        given = None if ids is None else checks.new_ids(ids, codes)
        if not len(codes):
            return self
        with self._writing:
            state = self._now()
            if given is not None:
                if state.strings is not None:
                    checks.same_kind(given, state.strings)
                column, base = Column(given.copy()), state.without(given)
            elif state.strings:
                checks.needs_ids()
            else:
                column, base = Column(checks.numbered(state.largest(), len(codes))), state
            segment = Segment(Words(_own(codes), self.bits), column)
            self._put(base.appended(segment), "add", column, codes)
        return self

    def remove(self, ids: Any) -> int:
        """Forget ``ids``; how many of them were there."""
        given = checks.parse_ids(ids)
        with self._writing:
            state = self._now()
            if state.strings is not None:
                checks.same_kind(given, state.strings)
            unique = _unique(given)
            left = state.without(unique)
            if left is state:
                return 0
            self._put(left, "remove", Column(unique), None)
            return state.count - left.count

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        return self._scan(self._now(), queries, k, among)

    def _search_questions(
        self,
        questions: Questions,
        k: int,
        among: Any,
        precision: str,
        shortlist: int | None,
        coarse: int | None,
    ) -> Results:
        state = self._now()

        def find(queries: Codes | LaidOut, count: int) -> Results:
            return self._scan(state, queries, count, among)

        lengths_of = state.inverse_lengths  # the scan makes them, and the order uses them again
        return search_questions(
            questions, k, find, state.codes, precision, shortlist, coarse, lengths_of
        )

    def _scan(self, state: Snapshot, queries: Codes | LaidOut, k: int, among: Any) -> Results:
        allowed = self._candidates(state, among, len(queries))
        return scan.topk(state, queries, k, allowed, self.device)

    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at distance ``radius`` or less, flat with ``offsets``; the same order."""
        queries = self._query_codes(queries)
        radius = checks.check_radius(radius)
        state = self._now()
        return scan.within(state, queries, radius, self._candidates(state, among, 1))

    def _candidates(self, state: Snapshot, among: Any, queries: int) -> list:
        if among is None:
            return scan.candidates(state, None, None, queries)
        mask = _mask(among)
        if mask is not None:
            if mask.shape != (state.count,):
                _check.refuse(
                    f"among as a mask must have shape ({state.count},), one for each row in order "
                    f"of insertion; got {mask.shape}."
                )
            return scan.candidates(state, mask, None, queries)
        ids = checks.parse_ids(among, "among")
        if state.strings is not None:
            checks.same_kind(ids, state.strings, "among")
        return scan.candidates(state, None, ids, queries)

    def build_tables(self) -> int:
        """Make now, whatever their size, the tables by which codes are found without a scan of all
        of them; the bytes of memory they take.

        A search counts what looking up costs and scans where that is cheaper: it finds the same.
        Of codes of 64 bits tables take 36 to 50 bytes a code, of 256 bits about 90.
        """
        return sum(segment.tables.build() for segment in self._now().segments)

    def count(self) -> int:
        """How many codes are remembered."""
        return self._now().count

    @property
    def has_string_ids(self) -> bool | None:
        return self._now().strings

    @property
    def ids(self) -> np.ndarray:
        """All ids, in order of insertion."""
        return self._now().ids().copy()

    def __contains__(self, name: Any) -> bool:
        wanted = checks.parse_ids(name)
        return len(wanted) == 1 and any(len(rows) for rows in self._now().find(wanted))

    def codes(self, ids: Any = None) -> Codes:
        """The stored codes of ``ids``, in their order; None: all, in order of insertion."""
        return self._now().codes(None if ids is None else checks.parse_ids(ids))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one checksummed file, whole or not at all; ``open`` reads it back."""
        from rankbits.indexes.file import save

        save(path, self._now())

    @staticmethod
    def open(path: str | os.PathLike[str], *, verify: bool = True) -> HammingIndex:
        """Read what ``save`` or a ``FileIndex`` wrote; codes of more than 256 MiB stay in the file,
        mapped.

        What is added or removed later is in memory only. ``verify=False`` maps any file and does
        not compare the checksum of the codes, so that opening costs the same for any size.
        """
        from rankbits.indexes.journal import read_index

        contents = read_index(path, verify=verify)
        index = HammingIndex(contents.state.bits)
        index._state, index._source = contents.state, contents.source
        return index


def _own(codes: Codes) -> np.ndarray:
    """Words that nobody else can write to: at 64 bits the kernels' layout is the caller's array."""
    found = words(codes).words
    return found.copy() if np.shares_memory(found, codes.packed) else found


def _mask(among: Any) -> np.ndarray | None:
    if hasattr(among, "detach"):
        among = among.detach().cpu().numpy()
    if isinstance(among, (list, tuple)) and among and all(isinstance(x, bool) for x in among):
        among = np.array(among)
    return among if isinstance(among, np.ndarray) and among.dtype == bool else None


def _unique(ids: np.ndarray) -> np.ndarray:
    if ids.dtype != object:
        return np.unique(ids)
    found = np.empty(len(set(ids.tolist())), object)
    found[:] = list(dict.fromkeys(ids.tolist()))
    return found
