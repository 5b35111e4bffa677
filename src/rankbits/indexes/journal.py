"""The journal at the end of an index file: what was added and removed since the body was written.

It is in the same file as the body, so that one rename replaces both and no crash can pair a body
with another's journal. A record begins at a multiple of 32 bytes:

```
  0   4  "RBJ2"
  4   4  uint32  1 add, 2 remove
  8   8  uint64  bytes of the payload
 16   4  uint32  crc32 of the payload
 20   4  uint32  salt: drawn at random for each journal, the same in all its records
 24   4  uint32  number of the record, from 1
 28   4  uint32  crc32 of bytes 0 to 27
 32      payload: uint32 kind of ids, uint32 zero, uint64 rows, int64 first id, uint64 bytes of
         all strings; for "add" the codes, rows x ceil(bits / 8) bytes; the ids as in the body
...      zero, then 8 bytes that end at a multiple of 32: zero until the record is on the disk, then
         "kept" and the salt
```

A record is acknowledged once it is on the disk, and only then is the next one begun. So a record
that cannot be read is an unfinished end, which was never acknowledged, unless a record with a
higher number or a "kept" mark follows it. Then the file is damaged and refused; ``repair`` writes
what can be read to a new file.

Records of earlier versions begin with "RBJ1": bytes 20 to 27 are zero, and the last 8 are
"written.". They are read too, and records of the present kind may follow them.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.indexes.file import ALIGN, Header, Source, read_body, refuse_damaged
from rankbits.indexes.ids import STRINGS, Column, decode_ids, encode_ids, encoded_size
from rankbits.indexes.segments import Segment, Snapshot
from rankbits.kernels import Words, words
from rankbits.types import Codes

FIRST, MARK = b"RBJ1", b"RBJ2"
WRITTEN, KEPT = b"written.", b"kept"
VERBS = {"add": 1, "remove": 2}
HEAD = struct.Struct("<4sIQIII")
FACTS = struct.Struct("<IIQqQ")
MOST_TRIED = 1000  # heads behind damage that are followed; a hostile file could have millions


@dataclass(frozen=True, eq=False)
class Record:
    """One ``add`` or ``remove``."""

    verb: str
    ids: Column
    packed: np.ndarray | None


@dataclass(frozen=True)
class Head:
    """The first 32 bytes of a record; ``number`` is 0 if an earlier version wrote it."""

    verb: int
    length: int
    crc: int
    salt: int
    number: int

    @property
    def size(self) -> int:
        """The bytes of the whole record."""
        return ALIGN + -(-(self.length + len(WRITTEN)) // ALIGN) * ALIGN


@dataclass
class Journal:
    """The records that were read, in order, and where the next one goes."""

    end: int
    records: list[Record] = field(default_factory=list)
    salt: int | None = None  # None while no record has one
    number: int = 0  # of the last record
    kept: bool = True  # whether the last record is marked as kept


def encode_record(verb: str, ids: Column, codes: Codes | None, salt: int, number: int) -> bytes:
    """The bytes of a record as it is first written, without its mark."""
    kind, first, parts = encode_ids(ids)
    text = len(parts[1]) if kind == STRINGS else 0
    rows = b"" if codes is None else codes.packed.tobytes()
    payload = b"".join([FACTS.pack(kind, 0, len(ids), first, text), rows, *parts])
    head = HEAD.pack(MARK, VERBS[verb], len(payload), zlib.crc32(payload), salt, number)
    sealed = head + struct.pack("<I", zlib.crc32(head)) + payload
    return sealed + bytes(len(WRITTEN) + -(len(sealed) + len(WRITTEN)) % ALIGN)


def make_mark(salt: int) -> bytes:
    """The last 8 bytes of a record that was acknowledged."""
    return KEPT + struct.pack("<I", salt)


def parse_head(data: bytes) -> Head | None:
    """Read these 32 bytes as a head; None where they are not one."""
    if len(data) < ALIGN or struct.unpack_from("<I", data, 28)[0] != zlib.crc32(data[:28]):
        return None
    mark, *rest = HEAD.unpack_from(data)
    head = Head(*rest)
    valid = head.number > 0 if mark == MARK else mark == FIRST and not head.number + head.salt
    return head if valid and head.verb in VERBS.values() else None


def read_journal(data: bytes, header: Header) -> tuple[Journal, list[str]]:
    """Read the records in ``data``, all that follows the body. Also returns a description of each
    gap: records that are missing between others, or that were acknowledged and are not whole."""
    journal, at, missing = Journal(header.end), 0, []
    while at < len(data):
        head = parse_head(data[at : at + ALIGN])
        rest = data[at + ALIGN : at + head.size] if head is not None else b""
        if head is not None and follows(head, journal) and is_whole(head, rest):
            at += head.size
            journal.end, journal.number = header.end + at, head.number or journal.number + 1
            journal.kept = not head.number or rest[-len(WRITTEN) :] == make_mark(head.salt)
            journal.salt = head.salt if head.number else journal.salt
            try:
                journal.records.append(_parse_record(head, rest, header.bits))
            except ValueError:
                missing.append(
                    f"record {journal.number} of the journal, before byte {journal.end:,}"
                )
            continue
        for step, head in islice(find_heads(data[at:], journal), MOST_TRIED):
            if is_whole(head, data[at + step + ALIGN : at + step + head.size]):
                break
        else:
            head = None
        start = header.end + at
        if head is None:
            if holds_acknowledged(data[at:], journal):
                missing.append(f"the journal from byte {start:,} on")
            break
        first, last = journal.number + 1, max(journal.number, head.number - 1)
        names = f"record {first}" if last <= first else f"records {first} to {last}"
        journal.number = last
        missing.append(f"{names} of the journal, bytes {start:,} to {start + step - 1:,}")
        at += step
    return journal, missing


def follows(head: Head, journal: Journal) -> bool:
    """Whether this head is that of the journal's next record."""
    if not head.number:
        return journal.salt is None
    return head.number == journal.number + 1 and journal.salt in (None, head.salt)


