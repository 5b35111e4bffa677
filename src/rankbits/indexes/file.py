"""The layout of an index file. All numbers are little-endian; nothing in the file can run.

```
  0   8  "RANKBITS"
  8   4  uint32  version of this layout: 2 where facts follow the ids, else 1
 12   4  uint32  kind of ids: 0 counted from the first, 1 whole numbers, 2 strings
 16   8  uint64  bits of a code
 24   8  uint64  rows
 32   8  int64   the first id (0 unless ids are counted)
 40   8  uint64  bytes of all strings (0 unless ids are strings)
 48   4  uint32  crc32 of the codes
 52   4  uint32  crc32 of the ids
 56   8  uint64  bytes of the facts (0 in version 1)
 64   4  uint32  crc32 of the facts (0 in version 1)
 68  56  zero
124   4  uint32  crc32 of bytes 0 to 123
128      codes: W = ceil(bits / 64) runs of rows x 8 bytes; run w holds bytes 8w to 8w + 7 of each
         packed code, zero past its end (what the kernels scan)
...      ids: nothing; or rows x int64; or (rows + 1) x uint64, where each string begins and where
         the last ends, then the strings in UTF-8
...      facts: JSON in ASCII, texts by name (``Index.facts``)
...      zero to the next multiple of 32, where a journal may follow (``journal.py``)
```

The place of each part is computed from bits, rows and the bytes of strings and facts, so no header
can make two parts overlap. The sum is compared with the length of the file before anything is
allocated.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from rankbits import _check
from rankbits._files import write_whole
from rankbits.indexes import lock
from rankbits.indexes.checks import read_facts
from rankbits.indexes.ids import STRINGS, Column, decode_ids, encode_ids, encoded_size, join_columns
from rankbits.indexes.segments import MOST_BITS, Segment, Snapshot
from rankbits.indexes.table_files import TableFile
from rankbits.indexes.tables import LazyTables
from rankbits.kernels import Words

MAGIC, VERSION, WITH_FACTS = b"RANKBITS", 1, 2
HEAD = struct.Struct("<8sIIQQqQIIQI56x")
SIZE = HEAD.size + 4
ALIGN = 32
CHUNK = 1 << 24
IN_MEMORY = 1 << 28  # bytes; a file up to this size is read when opened, a larger one is mapped


@dataclass(frozen=True)
class Header:
    """What the header of a file says, checked against the length of the file."""

    kind: int
    bits: int
    rows: int
    first: int
    text: int
    codes_crc: int
    ids_crc: int
    facts: int = 0
    facts_crc: int = 0

    @property
    def codes_end(self) -> int:
        return SIZE + 8 * -(-self.bits // 64) * self.rows

    @property
    def ids_end(self) -> int:
        return self.codes_end + encoded_size(self.kind, self.rows, self.text)

    @property
    def facts_end(self) -> int:
        return self.ids_end + self.facts

    @property
    def end(self) -> int:
        return -(-self.facts_end // ALIGN) * ALIGN

    def to_bytes(self) -> bytes:
        version = WITH_FACTS if self.facts else VERSION
        head = HEAD.pack(MAGIC, version, *astuple(self))
        return head + struct.pack("<I", zlib.crc32(head))


def refuse_damaged(path: str | os.PathLike[str], what: str, *, repair: bool = False) -> NoReturn:
    """Refuse a damaged file; ``repair``: whether ``rankbits repair`` can save some of it."""
    more = f" (rankbits repair {path} -o NEW.index saves what can be read)" if repair else ""
    _check.refuse(f"{path} is truncated or damaged: {what}{more}.")


class Source:
    """The open file behind mapped codes. Reading a map past the end of its file kills the process,
    so ``check`` is called before each search."""

    def __init__(self, handle: int, path: str | os.PathLike[str], head: bytes, end: int) -> None:
        self._handle, self._path, self._head, self._end = os.dup(handle), path, head, end

    def check(self) -> None:
        """Refuse a file that was cut short or overwritten since it was opened."""
        if not hasattr(os, "pread"):  # Windows does not let anyone cut a mapped file
            return
        same = os.pread(self._handle, SIZE, 0) == self._head
        if not same or os.fstat(self._handle).st_size < self._end:
            _check.refuse(
                f"{self._path} was cut short or overwritten while it was open: open it again. To "
                "replace an index file safely, use mv, not cp."
            )

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)


@dataclass(frozen=True, eq=False)
class Body:
    """What a file held when it was last written whole."""

    header: Header
    state: Snapshot
    source: Source | None = None


def read_header(data: bytes, size: int, path: str | os.PathLike[str]) -> Header:
    """Read and check the header of a file of ``size`` bytes from its first bytes, ``data``."""
    if data[:8] != MAGIC:
        _check.refuse(f"{path} is not a rankbits index file.")
    if len(data) < SIZE:
        refuse_damaged(path, "its header is not whole")
    if struct.unpack_from("<I", data, SIZE - 4)[0] != zlib.crc32(data[: SIZE - 4]):
        refuse_damaged(path, "the checksum of its header does not match")
    _, version, *facts = HEAD.unpack_from(data)
    if version not in (VERSION, WITH_FACTS):
        _check.refuse(
            f"{path} has layout {version}; this version of rankbits reads {VERSION} and "
            f"{WITH_FACTS}."
        )
    header = Header(*facts)
    unused = data[56:124] if version == VERSION else data[68:124]
    if not 1 <= header.bits <= MOST_BITS or header.kind > STRINGS or any(unused):
        refuse_damaged(path, "its header describes no possible index")
    wrong = (header.text and header.kind != STRINGS) or (header.first and header.kind)
    if wrong or header.end > size:
        refuse_damaged(path, "it is shorter than its header says")
    return header


def read_body(
    source: IO[bytes], path: str | os.PathLike[str], *, verify: bool = True, mapped: bool = False
) -> Body:
    """Read the header, codes, ids and facts of an open file. ``verify`` compares the checksum of
    the codes. A body of more than ``IN_MEMORY`` bytes is mapped, and any body if ``mapped``."""
    size = os.fstat(source.fileno()).st_size
    source.seek(0)
    head = source.read(SIZE)
    header = read_header(head, size, path)
    if not header.rows and not header.facts:
        return Body(header, Snapshot(header.bits))
    map_source = None
    if mapped or header.end > IN_MEMORY:
        map_source = Source(source.fileno(), path, head, header.end)
        view = memoryview(mmap.mmap(source.fileno(), header.end, access=mmap.ACCESS_READ))
    else:
        view = _read_all(source, header.end, path)
    codes, ids = view[SIZE : header.codes_end], view[header.codes_end : header.ids_end]
    if zlib.crc32(ids) != header.ids_crc or any(view[header.facts_end :]):
        refuse_damaged(path, "the checksum of its ids does not match", repair=True)
    facts = _read_facts(bytes(view[header.ids_end : header.facts_end]), header, path)
    if not header.rows:
        return Body(header, Snapshot(header.bits, facts=facts))
    if verify and zlib.crc32(codes) != header.codes_crc:
        refuse_damaged(path, "the checksum of its codes does not match", repair=True)
    words = np.frombuffer(codes, np.uint64).reshape(-1, header.rows)
    if header.bits % 64 and (words[-1] & mask_padding(header.bits)).any():
        refuse_damaged(path, "bits are set past the end of a code")
    try:
        column = decode_ids(header.kind, header.first, header.rows, ids)
    except ValueError:
        refuse_damaged(path, "its ids cannot be read")
    if not column.is_distinct():
        refuse_damaged(path, "it holds an id twice")
    block = Words(words, header.bits)
    tables = LazyTables(block, TableFile(Path(f"{path}.tables"), head))
    segment = Segment(block, column, mapped=map_source is not None, tables=tables)
    return Body(header, Snapshot(header.bits, (segment,), facts), map_source)


def _read_all(source: IO[bytes], size: int, path: str | os.PathLike[str]) -> memoryview:
    data = np.empty(size, np.uint8)
    source.seek(0)
    if source.readinto(data.data) < size:  # type: ignore[attr-defined]
        refuse_damaged(path, "it became shorter while it was read")
    data.flags.writeable = False
    return data.data


def _read_facts(data: bytes, header: Header, path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        if zlib.crc32(data) != header.facts_crc:
            raise ValueError
        return read_facts(data.decode("ascii")) if data else {}
    except (ValueError, RecursionError):
        refuse_damaged(path, "its facts cannot be read")


def mask_padding(bits: int) -> np.uint64:
    """The bits of a code's last word that lie past its end and must be zero."""
    ones = np.packbits(np.arange(64) >= (bits - 1) % 64 + 1)
    return np.uint64(ones.view(np.uint64)[0])


