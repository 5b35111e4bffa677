"""HammingIndex: exact search of codes in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbits import _check
from rankbits.indexes import checks, file, scan
from rankbits.indexes.ids import Column
from rankbits.indexes.index import Index
from rankbits.indexes.journal import read_index
from rankbits.indexes.segments import MOST_BITS, Segment, Snapshot
from rankbits.indexes.shortlist import search_questions
from rankbits.kernels import LaidOut, Words, words
from rankbits.types import Codes, Questions, Results

if TYPE_CHECKING:
    from typing import Self


class HammingIndex(Index):
    """Codes in memory, searched exactly: by distance, ties by order of insertion.

    An id that is added again moves to the end of that order. Any number of threads may search while
    one writes; each sees the index as it was when its search began. ``among`` is ids, or a mask
    (n,) over the rows in the order of ``ids``. After many queries an index makes tables of at most
    1 GiB (``build_tables``), which find near codes without a scan. ``device="cuda"`` keeps a copy
    of the codes on a GPU, where ``search`` answers large batches faster, with the same results.

    >>> from rankbits import pack
    >>> codes = pack([[1, 1, 1], [-1, 1, 1], [-1, -1, -1]])
    >>> index = HammingIndex(bits=3).add(codes, ids=[10, 20, 30])
    >>> results = index.search(pack([[1, 1, 1]]), k=2)
    >>> results.ids, results.distances
    (array([[10, 20]]), array([[0, 1]], dtype=int32))
    >>> index.search(pack([[1, 1, 1]]), k=2, among=[20, 30]).ids
    array([[20, 30]])
    >>> index.remove([10, 99]), len(index)
    (1, 2)
    """

    device: str | None = None
    _source: file.Source | None = None  # the file behind mapped codes

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

    def snapshot(self) -> Snapshot:
        """What the index holds at this moment; later writes do not change it."""
        if self._source is not None:
            self._source.check()
        return self._state

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        """Make ``state`` the current one. An index on a disk overrides this to write first."""
        self._state = state

    @property
    def facts(self) -> Mapping[str, str]:
        return self.snapshot().facts

    def remember(self, facts: Mapping[str, str]) -> None:
        """Replace the facts by these."""
        with self._writing:
            self._put_facts(replace(self.snapshot(), facts=checks.check_facts(facts)))

    def _put_facts(self, state: Snapshot) -> None:
        """Make ``state``, which has new facts, the current one; overridden like ``_put``."""
        self._state = state

    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Store ``codes`` under ``ids`` (n,), whole numbers or strings; returns self.

        The code of an id that is already stored is replaced. Without ``ids``, rows are numbered
        from the largest id on.
        """
        codes = self._to_new_codes(codes)
        new_ids = None if ids is None else checks.parse_distinct_ids(ids, len(codes))
        if not len(codes):
            return self
        with self._writing:
            state = self.snapshot()
            if new_ids is not None:
                checks.same_kind(new_ids, state.strings)
                column, base = Column(new_ids.copy()), state.without(new_ids)
            elif state.strings:
                checks.refuse_missing_ids()
            else:
                column, base = Column(checks.number_rows(state.largest(), len(codes))), state
            segment = Segment(Words(_copy_words(codes), self.bits), column)
            self._put(base.append(segment), "add", column, codes)
        return self

    def remove(self, ids: Any) -> int:
        """Remove ``ids``; returns how many of them were stored."""
        parsed = checks.parse_ids(ids)
        with self._writing:
            state = self.snapshot()
            unique = _drop_repeats(checks.same_kind(parsed, state.strings))
            left = state.without(unique)
            if left is state:
                return 0
            self._put(left, "remove", Column(unique), None)
            return state.count - left.count

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        return self._scan(self.snapshot(), queries, k, among)

    def _search_questions(
        self,
        questions: Questions,
        k: int,
        among: Any,
        precision: str,
        shortlist: int | None,
        coarse: int | None,
    ) -> Results:
        state = self.snapshot()

        def find(queries: Codes | LaidOut, count: int) -> Results:
            return self._scan(state, queries, count, among)

        lengths_of = state.inverse_lengths  # the scan computes them; ordering uses them again
        return search_questions(
            questions, k, find, state.codes, precision, shortlist, coarse, lengths_of
        )

    def _scan(self, state: Snapshot, queries: Codes | LaidOut, k: int, among: Any) -> Results:
        allowed = self._list_candidates(state, among, len(queries))
        return scan.topk(state, queries, k, allowed, self.device)

    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at distance ``radius`` or less, flat with ``offsets``; the same order."""
        queries = self._to_query_codes(queries)
        radius = checks.check_radius(radius)
        state = self.snapshot()
        return scan.within(state, queries, radius, self._list_candidates(state, among, 1))

    def _list_candidates(self, state: Snapshot, among: Any, queries: int) -> list:
        mask, ids = _read_mask(among), None
        if mask is not None and mask.shape != (state.count,):
            _check.refuse(
                f"among as a mask must have shape ({state.count},), one for each row in order of "
                f"insertion; got {mask.shape}."
            )
        if mask is None and among is not None:
            ids = checks.same_kind(checks.parse_ids(among, "among"), state.strings, "among")
        return scan.list_candidates(state, mask, ids, queries)

    def build_tables(self) -> int:
        """Make the tables that find near codes without a scan now, whatever their size; returns the
        bytes of memory they take.

        A search scans where that is cheaper than the tables; the results are the same. Tables take
        36 to 50 bytes for a code of 64 bits, and about 90 for one of 256 bits.
        """
        return sum(segment.tables.build() for segment in self.snapshot().segments)

    def count(self) -> int:
        """How many codes are stored."""
        return self.snapshot().count

    @property
    def has_string_ids(self) -> bool | None:
        return self.snapshot().strings

    @property
    def ids(self) -> np.ndarray:
        """All ids, in order of insertion."""
        return self.snapshot().ids().copy()

    def __contains__(self, name: Any) -> bool:
        wanted = checks.parse_ids(name)
        return len(wanted) == 1 and any(len(rows) for rows in self.snapshot().find(wanted))

    def codes(self, ids: Any = None) -> Codes:
        """The stored codes of ``ids``, in the same order; None: all, in order of insertion."""
        return self.snapshot().codes(None if ids is None else checks.parse_ids(ids))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file with checksums, whole or not at all; ``open`` reads it back."""
        file.save(path, self.snapshot())

    @staticmethod
    def open(path: str | os.PathLike[str], *, verify: bool = True) -> HammingIndex:
        """Read a file that ``save`` or a ``FileIndex`` wrote; one of more than 256 MiB is mapped.

        Later additions and removals are in memory only. ``verify=False`` maps any file and does not
        compare the checksum of the codes, so opening takes the same time for any size.
        """
        contents = read_index(path, verify=verify)
        index = HammingIndex(contents.state.bits)
        index._state, index._source = contents.state, contents.source
        return index


def _copy_words(codes: Codes) -> np.ndarray:
    """The words of ``codes`` in memory of their own: at 64 bits ``words`` returns a view of the
    caller's array, which the caller may write to."""
    laid_out = words(codes).words
    return laid_out.copy() if np.shares_memory(laid_out, codes.packed) else laid_out


def _read_mask(among: Any) -> np.ndarray | None:
    """``among`` as a mask of bools; None where it is not one."""
    if hasattr(among, "detach"):
        among = among.detach().cpu().numpy()
    if isinstance(among, (list, tuple)) and among and all(isinstance(x, bool) for x in among):
        among = np.array(among)
    return among if isinstance(among, np.ndarray) and among.dtype == bool else None


def _drop_repeats(ids: np.ndarray) -> np.ndarray:
    if ids.dtype != object:
        return np.unique(ids)
    names = list(dict.fromkeys(ids.tolist()))
    unique = np.empty(len(names), object)
    unique[:] = names
    return unique
