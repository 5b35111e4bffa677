"""Check uploaded images before they reach the decoder.

Only the pixels of an upload are used. Its bytes are decoded, under limits, in a fixed list of
formats, and are neither stored nor sent to anybody; so what else they may contain does no harm.
"""

from __future__ import annotations

import io

from rankbits.data.images import Unreadable, measure
from rankbits.serve.limits import reject

STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"GIF87a", b"GIF89a", b"BM")


class Upload(io.BytesIO):
    """The bytes of an upload; refusals that name a file call it "The upload"."""

    def __str__(self) -> str:
        return "The upload"


def check_upload(raw: bytes, pixels: int) -> Upload:
    """Check the format and the size of an upload by its header, and return it."""
    if not raw:
        reject(422, "The upload must be an image; it is empty.")
    if not raw.startswith(STARTS):
        reject(415, "The upload must be a PNG, JPEG, WebP, GIF or BMP image; it is none of them.")
    upload = Upload(raw)
    try:
        width, height = measure(upload)  # type: ignore[arg-type]
    except Unreadable as sentence:
        reject(413 if "pixels" in str(sentence) else 422, str(sentence))
    if width * height > pixels:
        reject(413, f"The upload must have at most {pixels:,} pixels; got {width:,} x {height:,}.")
    upload.seek(0)
    return upload
