"""Write pixels as a PNG in a data URI, which a page can hold.

PNG is written by hand, in a dozen lines, so that a page can be made without Pillow.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from rankbits import _check

KINDS = {1: 0, 3: 2, 4: 6}  # channels: PNG's colour type
MOST_SIDE = 128


def encode_png(pixels: np.ndarray) -> bytes:
    """Turn uint8 (h, w) or (h, w, 1, 3 or 4) into the bytes of a PNG file.

    >>> encode_png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    cube = pixels[..., None] if pixels.ndim == 2 else pixels
    if cube.dtype != np.uint8 or cube.ndim != 3 or cube.shape[2] not in KINDS or not cube.size:
        _check.refuse(
            f"Pixels must be uint8 (h, w) or (h, w, 1, 3 or 4); got {pixels.dtype} {pixels.shape}."
        )
    height, width, channels = cube.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter, 0
    rows[:, 1:] = cube.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, KINDS[channels], 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    )


def make_uri(pixels: np.ndarray) -> str:
    """Write pixels as ``data:image/png;base64,...``."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def colour_correlations(correlation: np.ndarray) -> np.ndarray:
    """Turn correlations (b, b) into RGBA pixels: blue above 0, orange below, clear at 0, so that
    the page shows through. Past 128 bits, blocks of cells are averaged.

    >>> colour_correlations(np.array([[1.0, -0.5], [-0.5, 1.0]]))[0].tolist()
    [[0, 114, 178, 255], [213, 94, 0, 128]]
    """
    block = -(-len(correlation) // MOST_SIDE)
    if block > 1:
        side = len(correlation) // block
        cut = correlation[: side * block, : side * block].reshape(side, block, side, block)
        correlation = np.abs(cut).mean(axis=(1, 3)) * np.sign(cut.sum(axis=(1, 3)))
    pixels = np.empty((*correlation.shape, 4), np.uint8)
    pixels[..., :3] = np.where((correlation >= 0)[..., None], (0, 114, 178), (213, 94, 0))
    pixels[..., 3] = np.rint(255 * np.clip(np.abs(correlation), 0, 1))
    return pixels
