"""Uploaded images: which bytes may reach a decoder.

An upload must be one image and nothing else. A file that is also an archive, a page or a script is
refused by how it begins and by what follows the image's own end.
"""

from __future__ import annotations

import io
import struct

from rankbits.data.images import Unreadable, measure
from rankbits.serve.limits import reject

SNIFFED = 1024  # bytes at the start,
TAIL = 66_000  # and at the end, in which something else would be looked for
MARKUP = (b"<svg", b"<html", b"<script", b"<!doctype", b"<?php", b"%pdf-")
ARCHIVE = b"PK\x05\x06"  # readers of zip look for it from the end


class Upload(io.BytesIO):
    """The bytes of an upload, which sentences about files call "The upload"."""

    def __str__(self) -> str:
        return "The upload"


def checked(raw: bytes, pixels: int) -> Upload:
    """Check the format, the end and the size of an upload, and return it."""
    if not raw:
        reject(422, "The upload is empty; an image is wanted.")
    ends = next((end for head, end in ENDS if raw.startswith(head)), None)
    if ends is None or (ends is _riff_end and raw[8:12] != b"WEBP"):
        reject(415, "The upload must be a PNG, JPEG, WebP, GIF or BMP image; it is none of them.")
    seen = (raw[:SNIFFED] + b"\n" + raw[SNIFFED:][-TAIL:]).lower()
    if any(word in seen for word in MARKUP):
        reject(415, "The upload is an image and something else at once; send a plain image.")
    end = ends(raw)
    if end is None:
        reject(422, "The upload is truncated or damaged.")
    rest = raw[end:]
    if rest.strip(b"\0") or ARCHIVE in raw[-TAIL:]:
        reject(415, "The upload has other content after its image; send a plain image.")
    upload = Upload(raw)
    try:
        width, height = measure(upload)  # type: ignore[arg-type]
    except Unreadable as sentence:
        status = 413 if "pixels" in str(sentence) else 422
        reject(status, str(sentence))
    if width * height > pixels:
        reject(413, f"The upload must have at most {pixels:,} pixels; got {width:,} x {height:,}.")
    upload.seek(0)
    return upload


def _png_end(raw: bytes) -> int | None:
    at = 8
    while at + 12 <= len(raw):
        size, kind = struct.unpack_from(">I4s", raw, at)
        at += 12 + size
        if kind == b"IEND":
            return at if at <= len(raw) else None
    return None


def _jpeg_end(raw: bytes) -> int | None:
    """The whole file: phones put previews, second images and films behind the first."""
    return len(raw) if b"\xff\xd9" in raw else None


def _gif_end(raw: bytes) -> int | None:
    """Past the trailer, over blocks whose lengths are told."""
    if len(raw) < 13:
        return None
    at = 13 + (3 << ((raw[10] & 7) + 1) if raw[10] & 0x80 else 0)
    while at < len(raw):
        kind = raw[at]
        if kind == 0x3B:
            return at + 1
        if kind == 0x21:
            at += 2
        elif kind == 0x2C and at + 9 < len(raw):
            packed = raw[at + 9]
            at += 11 + (3 << ((packed & 7) + 1) if packed & 0x80 else 0)
        else:
            return None
        while at < len(raw) and raw[at]:
            at += 1 + raw[at]
        at += 1
    return None


def _riff_end(raw: bytes) -> int | None:
    if len(raw) < 12:
        return None
    end = 8 + struct.unpack_from("<I", raw, 4)[0]
    return end + end % 2 if end <= len(raw) else None


def _bmp_end(raw: bytes) -> int | None:
    if len(raw) < 6:
        return None
    end = struct.unpack_from("<I", raw, 2)[0]
    return end if end <= len(raw) else None


ENDS = (
    (b"\x89PNG\r\n\x1a\n", _png_end),
    (b"\xff\xd8\xff", _jpeg_end),
    (b"GIF87a", _gif_end),
    (b"GIF89a", _gif_end),
    (b"RIFF", _riff_end),
    (b"BM", _bmp_end),
)