def is_whole(head: Head, rest: bytes | memoryview) -> bool:
    """Whether ``rest``, the bytes after the head, has the whole payload."""
    whole = len(rest) >= head.size - ALIGN
    return whole and zlib.crc32(memoryview(rest)[: head.length]) == head.crc


def find_heads(rest: bytes, journal: Journal) -> Iterator[tuple[int, Head]]:
    """Find the heads in ``rest`` of records later than the journal's next: place and head."""
    blocks = np.frombuffer(rest, "<u4", len(rest) // ALIGN * (ALIGN // 4)).reshape(-1, 8)
    marks = [int.from_bytes(mark, "little") for mark in (FIRST, MARK)]
    for row in np.flatnonzero(np.isin(blocks[:, 0], marks)).tolist():
        head = parse_head(rest[row * ALIGN : (row + 1) * ALIGN])
        later = head is not None and (head.number > journal.number + 1 or (not head.number and row))
        if head is not None and later and journal.salt in (None, head.salt):
            yield row * ALIGN, head


def holds_acknowledged(rest: bytes, journal: Journal) -> bool:
    """Whether ``rest``, which begins where the next record should, has an acknowledged record: a
    later record was begun, or there is a mark."""
    if next(find_heads(rest, journal), None) is not None:
        return True
    if journal.salt is None:  # without a salt, only a mark at the very end can be recognised
        last = rest[-len(WRITTEN) :]
        return len(rest) % ALIGN == 0 and (last == WRITTEN or last.startswith(KEPT))
    blocks = np.frombuffer(rest, "<u8", len(rest) // ALIGN * (ALIGN // 8)).reshape(-1, 4)
    mark = np.frombuffer(make_mark(journal.salt), "<u8")[0]
    return bool((blocks[:, 3] == mark).any())


def _parse_record(head: Head, rest: bytes, bits: int) -> Record:
    verb, payload = head.verb, memoryview(rest)[: head.length]
    if len(payload) < FACTS.size:
        raise ValueError
    kind, zero, rows, first, text = FACTS.unpack_from(payload)
    width = (bits + 7) // 8 if verb == VERBS["add"] else 0
    if kind > STRINGS or zero or rows == 0 or (text and kind != STRINGS) or (first and kind):
        raise ValueError
    if FACTS.size + rows * width + encoded_size(kind, rows, text) != len(payload):
        raise ValueError
    split = FACTS.size + rows * width
    ids = decode_ids(kind, first, rows, payload[split:])
    if not ids.is_distinct():
        raise ValueError
    if not width:
        return Record("remove", ids, None)
    packed = np.frombuffer(payload[FACTS.size : split], np.uint8).reshape(rows, width)
    return Record("add", ids, packed)


def _group_runs(records: list[Record]) -> Iterator[list[Record]]:
    """Group records in a row that have the same verb and kind of ids: one step does them."""
    run: list[Record] = []
    for record in records:
        if run and (run[0].verb, run[0].ids.strings) != (record.verb, record.ids.strings):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def replay(state: Snapshot, records: list[Record], *, strict: bool = True) -> Snapshot:
    """The snapshot after all records; ValueError where they are impossible. ``strict`` counts it as
    impossible to remove more ids than there are."""
    for run in _group_runs(records):
        removed = sum(len(record.ids) for record in run) if run[0].verb == "remove" else 0
        if strict and removed > state.count:
            raise ValueError
        ids = np.concatenate([record.ids.all() for record in run])
        last = np.sort(_find_last(ids))  # an id added twice has its later code and place
        strings = ids.dtype == object
        if state.count and state.strings != strings:
            raise ValueError
        state = state.without(ids[last])
        if run[0].verb == "add":
            packed = np.concatenate([record.packed for record in run])[last]  # type: ignore[misc]
            added = Words(words(Codes(packed, state.bits)).words, state.bits)
            state = state.append(Segment(added, Column(ids[last])))
    return state


def _find_last(ids: np.ndarray) -> np.ndarray:
    """The last place of each id."""
    if ids.dtype == object:
        return np.array(list({name: row for row, name in enumerate(ids.tolist())}.values()))
    _, where = np.unique(ids[::-1], return_index=True)
    return len(ids) - 1 - where


@dataclass(frozen=True, eq=False)
class Contents:
    """What an index file holds; ``source`` is set if its codes are mapped."""

    state: Snapshot
    header: Header
    journal: Journal
    source: Source | None


def read_index(path: str | os.PathLike[str], *, verify: bool = True) -> Contents:
    """Read the body and the journal of an index file."""
    if not Path(path).is_file():
        _check.refuse(f"{path} does not exist or is not a file.")
    try:
        with open(path, "rb") as source:
            body = read_body(source, path, verify=verify, mapped=not verify)
            # only what is there now: another process may be appending
            size = os.fstat(source.fileno()).st_size - body.header.end
            source.seek(body.header.end)
            journal, missing = read_journal(source.read(max(0, size)), body.header)
    except OSError as error:
        _check.refuse(f"Cannot read {path}: {os.strerror(error.errno or 0)}.")
    if missing:
        refuse_damaged(path, f"{missing[0]} cannot be read", repair=True)
    try:
        state = replay(body.state, journal.records)
    except ValueError:
        refuse_damaged(path, "its journal holds impossible records")
    return Contents(state, body.header, journal, body.source)
