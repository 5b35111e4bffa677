"""Omniglot (B. Lake et al., 2015): drawings of 1,623 characters in 50 alphabets.

``omniglot/images_background.zip`` and ``images_evaluation.zip``, or the folders they unpack to,
``images_background/Alphabet/characterNN/*.png``. Ink is 0 and paper 255, as in the files. Alphabets
are categories. Sums are of the pixels, because the archives exist in several packings.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

SIDE = 105
MOST_BYTES = 1 << 16
SUMS = {
    "images_background": "6699ae4df8ffac22aee7951d7cba6e421d3c2f9276990b84beacf5bef54348ea",
    "images_evaluation": "afb28aaea14406a6cf3c19d26de4ed60d69ccb7f5e6373afffc637b4784c039c",
}


def read(root: Path) -> published.Dataset:
    """Read 32,460 grey images of 105 x 105; parts ``background`` and ``evaluation``."""
    parts, alphabets, characters = [], [], []
    for part in SUMS:
        images, names = _read_part(root / "omniglot" / part)
        parts.append(images)
        alphabets += [alphabet for alphabet, _ in names]
        characters += [f"{alphabet}/{character}" for alphabet, character in names]
    labels, class_names = published.number_names(characters)
    categories, category_names = published.number_names(alphabets)
    return published.Dataset(
        Examples(np.concatenate(parts), labels, categories, class_names, category_names),
        published.split_in_order(background=len(parts[0]), evaluation=len(parts[1])),
    )


def _read_part(folder: Path) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Read images (n, 105, 105, 1) in the order of their names, and (alphabet, character) each."""
    images, names = [], []
    for name, raw in _read_drawings(folder):
        alphabet, character, _ = name.split("/")
        images.append(_decode(f"{folder}/{name}", raw))
        names.append((alphabet, character))
    if not images:
        _check.refuse(f"{folder} must hold Alphabet/characterNN/*.png; it holds none.")
    pixels = np.stack(images)
    published.check_sum(folder, np.packbits(pixels == 0), SUMS)
    return pixels[..., None], names


def _read_drawings(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Read ``Alphabet/characterNN/file.png`` and its bytes, by name, from a zip or a folder."""
    archive = folder.with_name(f"{folder.name}.zip")
    if archive.is_file():
        yield from _unpack(archive, f"{folder.name}/")
    elif folder.is_dir():
        files = {p.relative_to(folder).as_posix(): p for p in folder.glob("*/*/*.png")}
        for name in sorted(files):
            yield name, files[name].read_bytes()
    else:
        published.refuse_missing(archive, "the archive of Omniglot")


def _unpack(archive: Path, start: str) -> list[tuple[str, bytes]]:
    """Unpack the drawings of a zip. zipfile raises RuntimeError at an entry that is encrypted or
    packed by a method it does not know."""
    drawings = []
    try:
        with zipfile.ZipFile(archive) as packed:
            for entry in sorted(packed.infolist(), key=lambda e: e.filename):
                name = entry.filename.removeprefix(start)
                if not name.endswith(".png") or name.count("/") != 2:
                    continue
                if entry.file_size > MOST_BYTES:
                    _check.refuse(f"{archive} holds {name} of {entry.file_size:,} bytes.")
                drawings.append((name, packed.read(entry)))
    except (zipfile.BadZipFile, zlib.error, EOFError):
        _check.refuse(f"{archive} is truncated, damaged or not a zip file.")
    except RuntimeError as error:
        _check.refuse(f"{archive} cannot be unpacked: {error}.")
    return drawings


def _decode(name: str, raw: bytes) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        _check.refuse("Images need Pillow: pip install 'rankbits[images]'.")
    try:
        with Image.open(io.BytesIO(raw), formats=("PNG",)) as image:
            if image.size == (SIDE, SIDE):
                return np.asarray(image.convert("L"), np.uint8)
    except Exception:
        # a damaged file may make the decoder raise anything
        _check.refuse(f"{name} is truncated, damaged or not a PNG file.")
    _check.refuse(f"{name} must be of {SIDE} x {SIDE} pixels; got {image.size}.")
