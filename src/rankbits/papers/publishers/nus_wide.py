"""NUS-WIDE (T.-S. Chua et al., 2009): 269,648 Flickr images and 81 concepts.

``nus-wide/Groundtruth/AllLabels/Labels_<concept>.txt`` has a 0 or 1 a line, in the order of
``nus-wide/ImageList/Imagelist.txt`` (lines such as ``actor\\0001_2124494179.jpg``); the images lie
under ``nus-wide/Flickr/``. ``TrainTestLabels`` is not read: one of its files has a broken line.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.papers.publishers import published

FREQUENT = 21


def read(root: Path) -> published.Dataset:
    """Read images with at least one of the 21 most frequent labels, multi-hot; part ``all``.

    Images that are not on disk are left out and counted, because many have left Flickr.
    """
    folder = root / "nus-wide"
    names = _read_names(folder / "ImageList" / "Imagelist.txt")
    concepts, hot = _read_labels(folder / "Groundtruth" / "AllLabels", len(names))
    # most frequent first; np.lexsort keeps equal ones in the order of their names
    frequent = np.sort(np.lexsort((np.arange(len(concepts)), -hot.sum(axis=0)))[:FREQUENT])
    hot = hot[:, frequent]
    on_disk = _list_files(folder / "Flickr")
    exists = np.fromiter((name in on_disk for name in names), bool, len(names))
    labelled = hot.any(axis=1)
    rows = np.flatnonzero(labelled & exists)
    if not len(rows):
        _check.refuse(f"{folder / 'Flickr'} holds no image that {folder / 'ImageList'} names.")
    files = ImageFiles(np.array([str(folder / "Flickr" / names[row]) for row in rows]))
    lost = int((labelled & ~exists).sum())
    note = f"{lost:,} images of the {FREQUENT} labels are not on disk and left out." if lost else ""
    return published.Dataset(
        Examples(files, hot[rows], class_names=tuple(concepts[i] for i in frequent)),
        {"all": np.arange(len(rows))},
        note,
    )


def _read_names(path: Path) -> list[str]:
    try:
        text = published.read_bytes(path, "the image list of NUS-WIDE").decode("utf-8")
    except UnicodeDecodeError:
        _check.refuse(f"{path} is not a text file of image names.")
    return [line.strip().replace("\\", "/") for line in text.splitlines() if line.strip()]


def _read_labels(folder: Path, rows: int) -> tuple[list[str], np.ndarray]:
    """Read the concepts in alphabetical order, and (n, concepts) bool."""
    files = sorted(folder.glob("Labels_*.txt"))
    if not files:
        published.refuse_missing(folder / "Labels_airport.txt", "the ground truth of NUS-WIDE")
    hot = np.empty((rows, len(files)), bool)
    for column, path in enumerate(files):
        text = path.read_bytes().translate(None, b"\r \t").rstrip(b"\n") + b"\n"
        values = np.frombuffer(text, np.uint8)
        whole = len(values) == 2 * rows and (values[1::2] == ord("\n")).all()
        if not whole or not np.isin(values[::2], (ord("0"), ord("1"))).all():
            _check.refuse(f"{path} must hold {rows:,} lines of 0 or 1, one for each image.")
        hot[:, column] = values[::2] == ord("1")
    return [path.stem.removeprefix("Labels_") for path in files], hot


def _list_files(folder: Path) -> set[str]:
    """List ``concept/file.jpg`` of every image on disk, which is quicker than to look for each."""
    if not folder.is_dir():
        published.refuse_missing(folder, "the images of NUS-WIDE")
    return {
        f"{part.name}/{file.name}"
        for part in os.scandir(folder)
        if part.is_dir()
        for file in os.scandir(part.path)
    }
