"""Pixels as a data URI: a PNG small enough to stand inside the page."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from rankbits import _check

KINDS = {1: 0, 3: 2, 4: 6}  # channels: PNG's colour type
MOST_SIDE = 128


def png(pixels: np.ndarray) -> bytes:
    """uint8 (h, w), or (h, w, 1, 3 or 4) -> the bytes of a PNG file.

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    found = np.asarray(pixels)
    found = found[..., None] if found.ndim == 2 else found
    if found.dtype != np.uint8 or found.ndim != 3 or found.shape[2] not in KINDS or not found.size:
        _check.refuse(
            f"Pixels must be uint8 (h, w) or (h, w, 1, 3 or 4); got {pixels.dtype} {pixels.shape}."
        )
    height, width, channels = found.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter, 0
    rows[:, 1:] = found.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, KINDS[channels], 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    )


def uri(pixels: np.ndarray) -> str:
    """The pixels as ``data:image/png;base64,...``."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def heat(correlation: np.ndarray) -> np.ndarray:
    """Correlations (b, b) as RGBA: blue above 0, orange below, clear at 0, so that any paper shows
    through; past 128 bits neighbouring cells are averaged, strongest sign first.

    >>> heat(np.array([[1.0, -0.5], [-0.5, 1.0]]))[0].tolist()
    [[0, 114, 178, 255], [213, 94, 0, 128]]
    """
    block = -(-len(correlation) // MOST_SIDE)
    if block > 1:
        side = len(correlation) // block
        cut = correlation[: side * block, : side * block].reshape(side, block, side, block)
        correlation = np.abs(cut).mean(axis=(1, 3)) * np.sign(cut.sum(axis=(1, 3)))
    made = np.empty((*correlation.shape, 4), np.uint8)
    made[..., :3] = np.where((correlation >= 0)[..., None], (0, 114, 178), (213, 94, 0))
    made[..., 3] = np.rint(255 * np.clip(np.abs(correlation), 0, 1))
    return made
