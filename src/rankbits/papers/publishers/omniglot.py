"""Omniglot (B. Lake et al., 2015): drawings of 1,623 characters in 50 alphabets.

``omniglot/images_background.zip`` and ``images_evaluation.zip``, read where they are, or the
folders they unpack to, ``images_background/Alphabet/characterNN/*.png``. As in the files, ink is 0
and paper 255. Alphabets are categories. Sums are of the pixels, for the archives exist packed anew.
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
    """32,460 grey images of 105 x 105; parts ``background`` and ``evaluation``."""
    shown, alphabets, characters = [], [], []
    for part in SUMS:
        images, of = _read_part(root / "omniglot" / part)
        shown.append(images)
        alphabets += [alphabet for alphabet, _ in of]
        characters += [f"{alphabet}/{character}" for alphabet, character in of]
    labels, class_names = published.number_names(characters)
    categories, category_names = published.number_names(alphabets)
    return published.Dataset(
        Examples(np.concatenate(shown), labels, categories, class_names, category_names),
        published.split_in_order(background=len(shown[0]), evaluation=len(shown[1])),
    )


def _read_part(folder: Path) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Images (n, 105, 105, 1) in the order of their names, and (alphabet, character) of each."""
    images, of = [], []
    for name, raw in _list_drawings(folder):
        alphabet, character, _ = name.split("/")
        images.append(_decode(f"{folder}/{name}", raw))
        of.append((alphabet, character))
    if not images:
        _check.refuse(f"{folder} must hold Alphabet/characterNN/*.png; it holds none.")
    pixels = np.stack(images)
    published.check_sum(folder, np.packbits(pixels == 0), SUMS)
    return pixels[..., None], of


def _list_drawings(folder: Path) -> Iterator[tuple[str, bytes]]:
    """``Alphabet/characterNN/file.png`` and its bytes, sorted by name, from a zip or a folder."""
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
    """The drawings of a zip; a RuntimeError of zipfile is an entry that is encrypted or packed by a
    method it does not know."""
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
        # whatever a damaged file makes the decoder raise, the file is what is wrong
        _check.refuse(f"{name} is truncated, damaged or not a PNG file.")
    _check.refuse(f"{name} must be of {SIDE} x {SIDE} pixels; got {image.size}.")
