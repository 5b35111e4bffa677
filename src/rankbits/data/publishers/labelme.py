"""22K LabelMe (A. Torralba et al., 2008): 22,019 images as GIST descriptors of 512 numbers, without
labels.

``labelme/LabelMe_gist.mat``, MATLAB's format 5, or ``labelme/LabelMe_gist.npz``; either holds the
array ``gist``. Format 5 is read here, numbers only: a tag, a length and bytes, the larger elements
packed with zlib.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.examples import Examples
from rankbits.data.publishers.published import Published
from rankbits.data.root import missing

DIM = 512
MOST_BYTES = 1 << 31
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
MATRIX, PACKED = 14, 15  # kinds of elements
REAL, COMPLEX = range(6, 14), 1 << 11  # classes of matrices, and a flag


def read(root: Path) -> Published:
    """GIST descriptors float32; part ``all``. With no labels every image is a class of its own."""
    plain = root / "labelme" / "LabelMe_gist.npz"
    matlab = plain.with_suffix(".mat")
    if not plain.is_file() and not matlab.is_file():
        missing(matlab, "the GIST descriptors of 22K LabelMe")
    source = plain if plain.is_file() else matlab
    gist = read_columns(plain).get("gist") if plain.is_file() else read_matlab(matlab, "gist")
    if gist is None or gist.ndim != 2 or gist.shape[1] != DIM or gist.dtype.kind != "f":
        _check.refuse(f"{source} must hold 'gist', an array of numbers of shape (n, {DIM}).")
    features = _check.finite(f"gist of {source}", gist.astype(np.float32))
    rows = np.arange(len(features))
    return Published(Examples(features, rows), {"all": rows})


def read_matlab(path: Path, name: str) -> np.ndarray | None:
    """The matrix of numbers called ``name`` in a file of MATLAB's format 5, or None."""
    raw = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128])
    if order is None or not raw.startswith(b"MATLAB 5.0"):
        _check.refuse(f"{path} is not a file of MATLAB's format 5 (save -v7); put an .npz there.")
    try:
        for kind, body in _elements(raw[128:], order):
            if kind == PACKED:
                kind, body = next(_elements(_unpacked(body), order))
            if kind == MATRIX and (found := _matrix(body, order, name)) is not None:
                return found
    except (struct.error, zlib.error, ValueError, StopIteration, KeyError, IndexError):
        _check.refuse(f"{path} is truncated or damaged.")
    return None


def _unpacked(body: bytes) -> bytes:
    worker = zlib.decompressobj()
    found = worker.decompress(body, MOST_BYTES)
    if worker.unconsumed_tail or not worker.eof:
        raise ValueError
    return found


def _elements(raw: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each element; a body of up to four bytes may share the tag's second half."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from(f"{order}II", raw, at)
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        else:
            start = at + 8
            step = 8 + size + (0 if kind == PACKED else -size % 8)
        if start + size > len(raw):
            raise ValueError
        yield kind, raw[start : start + size]
        at += step


def _matrix(body: bytes, order: str, name: str) -> np.ndarray | None:
    """Flags, sizes, name, numbers: MATLAB keeps them by column."""
    parts = _elements(body, order)
    _, flags = next(parts)
    _, sizes = next(parts)
    _, found = next(parts)
    word = struct.unpack(f"{order}I", flags[:4])[0]
    if found != name.encode() or word & 0xFF not in REAL or word & COMPLEX:
        return None
    kind, numbers = next(parts)
    values = np.frombuffer(numbers, f"{order}{NUMBERS[kind]}")
    shape = tuple(np.frombuffer(sizes, f"{order}i4"))
    return values.reshape(shape, order="F").astype(np.float64)
