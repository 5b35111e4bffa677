"""An index as it is at one moment, so that an answer's ids, codes and counts agree.

An index in memory is seen through its snapshot, which never changes. A database server has no
snapshot: it searches, but it neither counts all distances nor returns the code of an id.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankbits._check import Refusal
from rankbits.indexes import HammingIndex, Index, scan
from rankbits.indexes.checks import parse_ids
from rankbits.indexes.segments import Segment
from rankbits.indexes.shortlist import search_questions
from rankbits.kernels import LaidOut, Words, hamming_counts
from rankbits.serve.items import Items
from rankbits.types import Codes, Questions, Results


class LocalView:
    """A ``HammingIndex`` (in memory, a file, DuckDB) at one moment."""

    def __init__(self, index: HammingIndex, labels: Labels) -> None:
        self.state, self.bits, self._labels = index.snapshot(), index.bits, labels
        self.strings = self.state.strings

    def search(self, queries: Codes | Questions, k: int, among: np.ndarray | None) -> Results:
        allowed = scan.list_candidates(self.state, None, among, len(queries))

        def find(queries: Codes | LaidOut, k: int) -> Results:
            return scan.topk(self.state, queries, k, allowed)

        if isinstance(queries, Questions):
            state = self.state
            lengths_of = state.inverse_lengths
            return search_questions(queries, k, find, state.codes, inverses_of=lengths_of)
        return find(queries, k)

    def find_codes(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the packed codes of ids, and which of the ids are here."""
        out = np.zeros((len(ids), -(-self.bits // 64)), np.uint64)
        here = np.zeros(len(ids), bool)
        for segment in self.state.segments:
            rows = segment.find(ids)
            inside = rows >= 0
            out[inside] = segment.words.words[:, rows[inside]].T
            here |= inside
        return out.view(np.uint8)[:, : (self.bits + 7) // 8], here

    def holds(self, name: int | str) -> bool:
        """Say whether an id is here."""
        try:
            return bool(self.find_codes(parse_ids(name))[1].all())
        except Refusal:
            return False

    def list_ids(self, offset: int, limit: int) -> list[Any]:
        """List ids in the order of insertion, without reading all of them."""
        ids: list[Any] = []
        for segment in self.state.segments:
            if offset >= segment.live:
                offset -= segment.live
                continue
            rows = np.arange(len(segment.words))
            if segment.alive is not None:
                rows = rows[segment.alive]
            ids += segment.ids.at(rows[offset : offset + limit - len(ids)]).tolist()
            offset = 0
            if len(ids) >= limit:
                break
        return ids

    def count_distances(
        self, queries: Codes, labels: np.ndarray | None, among: np.ndarray | None
    ) -> np.ndarray:
        """Count items by distance and by whether they are relevant -> (Q, bits + 1, 2)."""
        total = np.zeros((len(queries), self.bits + 1, 2), np.int64)
        for segment in self.state.segments:
            theirs = None if labels is None else self._labels.read(segment)
            if among is not None:
                rows = segment.find(among)
                total += _count(queries, segment, labels, theirs, np.unique(rows[rows >= 0]))
            else:
                total += _count(queries, segment, labels, theirs, None)
                if segment.alive is not None:  # few rows are removed: quicker to subtract them
                    gone = np.flatnonzero(~segment.alive)
                    total -= _count(queries, segment, labels, theirs, gone)
        return total


def _count(
    queries: Codes,
    segment: Segment,
    labels: np.ndarray | None,
    theirs: np.ndarray | None,
    rows: np.ndarray | None,
) -> np.ndarray:
    """Count the distances to the rows of a segment, all where ``rows`` is None; ``theirs`` are
    the labels of its rows."""
    block = segment.words
    if rows is not None:
        if not len(rows):
            return np.zeros((len(queries), block.bits + 1, 2), np.int64)
        block = Words(np.ascontiguousarray(block.words[:, rows]), block.bits)
        theirs = None if theirs is None else theirs[rows]
    if labels is None or theirs is None:
        labels, theirs = np.full(len(queries), -1), np.zeros(len(block), np.int64)
    return hamming_counts(queries, block, labels, theirs)


class Labels:
    """Labels of items in the order of a segment's rows, made once for each segment."""

    def __init__(self, items: Items | None) -> None:
        self._items = items
        self._by_segment: WeakKeyDictionary[Segment, np.ndarray] = WeakKeyDictionary()

    def read(self, segment: Segment) -> np.ndarray | None:
        if self._items is None or self._items.labels is None:
            return None
        theirs = self._by_segment.get(segment)
        if theirs is None:
            rows = self._items.rows(segment.ids.all())
            labels = self._items.labels
            theirs = labels[rows].copy()
            theirs[rows < 0] = -1 if labels.ndim == 1 else False
            self._by_segment[segment] = theirs
        return theirs


class RemoteView:
    """A database server, which answers over a connection."""

    def __init__(self, index: Index) -> None:
        self._index = index

    @property
    def strings(self) -> bool | None:
        return self._index.has_string_ids

    def search(self, queries: Codes | Questions, k: int, among: np.ndarray | None) -> Results:
        return self._index.search(queries, k, among=among)

    def find_codes(self, ids: np.ndarray) -> None:
        return None

    def count_distances(self, queries: Codes, labels: Any, among: Any) -> None:
        return None


IndexView = LocalView | RemoteView


def take_view(index: Index, labels: Labels) -> IndexView:
    return LocalView(index, labels) if isinstance(index, HammingIndex) else RemoteView(index)