def write_body(file: IO[bytes], state: Snapshot) -> Header:
    """Write the rows that are not removed; the header comes last, since it holds the checksums."""
    file.write(bytes(SIZE))
    crc = 0
    for w in range(-(-state.bits // 64)):
        for segment in state.segments:
            row = segment.words.words[w]
            for start in range(0, len(row), CHUNK // 8):
                part = row[start : start + CHUNK // 8]
                if segment.alive is not None:
                    part = part[segment.alive[start : start + CHUNK // 8]]
                data = np.ascontiguousarray(part).data.cast("B")
                crc = zlib.crc32(data, crc)
                file.write(data)
    columns = [s.ids.keep(s.alive) for s in state.segments]
    kind, first, parts = encode_ids(join_columns(columns) if columns else Column(None, 0, 0))
    ids_crc, length = 0, 0
    for piece in parts:
        ids_crc = zlib.crc32(piece, ids_crc)
        length += len(piece)
        file.write(piece)
    text = length - 8 * (state.count + 1) if kind == STRINGS else 0
    facts = json.dumps(dict(state.facts)).encode("ascii") if state.facts else b""
    file.write(facts)
    sums = (crc, ids_crc, len(facts), zlib.crc32(facts))
    header = Header(kind, state.bits, state.count, first, text, *sums)
    file.write(bytes(header.end - header.facts_end))
    file.seek(0)
    file.write(header.to_bytes())
    return header


def replace_whole(
    path: str | os.PathLike[str],
    state: Snapshot,
    keep: Callable[[int], object] | None = None,
    *,
    replace: bool = True,
) -> Header:
    """Replace the file at ``path`` by one of ``state`` in one step. ``keep`` is called with the
    handle of the new file before it takes the name, while nobody else can open it."""
    headers: list[Header] = []

    def write(file: IO[bytes]) -> None:
        headers.append(write_body(file, state))
        if keep is not None:
            file.flush()
            keep(file.fileno())

    write_whole(path, write, replace=replace)
    return headers[0]


def save(path: str | os.PathLike[str], state: Snapshot) -> None:
    """Write ``state`` to ``path``; refuse where another process has the file open for writing."""
    handle = lock.open_locked(path) if Path(path).exists() else None
    try:
        replace_whole(path, state)
    finally:
        if handle is not None:
            lock.release(handle)
