"""Image files, and their decoding to pixels.

Decoding hands unknown bytes to a large library, so it is strict: only a fixed list of formats is
read, the header is read before any pixel, and every failure is one sentence that names the file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
MOST_PIXELS = 2**26
SAMPLE, GREY = 32, 8.0  # images looked at; how far apart red, green and blue are without colours


class Unreadable(_check.Refusal):
    """An image that cannot become pixels; its text is one sentence that names the file.

    >>> try:
    ...     decode("nowhere.png", 32)
    ... except Unreadable as sentence:
    ...     print(sentence)
    nowhere.png does not exist.
    """


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images that stay on disk: ``paths`` is (n,) of str, one file a row.

    >>> files = ImageFiles(np.array(["a.png", "b.png", "c.png"]))
    >>> len(files), files[np.array([2, 0])].paths.tolist()
    (3, ['c.png', 'a.png'])
    """

    paths: np.ndarray

    def __post_init__(self) -> None:
        paths = np.asarray(self.paths)
        if paths.size == 0:
            paths = paths.astype(str)
        if paths.ndim != 1 or paths.dtype.kind != "U":
            _check.refuse(
                f"paths must be (n,) of str; got shape {paths.shape} and dtype {paths.dtype}."
            )
        object.__setattr__(self, "paths", paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> ImageFiles:
        return ImageFiles(np.atleast_1d(self.paths[rows]))


def decode(path: str | os.PathLike[str], side: int, channels: int = 3) -> np.ndarray:
    """Pixels of an image file, uint8 (side, side, channels): the shorter side is resized to
    ``side`` (bilinear, antialiased) and the centre is kept.

    The image is turned as its EXIF orientation says, transparent parts become white, palettes, 16
    bits and CMYK become plain RGB (``channels=3``) or grey (``channels=1``), and only the first
    frame of an animation is read. More than ``MOST_PIXELS`` pixels are refused from the header.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (40, 20), (255, 0, 0)).save(f"{folder}/red.png")
    ...     decode(f"{folder}/red.png", 2).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    side = _check.whole("side", side, 1)
    if channels not in (1, 3):
        _check.refuse(f"channels must be 1 or 3; got {channels!r}.")
    pillow = _import_pillow()
    try:
        with _open(path) as image:
            if image.format in ("JPEG", "MPO"):
                # MPO is what phones write as .jpg. The decoder can shrink while it decodes; at
                # twice the wanted side the resize below still makes the final pixels.
                image.draft(None, (2 * side, 2 * side))
            upright = pillow.ImageOps.exif_transpose(image)
            plain = _make_plain(pillow.Image, _crop_centre(upright))
            shown = plain.convert("RGB" if channels == 3 else "L")
            small = shown.resize((side, side), pillow.Image.Resampling.BILINEAR)
            return np.asarray(small, np.uint8).reshape(side, side, channels)
    except _check.Refusal:
        raise
    except Exception as error:
        # a damaged file may make the decoder raise anything
        raise Unreadable(f"{path} is truncated or damaged.") from error


def measure(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Width and height of an image file, from its header."""
    with _open(path) as image:
        return image.size


def have_colours(images: ImageFiles | np.ndarray) -> bool:
    """Tell whether images, files or (n, height, width, channels), have colours, as photographs have
    and drawings or scans have not; from a sample of those that can be read.

    >>> have_colours(np.full((9, 4, 4, 3), 200, np.uint8))
    False
    """
    step = max(1, len(images) // SAMPLE)
    sample: list[np.ndarray] = []
    if isinstance(images, ImageFiles):
        for path in images.paths[::step][:SAMPLE]:
            with contextlib.suppress(Unreadable):
                sample.append(decode(str(path), 16))
    else:
        sample += list(images[::step][:SAMPLE])
    spans = [float(np.mean(pixels.max(2) - pixels.min(2))) for pixels in sample]
    return bool(spans) and float(np.mean(spans)) > GREY


def _import_pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        _check.refuse("Images need Pillow: pip install 'rankbits[images]'.")
    return PIL


def _open(path: str | os.PathLike[str]) -> Any:
    """Open an image: its header is read, and no pixel decoded."""
    pillow = _import_pillow()
    try:
        image = pillow.Image.open(path, formats=FORMATS)
    except FileNotFoundError as error:
        raise Unreadable(f"{path} does not exist.") from error
    except (pillow.Image.DecompressionBombError, pillow.Image.DecompressionBombWarning) as error:
        raise Unreadable(f"{path} must have at most {MOST_PIXELS:,} pixels.") from error
    except pillow.UnidentifiedImageError as error:
        raise Unreadable(f"{path} is not an image of a known format.") from error
    except Exception as error:
        raise Unreadable(f"{path} cannot be read as an image.") from error
    width, height = image.size
    if width * height > MOST_PIXELS:
        image.close()
        raise Unreadable(
            f"{path} must have at most {MOST_PIXELS:,} pixels; got {width:,} x {height:,}."
        )
    return image


def _crop_centre(image: Any) -> Any:
    """The square at the centre, cut before resizing: a long thin image would become huge."""
    width, height = image.size
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    return image.crop((left, top, left + short, top + short))


def _make_plain(library: Any, image: Any) -> Any:
    """The image with 8 bits a channel and nothing transparent."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _to_eight_bits(library, image)
    if image.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        with_alpha = image.convert("RGBA")
        return library.alpha_composite(library.new("RGBA", image.size, "white"), with_alpha)
    return image.convert("RGB") if image.mode == "P" else image


def _to_eight_bits(library: Any, image: Any) -> Any:
    """Grey images of 16 bits or floats in 8 bits; floats up to 1 are shares of white."""
    values = np.nan_to_num(np.asarray(image, np.float64), posinf=np.inf, neginf=0.0)
    most = values.max(initial=0.0)
    if image.mode == "F":
        values = values * 255 if most <= 1 else values
    elif most > 255 or image.mode != "I":
        values = np.floor(values / 256)
    return library.fromarray(np.clip(values, 0, 255).astype(np.uint8))
