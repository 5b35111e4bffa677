"""Snapshot: what an index holds at one moment, in segments of codes and ids that never change.

A writer makes the next snapshot from the last one and puts it in place in one step, so that readers
need no lock. New rows become a segment of their own. It is merged with the segment before it while
that one is at most four times as long, so that few segments remain and a row is copied a
logarithmic number of times. Removed rows are only marked until they are a quarter of their segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.ids import Column, join_columns
from rankbits.indexes.tables import LazyTables
from rankbits.kernels import Words, inverse_lengths
from rankbits.types import Codes, Decoder

MOST_BITS = 1 << 20  # of a code
STEP = 4  # a segment is merged with one up to this many times as long
MANY = 16  # lengths are computed for the wanted rows alone if they are at most one in so many
SHORT = 4096  # rows of a segment that is always merged: copying costs less than searching it


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows of codes: ``words`` (W, n), their ``ids``, and which are ``alive``, not removed (None:
    all); ``live`` is their number.

    ``mapped`` rows are in a file, and new rows are not merged with them. ``tables`` find near rows
    without a scan; tables, ``copies`` on GPUs and ``inverses`` of lengths are made when they are
    first needed.
    """

    words: Words
    ids: Column
    alive: np.ndarray | None = None
    live: int = -1
    mapped: bool = False
    tables: LazyTables = field(default=None)  # type: ignore[assignment]
    copies: dict[str, Words] = field(default_factory=dict)
    inverses: dict[tuple[str, str | None], tuple[Decoder, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tables is None:
            object.__setattr__(self, "tables", LazyTables(self.words))
        if self.live < 0:
            object.__setattr__(self, "live", len(self.words))

    def on(self, device: str | None) -> Words:
        """The words, or their copy on a GPU, which is made once."""
        if device is None:
            return self.words
        if device not in self.copies:
            self.copies[device] = self.words.on(device)
        return self.copies[device]  # pragma: no cover - needs a GPU

    def inverse_lengths(self, decoder: Decoder, device: str | None = None) -> Any:
        """1 / length of each decoded row, kept once computed: 4 bytes a row. For each number of
        bits, those of the last decoder are kept."""
        key = (decoder.digest, device)
        cached = self.inverses.get(key)
        if cached is None:
            cached = decoder, inverse_lengths(decoder, self.on(device).prefix(decoder.bits))
            for other, (earlier, _) in list(self.inverses.items()):
                if other[0] != decoder.digest and earlier.bits == decoder.bits:
                    self.inverses.pop(other, None)
            self.inverses[key] = cached
        return cached[1]

    def inverse_lengths_at(self, decoder: Decoder, rows: np.ndarray) -> np.ndarray:
        """1 / length of these rows, float32 (n,). If none are kept yet, those of all rows are
        computed and kept, unless these rows are few."""
        cached = self.inverses.get((decoder.digest, None))
        if cached is None and MANY * len(rows) <= len(self.words):
            return inverse_lengths(decoder, self.gather(rows).prefix(decoder.bits))
        return (self.inverse_lengths(decoder) if cached is None else cached[1])[rows]

    def gather(self, rows: np.ndarray) -> Words:
        """Copy the words of these rows into a block of their own."""
        return Words(np.ascontiguousarray(self.words.words[:, rows]), self.words.bits)

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each id; -1 for an id that is not here or was removed."""
        rows = self.ids.rows_of(wanted)
        if self.alive is not None:
            rows[(rows >= 0) & ~self.alive[rows]] = -1
        return rows

    def without(self, rows: np.ndarray) -> Segment:
        """The segment with these rows marked as removed."""
        alive = np.ones(len(self.words), bool) if self.alive is None else self.alive.copy()
        alive[rows] = False
        return replace(self, alive=alive, live=self.live - len(rows))

    def is_worn(self) -> bool:
        """Whether more than a quarter of the rows are removed."""
        return 4 * self.live < 3 * len(self.words)


def merge_segments(segments: Sequence[Segment], bits: int) -> Segment:
    """One segment of all rows that are not removed, in order."""
    rows = sum(s.live for s in segments)
    out = np.empty((-(-bits // 64), rows), np.uint64)
    at = 0
    for s in segments:
        part = s.words.words
        out[:, at : at + s.live] = part if s.alive is None else part[:, s.alive]
        at += s.live
    ids = join_columns([s.ids.keep(s.alive) for s in segments])
    return Segment(Words(out, bits), ids, inverses=_merge_inverses(segments))


def _merge_inverses(segments: Sequence[Segment]) -> dict[tuple[str, str | None], Any]:
    """The inverses that the longest segment has; those of the others are computed if missing."""
    longest = max(segments, key=lambda s: len(s.words))
    inverses: dict[tuple[str, str | None], Any] = {}
    for (digest, device), (decoder, _) in list(longest.inverses.items()):
        if device is None:
            columns = [(s.inverse_lengths(decoder), s.alive) for s in segments]
            parts = [column if alive is None else column[alive] for column, alive in columns]
            inverses[digest, device] = decoder, np.concatenate(parts)
    return inverses


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All segments of an index, in order of insertion."""

    bits: int
    segments: tuple[Segment, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", sum(s.live for s in self.segments))

    @property
    def strings(self) -> bool | None:
        """Whether ids are strings; None in an empty index, which takes either kind."""
        return self.segments[0].ids.strings if self.segments else None

    def largest(self) -> int | None:
        """The largest id, where ids are whole numbers; None in an empty index."""
        return max((s.ids.largest(s.alive) for s in self.segments), default=None)

    def ids(self) -> np.ndarray:
        """All ids in order of insertion."""
        columns = [s.ids.keep(s.alive).all() for s in self.segments]
        return np.concatenate(columns) if columns else np.empty(0, np.int64)

    def codes(self, wanted: np.ndarray | None = None) -> Codes:
        """The codes of the ``wanted`` ids in the same order, or all in order of insertion."""
        rows = self.count if wanted is None else len(wanted)
        out = np.empty((rows, -(-self.bits // 64)), np.uint64)
        if wanted is not None:
            self._copy_codes(wanted, out)
        else:
            at = 0
            for s in self.segments:
                part = s.words.words
                out[at : at + s.live] = (part if s.alive is None else part[:, s.alive]).T
                at += s.live
        packed = out.view(np.uint8)[:, : (self.bits + 7) // 8]
        return Codes(packed, self.bits, self.facts.get("fingerprint"))

    def _copy_codes(self, wanted: np.ndarray, out: np.ndarray) -> None:
        """Copy the words of the ``wanted`` ids to the rows of ``out``; refuse an unknown id."""
        missing = np.ones(len(wanted), bool)
        for segment in self.segments:
            rows = segment.find(wanted)
            here = rows >= 0
            out[here] = segment.words.words[:, rows[here]].T
            missing &= ~here
        if missing.any():
            _check.refuse(f"This index does not hold id {wanted.tolist()[missing.argmax()]!r}.")

    def inverse_lengths(self, decoder: Decoder, wanted: np.ndarray) -> np.ndarray:
        """1 / length of the codes of the ``wanted`` ids, which must be here; float32 (n,)."""
        out = np.empty(len(wanted), np.float32)
        for segment in self.segments:
            rows = segment.find(wanted)
            here = rows >= 0
            once, places = np.unique(rows[here], return_inverse=True)
            out[here] = segment.inverse_lengths_at(decoder, once)[places]
        return out

    def select_present(self, ids: np.ndarray) -> np.ndarray:
        """Those of ``ids``, none twice, that are here."""
        pairs = zip(self.segments, self.find(ids), strict=True)
        here = [segment.ids.at(rows) for segment, rows in pairs if len(rows)]
        return np.concatenate(here) if here else ids[:0]

    def without(self, ids: np.ndarray) -> Snapshot:
        """The snapshot without ``ids``, none twice; self where none of them is here."""
        segments, removed = [], 0
        for segment in self.segments:
            rows = segment.find(ids)
            rows = rows[rows >= 0]
            removed += len(rows)
            if len(rows) == segment.live:
                continue
            segment = segment.without(rows) if len(rows) else segment
            worn = segment.is_worn()
            segments.append(merge_segments([segment], self.bits) if worn else segment)
        return replace(self, segments=tuple(segments)) if removed else self

    def append(self, segment: Segment) -> Snapshot:
        """The snapshot with new rows at the end; it must not hold their ids yet."""
        tail, rows, before = [segment], segment.live, list(self.segments)
        while before and not before[-1].mapped and before[-1].live <= max(STEP * rows, SHORT):
            tail.insert(0, before.pop())
            rows += tail[0].live
        last = merge_segments(tail, self.bits) if len(tail) > 1 else segment
        return replace(self, segments=(*before, last))

    def find(self, ids: np.ndarray) -> list[np.ndarray]:
        """The rows of ``ids`` in each segment; unknown ids are left out."""
        by_segment = (segment.find(ids) for segment in self.segments)
        return [rows[rows >= 0] for rows in by_segment]
