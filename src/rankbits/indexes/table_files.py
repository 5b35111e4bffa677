"""Tables in a file beside the index whose codes they order, so that a restart reads them.

```
  0   8  "RBTABLE1"
  8 128  the header of the index file, which has the checksums of its codes and ids
136   4  uint32  crc32 of all that follows the head
140   4  uint32  crc32 of bytes 0 to 139
144      parts, codes, begin and rows of ``Tables``
```

How long each array is follows from bits and rows. A file that is damaged, or that was written for
other codes or by another way of cutting them, counts as missing: tables can always be made again.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from rankbits._files import write_whole
from rankbits.kernels import Tables, Words, cut_parts

MAGIC = b"RBTABLE1"
END = struct.Struct("<II")


@dataclass(frozen=True)
class TableFile:
    """Where the tables of an index file lie, and the ``header`` that the index file has."""

    path: Path
    header: bytes

    def read(self, codes: Words) -> Tables | None:
        """The tables of these codes; None where the file has none."""
        head = MAGIC + self.header
        parts = cut_parts(codes.bits, len(codes))
        try:
            with open(self.path, "rb") as source:
                if source.read(len(head)) != head:
                    return None
                crc, sealed = END.unpack(source.read(END.size))
                if sealed != zlib.crc32(head + struct.pack("<I", crc)):
                    return None
                tables = Tables.empty(parts, len(codes), codes.bits)
                whole = all(
                    source.readinto(array.data.cast("B")) == array.nbytes  # type: ignore[attr-defined]
                    for array in _arrays(tables)
                )
                if not whole or source.read(1):
                    return None
        except (OSError, struct.error):
            return None
        same = _checksum(tables) == crc and (tables.parts == parts).all()
        return tables.freeze() if same else None

    def write(self, tables: Tables) -> None:
        """Write the tables, whole or not at all."""

        def write(file: IO[bytes]) -> None:
            head = MAGIC + self.header + struct.pack("<I", _checksum(tables))
            file.write(head + struct.pack("<I", zlib.crc32(head)))
            for array in _arrays(tables):
                file.write(array.data.cast("B"))

        write_whole(self.path, write)


def _arrays(tables: Tables) -> tuple[np.ndarray, ...]:
    return tables.parts, tables.codes, tables.begin, tables.rows


def _checksum(tables: Tables) -> int:
    crc = 0
    for array in _arrays(tables):
        crc = zlib.crc32(array.data.cast("B"), crc)
    return crc
