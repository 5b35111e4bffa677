"""What an index holds at one moment: segments of codes and ids, none of which ever changes.

A writer makes the next snapshot from the last one and puts it in place in one step, so that readers
need no lock. New rows become a segment of their own; segments merge while the one before is no more
than four times as long, so that few remain and a row is copied a logarithmic number of times.
Removed rows stay, marked, until a quarter of their segment is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.ids import Column, joined
from rankbits.indexes.tables import LazyTables
from rankbits.kernels import Words, inverse_lengths
from rankbits.types import Codes, Decoder

MOST_BITS = 1 << 20  # of a code
STEP = 4  # a segment is merged with one up to this many times as long
MANY = 16  # lengths are made for some rows alone where they are fewer than one in so many
SHORT = 4096  # rows that are merged without asking: copying them costs less than another segment


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows side by side: ``words`` (W, n), their ids, and which still live (None: all).

    ``mapped`` rows lie in a file, and are not pulled into memory for the sake of a tidy shape.
    ``tables`` find what is near without a scan; they, ``copies`` on GPUs and ``inverses`` of
    lengths are made when they are first needed.
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
        """The words, or their copy on a GPU, made once for all searches of the segment."""
        if device is None:
            return self.words
        if device not in self.copies:
            self.copies[device] = self.words.on(device)
        return self.copies[device]  # pragma: no cover - needs a GPU

    def inverse_lengths(self, decoder: Decoder, device: str | None = None) -> Any:
        """1 / length of each row, or of its first bits, made once: 4 bytes a row, for one decoder
        of each number of bits."""
        key = (decoder.digest, device)
        kept = self.inverses.get(key)
        if kept is None:
            kept = decoder, inverse_lengths(decoder, self.on(device).prefix(decoder.bits))
            for other, (known, _) in list(self.inverses.items()):
                if other[0] != decoder.digest and known.bits == decoder.bits:
                    self.inverses.pop(other, None)
            self.inverses[key] = kept
        return kept[1]

    def inverse_lengths_at(self, decoder: Decoder, rows: np.ndarray) -> np.ndarray:
        """1 / length of some rows, float32 (n,): those of all where they are at hand, or rows so
        many that it pays to make them."""
        kept = self.inverses.get((decoder.digest, None))
        if kept is None and MANY * len(rows) <= len(self.words):
            return inverse_lengths(decoder, self.gather(rows).prefix(decoder.bits))
        return (self.inverse_lengths(decoder) if kept is None else kept[1])[rows]

    def gather(self, rows: np.ndarray) -> Words:
        """The words of some rows, side by side."""
        return Words(np.ascontiguousarray(self.words.words[:, rows]), self.words.bits)

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """The living row of each id, -1 where there is none."""
        rows = self.ids.rows_of(wanted)
        if self.alive is not None:
            rows[(rows >= 0) & ~self.alive[rows]] = -1
        return rows

    def without(self, rows: np.ndarray) -> Segment:
        alive = np.ones(len(self.words), bool) if self.alive is None else self.alive.copy()
        alive[rows] = False
        return replace(self, alive=alive, live=self.live - len(rows))

    def worn(self) -> bool:
        return 4 * self.live < 3 * len(self.words)


def merged(segments: Sequence[Segment], bits: int) -> Segment:
    """One segment of all living rows, in order."""
    rows = sum(s.live for s in segments)
    out = np.empty((-(-bits // 64), rows), np.uint64)
    at = 0
    for s in segments:
        part = s.words.words
        out[:, at : at + s.live] = part if s.alive is None else part[:, s.alive]
        at += s.live
    ids = joined([s.ids.kept(s.alive) for s in segments])
    return Segment(Words(out, bits), ids, inverses=_merge_inverses(segments))


def _merge_inverses(segments: Sequence[Segment]) -> dict[tuple[str, str | None], Any]:
    """Inverses that the longest segment has are kept, and made for the others alone."""
    longest = max(segments, key=lambda s: len(s.words))
    inverses: dict[tuple[str, str | None], Any] = {}
    for (digest, device), (decoder, _) in list(longest.inverses.items()):
        if device is None:
            columns = [(s.inverse_lengths(decoder), s.alive) for s in segments]
            parts = [column if alive is None else column[alive] for column, alive in columns]
            inverses[digest, device] = decoder, np.concatenate(parts)
    return inverses


def unpacked(rows: np.ndarray, bits: int, fingerprint: str | None) -> Codes:
    """Codes of words that stand row by row, (n, W)."""
    return Codes(rows.view(np.uint8)[:, : (bits + 7) // 8], bits, fingerprint)


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
        """Whether ids are strings; None while the index is empty and may become either."""
        return self.segments[0].ids.strings if self.segments else None

    def largest(self) -> int | None:
        return max((s.ids.largest(s.alive) for s in self.segments), default=None)

    def ids(self) -> np.ndarray:
        """All ids in order of insertion."""
        columns = [s.ids.kept(s.alive).all() for s in self.segments]
        return np.concatenate(columns) if columns else np.empty(0, np.int64)

    def codes(self, wanted: np.ndarray | None = None) -> Codes:
        """The codes of the ``wanted`` ids in their order, or all in order of insertion."""
        rows = self.count if wanted is None else len(wanted)
        out = np.empty((rows, -(-self.bits // 64)), np.uint64)
        if wanted is not None:
            self._copy_codes(wanted, out)
            return unpacked(out, self.bits, self.facts.get("fingerprint"))
        at = 0
        for s in self.segments:
            part = s.words.words
            out[at : at + s.live] = (part if s.alive is None else part[:, s.alive]).T
            at += s.live
        return unpacked(out, self.bits, self.facts.get("fingerprint"))

    def _copy_codes(self, wanted: np.ndarray, out: np.ndarray) -> None:
        missing = np.ones(len(wanted), bool)
        for segment in self.segments:
            rows = segment.find(wanted)
            here = rows >= 0
            out[here] = segment.words.words[:, rows[here]].T
            missing &= ~here
        if missing.any():
            _check.refuse(f"This index does not hold id {wanted.tolist()[missing.argmax()]!r}.")

    def inverse_lengths(self, decoder: Decoder, wanted: np.ndarray) -> np.ndarray:
        """1 / length of the codes of the ``wanted`` ids, all of them here, float32 (n,)."""
        out = np.empty(len(wanted), np.float32)
        for segment in self.segments:
            rows = segment.find(wanted)
            here = rows >= 0
            once, places = np.unique(rows[here], return_inverse=True)
            out[here] = segment.inverse_lengths_at(decoder, once)[places]
        return out

    def present(self, ids: np.ndarray) -> np.ndarray:
        """Those of ``ids``, none twice, that are here."""
        found = zip(self.segments, self.find(ids), strict=True)
        here = [segment.ids.at(rows) for segment, rows in found if len(rows)]
        return np.concatenate(here) if here else ids[:0]

    def without(self, ids: np.ndarray) -> Snapshot:
        """The snapshot once ``ids``, none twice, are forgotten; self where none was there."""
        kept, found = [], 0
        for segment in self.segments:
            rows = segment.find(ids)
            rows = rows[rows >= 0]
            found += len(rows)
            if len(rows) == segment.live:
                continue
            segment = segment.without(rows) if len(rows) else segment
            kept.append(merged([segment], self.bits) if segment.worn() else segment)
        return replace(self, segments=tuple(kept)) if found else self

    def appended(self, segment: Segment) -> Snapshot:
        """The snapshot with new rows at the end, whose ids it does not hold."""
        tail, rows, held = [segment], segment.live, list(self.segments)
        while held and not held[-1].mapped and held[-1].live <= max(STEP * rows, SHORT):
            tail.insert(0, held.pop())
            rows += tail[0].live
        last = merged(tail, self.bits) if len(tail) > 1 else segment
        return replace(self, segments=(*held, last))

    def find(self, ids: np.ndarray) -> list[np.ndarray]:
        """For each segment the living rows of ``ids``; unknown ids fall away."""
        found = (segment.find(ids) for segment in self.segments)
        return [rows[rows >= 0] for rows in found]
