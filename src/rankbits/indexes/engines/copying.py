"""Codes and ids in PostgreSQL's binary COPY format."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from rankbits.types import Codes

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
CHUNK = 1 << 16  # rows laid out at a time


def lay_out_rows(codes: Codes, ids: np.ndarray) -> Iterator[bytes]:
    """Rows in the binary COPY format: for each field its length, big-endian, then its bytes."""
    width = codes.packed.shape[1]
    yield HEADER
    for start in range(0, len(codes), CHUNK):
        packed, names = codes.packed[start : start + CHUNK], ids[start : start + CHUNK]
        if names.dtype == object:
            tail = struct.pack(">ii", width + 4, codes.bits)
            texts = (name.encode() for name in names.tolist())
            yield b"".join(
                struct.pack(">hi", 2, len(text)) + text + tail + code.tobytes()
                for text, code in zip(texts, packed, strict=True)
            )
            continue
        layout = [("fields", ">i2"), ("eight", ">i4"), ("id", ">i8"), ("length", ">i4")]
        rows = np.zeros(len(packed), [*layout, ("bits", ">i4"), ("code", "u1", (width,))])
        rows["fields"], rows["eight"], rows["id"] = 2, 8, names
        rows["length"], rows["bits"], rows["code"] = width + 4, codes.bits, packed
        yield rows.tobytes()
    yield b"\xff\xff"
