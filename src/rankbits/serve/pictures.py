"""Draw thumbnails of items. The bytes of a file itself are never sent."""

from __future__ import annotations

import io
import os

import numpy as np

from rankbits import _check
from rankbits.data.images import decode, measure

SIDE = 256  # the longest side of a thumbnail
CRISP = 64  # images up to this side are enlarged by a whole number, each pixel a square


def draw_file(path: str) -> tuple[bytes, str]:
    """Draw the middle square of an image file, at most ``SIDE`` wide -> its bytes and type."""
    if not os.path.isfile(path):  # to read a pipe could take for ever
        _check.refuse(f"{path} is not a file.")
    side = min(SIDE, *measure(path))
    pixels = decode(path, side)
    return _encode(pixels, "PNG") if side <= CRISP else _encode(pixels, "JPEG")


def draw_array(pixels: np.ndarray) -> tuple[bytes, str]:
    """Draw an image (h, w) or (h, w, channels), uint8, as PNG; small ones with pixels as squares.

    >>> draw_array(np.zeros((8, 8), np.uint8))[1]
    'image/png'
    """
    step = max(1, CRISP // max(pixels.shape[:2]))
    large = pixels.repeat(step, axis=0).repeat(step, axis=1)
    return _encode(large, "PNG")


def _encode(pixels: np.ndarray, form: str) -> tuple[bytes, str]:
    try:
        from PIL import Image
    except ImportError:
        _check.refuse("Images need Pillow: pip install 'rankbits[images]'.")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form)
    return out.getvalue(), f"image/{form.lower()}"
