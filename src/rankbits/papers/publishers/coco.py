"""MS COCO (T.-Y. Lin et al., 2014): 80 labels, several an image.

``coco/annotations/instances_{train,val}2014.json`` with the images in ``coco/train2014`` and
``coco/val2014``; the same with 2017.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published


def read(root: Path) -> published.Dataset:
    """Read images that have at least one label, multi-hot; parts ``train`` and ``val``."""
    folder = root / "coco"
    notes = folder / "annotations"
    later = (notes / "instances_train2017.json").is_file()
    year = 2017 if later and not (notes / "instances_train2014.json").is_file() else 2014
    names: tuple[str, ...] = ()
    paths: list[str] = []
    labels, sizes, unlabelled = [], {}, 0
    for part in ("train", "val"):
        source = notes / f"instances_{part}{year}.json"
        files, hot, classes = _read_instances(source)
        if names and classes != names:
            _check.refuse(f"{source} must have the categories of the other part; it has others.")
        names = classes
        rows = np.flatnonzero(hot.any(axis=1))
        unlabelled += len(files) - len(rows)
        paths += [str(folder / f"{part}{year}" / files[row]) for row in rows]
        labels.append(hot[rows])
        sizes[part] = len(rows)
    note = f"{unlabelled:,} images without a label are left out." if unlabelled else ""
    examples = Examples(
        published.open_images(paths, "COCO"), np.concatenate(labels), class_names=names
    )
    return published.Dataset(examples, published.split_in_order(**sizes), note)


def _read_instances(path: Path) -> tuple[list[str], np.ndarray, tuple[str, ...]]:
    """Read the file names, multi-hot labels and names of labels of one annotation file."""
    raw = published.read_bytes(path, "the instance annotations of COCO")
    try:
        table: dict[str, Any] = json.loads(raw)
        kinds = sorted(table["categories"], key=lambda kind: kind["id"])
        column = {kind["id"]: i for i, kind in enumerate(kinds)}
        row = {image["id"]: i for i, image in enumerate(table["images"])}
        files = [str(image["file_name"]) for image in table["images"]]
        hot = np.zeros((len(files), len(kinds)), bool)
        pairs = [(row[a["image_id"]], column[a["category_id"]]) for a in table["annotations"]]
        if pairs:
            hot[tuple(np.array(pairs).T)] = True
        return files, hot, tuple(str(kind["name"]) for kind in kinds)
    except (ValueError, KeyError, TypeError, RecursionError):
        _check.refuse(f"{path} is truncated, damaged or not COCO's instance annotations.")
