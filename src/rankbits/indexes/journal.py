"""The journal: what was added and removed since the file was written whole, at the end of it.

It stands in the same file, not in a neighbour, so that one rename replaces both and no crash can
pair a body with the journal of another. A record begins at a multiple of 32 bytes:

```
  0   4  "RBJ1"
  4   4  uint32  1 add, 2 remove
  8   8  uint64  bytes of the payload
 16   4  uint32  crc32 of the payload
 20   8  zero
 28   4  uint32  crc32 of bytes 0 to 27
 32      payload: uint32 how ids stand, uint32 zero, uint64 rows, int64 first id, uint64 bytes of
         all strings; where codes are added rows x ceil(bits / 8) bytes; the ids as in the body
...      zero, then 8 bytes "written.", which end at a multiple of 32
```

A record is acknowledged once it is on the disk, and the next is begun after that, so only the last
one can be torn: shorter than it says, or zero where a sector never reached the disk. Such a tail is
cut. Whole records that do not match their checksums are damage, and refused: what was acknowledged
is never dropped in silence.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from rankbits import _check
from rankbits.indexes.file import ALIGN, Header, damaged, read_body
from rankbits.indexes.ids import STRINGS, Column, decode, encode, encoded_size
from rankbits.indexes.segments import Segment, Snapshot
from rankbits.kernels import Words, words
from rankbits.types import Codes

MARK, END = b"RBJ1", b"written."
VERBS = {"add": 1, "remove": 2}
HEAD = struct.Struct("<4sIQI8x")
FACTS = struct.Struct("<IIQqQ")


@dataclass(frozen=True, eq=False)
class Record:
    """One thing that was done."""

    verb: str
    ids: Column
    packed: np.ndarray | None


def record_bytes(verb: str, ids: Column, codes: Codes | None) -> bytes:
    kind, first, parts = encode(ids)
    text = len(parts[1]) if kind == STRINGS else 0
    rows = b"" if codes is None else codes.packed.tobytes()
    payload = b"".join([FACTS.pack(kind, 0, len(ids), first, text), rows, *parts])
    head = HEAD.pack(MARK, VERBS[verb], len(payload), zlib.crc32(payload))
    filling = bytes(-(len(payload) + len(END)) % ALIGN)
    return b"".join([head, struct.pack("<I", zlib.crc32(head)), payload, filling, END])


def records(
    source: IO[bytes], header: Header, path: str | os.PathLike[str]
) -> Iterator[tuple[int, Record]]:
    """Each whole record with where it ends; stops before a torn tail."""
    size, at = os.fstat(source.fileno()).st_size, header.end
    source.seek(at)
    while size - at >= ALIGN:
        head = source.read(ALIGN)
        if not any(head):
            return
        mark, verb, length, crc = HEAD.unpack_from(head)
        sound = struct.unpack_from("<I", head, 28)[0] == zlib.crc32(head[:28])
        if not sound or mark != MARK or verb not in VERBS.values() or any(head[20:28]):
            damaged(path, f"the journal has no record at byte {at:,}")
        rest = length + len(END) + -(length + len(END)) % ALIGN
        if at + ALIGN + rest > size:
            return
        body = source.read(rest)
        if not any(body[-len(END) :]):
            return
        payload = memoryview(body)[:length]
        tail = bytes(rest - length - len(END)) + END
        if zlib.crc32(payload) != crc or body[length:] != tail:
            damaged(path, f"the checksum of the journal's record at byte {at:,} does not match")
        at += ALIGN + rest
        try:
            yield at, _parsed(verb, payload, header.bits)
        except (ValueError, struct.error):
            damaged(path, f"the journal's record at byte {at:,} says what nobody wrote")


def _parsed(verb: int, payload: memoryview, bits: int) -> Record:
    kind, zero, rows, first, text = FACTS.unpack_from(payload)
    width = (bits + 7) // 8 if verb == VERBS["add"] else 0
    if kind > STRINGS or zero or rows == 0 or (text and kind != STRINGS) or (first and kind):
        raise ValueError
    if FACTS.size + rows * width + encoded_size(kind, rows, text) != len(payload):
        raise ValueError
    split = FACTS.size + rows * width
    ids = decode(kind, first, rows, payload[split:])
    if not ids.distinct():
        raise ValueError
    if not width:
        return Record("remove", ids, None)
    packed = np.frombuffer(payload[FACTS.size : split], np.uint8).reshape(rows, width)
    return Record("add", ids, packed)


def _runs(found: list[Record]) -> Iterator[list[Record]]:
    """Records that follow each other, do the same and have ids of one kind: done in one step."""
    run: list[Record] = []
    for record in found:
        if run and (run[0].verb, run[0].ids.strings) != (record.verb, record.ids.strings):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def replayed(state: Snapshot, found: list[Record]) -> Snapshot:
    """The snapshot once all records are done; ValueError where they cannot have been."""
    for run in _runs(found):
        if run[0].verb == "remove" and sum(len(record.ids) for record in run) > state.count:
            raise ValueError
        ids = np.concatenate([record.ids.all() for record in run])
        last = np.sort(_last(ids))  # an id added twice has its later code and its later place
        strings = ids.dtype == object
        if state.count and state.strings != strings:
            raise ValueError
        state = state.without(ids[last])
        if run[0].verb == "add":
            packed = np.concatenate([record.packed for record in run])[last]  # type: ignore[misc]
            made = Words(words(Codes(packed, state.bits)).words, state.bits)
            state = state.appended(Segment(made, Column(ids[last])))
    return state


def _last(ids: np.ndarray) -> np.ndarray:
    """Where each id stands last."""
    if ids.dtype == object:
        return np.array(list({name: row for row, name in enumerate(ids.tolist())}.values()))
    _, where = np.unique(ids[::-1], return_index=True)
    return len(ids) - 1 - where


def read(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[Snapshot, Header, int]:
    """Body and journal of a file: the snapshot, the header, and where the last record ends."""
    if not Path(path).is_file():
        _check.refuse(f"{path} does not exist or is not a file.")
    try:
        with open(path, "rb") as source:
            return read_from(source, path, verify=verify)
    except OSError as error:
        _check.refuse(f"Cannot read {path}: {os.strerror(error.errno or 0)}.")


def read_from(
    source: IO[bytes], path: str | os.PathLike[str], *, verify: bool = True
) -> tuple[Snapshot, Header, int]:
    header, state = read_body(source, path, verify)
    end, found = header.end, []
    for end, record in records(source, header, path):  # noqa: B007
        found.append(record)
    try:
        return replayed(state, found), header, end
    except ValueError:
        damaged(path, "the journal does what no index can do")
