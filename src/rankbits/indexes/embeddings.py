"""Embeddings that stay on the disk: mapped .npy files, or int8 with a scale for each dimension."""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from rankbits import _check
from rankbits._files import write_whole

KIND = "int8 embeddings"
CHUNK = 1 << 22  # numbers handled at a time
MOST_HEADER = 1 << 16


class Embeddings:
    """Rows (n, dim) of floats, or of int8 that ``scale`` (dim,) turns into floats again. Rows of a
    file are read when they are needed, so that the file takes no memory."""

    def __init__(self, values: Any, *, verify: bool = True) -> None:
        self.scale: np.ndarray | None = None
        self._path = values
        self._map: mmap.mmap | None = None
        if isinstance(values, (str, os.PathLike)):
            values = self._open(Path(values), verify)
        self.rows = _check.matrix("embeddings", values)
        if self.rows.dtype.kind != "f" and self.rows.dtype != np.int8:
            _check.refuse(f"embeddings must be floats or int8; got {self.rows.dtype}.")
        self.count, self.dim = self.rows.shape

    def _open(self, path: Path, verify: bool) -> np.ndarray:
        if not path.is_file():
            _check.refuse(f"{path} does not exist or is not a file.")
        if path.suffix == ".npy":
            try:
                rows = np.load(path, mmap_mode="r", allow_pickle=False)
                self._map = getattr(rows, "_mmap", None)
                return rows
            except (ValueError, EOFError, OSError, SyntaxError, OverflowError, MemoryError):
                _check.refuse(f"{path} is truncated, damaged or not a .npy file of numbers.")
        try:
            rows, self.scale, self._map = _map_int8(path, verify)
        except (ValueError, KeyError, TypeError, struct.error, RecursionError):
            _check.refuse(f"{path} is truncated, damaged or not a file of {KIND}.")
        return rows

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these numbers, as float32 (m, dim)."""
        # reading a map past the end of its file kills the process, so the length is checked first
        if self._map is not None and self._map.size() < len(self._map):
            _check.refuse(f"{self._path} was cut short while it was open: open it again.")
        floats = np.asarray(self.rows[rows], np.float32)
        return floats if self.scale is None else floats * self.scale


def _read_blocks(source: Embeddings) -> Iterator[np.ndarray]:
    step = max(1, CHUNK // max(1, source.dim))
    for start in range(0, source.count, step):
        yield source.floats(np.arange(start, min(start + step, source.count)))


def quantize_int8(embeddings: Any, path: str | os.PathLike[str]) -> None:
    """Write embeddings (n, dim), an array or a .npy file, as int8: a quarter of float32's size.

    The scale of a dimension is its largest magnitude divided by 127, and the error of a number is
    at most half the scale. The file is safetensors with ``rows`` and ``scale``. The embeddings are
    read twice, a few rows at a time.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.safetensors"
    >>> quantize_int8(np.array([[1.0, -8.0], [0.5, 2.0]], np.float32), path)
    >>> Embeddings(path).floats(np.array([1])).round(1)
    array([[0.5, 2. ]], dtype=float32)
    """
    source = Embeddings(embeddings)
    if Path(path).suffix != ".safetensors":
        _check.refuse(f"{path} must end in .safetensors.")
    _check.not_empty("embeddings", source.count)
    largest = np.zeros(source.dim, np.float32)
    at = 0
    for block in _read_blocks(source):
        if not np.isfinite(block).all():
            bad = at + int(np.argmin(np.isfinite(block).all(axis=1)))
            _check.refuse(f"embeddings must be finite; row {bad} has nan or inf.")
        np.maximum(largest, np.abs(block).max(axis=0), out=largest)
        at += len(block)
    scale = np.where(largest > 0, largest / 127, 1).astype("<f4")

    def write(file: IO[bytes]) -> None:
        head = _make_header(source.count, source.dim, zlib.crc32(scale.tobytes()), 0)
        file.write(head + scale.tobytes())
        crc = 0
        for block in _read_blocks(source):
            small = np.clip(np.rint(block / scale), -127, 127).astype(np.int8)
            crc = zlib.crc32(small.tobytes(), crc)
            file.write(small.tobytes())
        file.seek(0)
        file.write(_make_header(source.count, source.dim, zlib.crc32(scale.tobytes()), crc))

    write_whole(path, write)


def _make_header(count: int, dim: int, scale_crc: int, rows_crc: int) -> bytes:
    facts = {"rankbits": KIND, "crc32.scale": f"{scale_crc:08x}", "crc32.rows": f"{rows_crc:08x}"}
    ends = (0, 4 * dim, 4 * dim + count * dim)
    text = json.dumps({
        "__metadata__": facts,
        "scale": {"dtype": "F32", "shape": [dim], "data_offsets": ends[:2]},
        "rows": {"dtype": "I8", "shape": [count, dim], "data_offsets": ends[1:]},
    }).encode()  # fmt: skip
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _map_int8(path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray, mmap.mmap]:
    """The mapped int8 rows, the scale and the map; ValueError where it is not such a file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > MOST_HEADER:
            raise ValueError
        head = file.read(length)
        facts = json.loads(head)
        count, dim = facts["rows"]["shape"]
        sums = [int(facts["__metadata__"][f"crc32.{name}"], 16) for name in ("scale", "rows")]
        start = 8 + length
        same = struct.pack("<Q", length) + head == _make_header(count, dim, *sums)
        whole = os.fstat(file.fileno()).st_size == start + 4 * dim + count * dim
        if not (same and whole) or count < 1 or dim < 1:
            raise ValueError
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = memoryview(mapped)[start:]
    scale, rows = data[: 4 * dim], data[4 * dim :]
    if zlib.crc32(scale) != sums[0] or (verify and zlib.crc32(rows) != sums[1]):
        raise ValueError
    return np.frombuffer(rows, np.int8).reshape(count, dim), np.frombuffer(scale, "<f4"), mapped
