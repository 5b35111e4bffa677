"""ImageNet100 (the 100 classes of HashNet): ``imagenet100/{train,val}/<wnid>/*.JPEG``."""

from __future__ import annotations

from pathlib import Path

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.folders import list_images
from rankbits.papers.publishers import published

CLASSES = 100


def read(root: Path) -> published.Dataset:
    """Read the images; parts ``train`` and ``val``."""
    paths: list[str] = []
    wnids: list[str] = []
    sizes = {}
    for part in ("train", "val"):
        folder = root / "imagenet100" / part
        if not folder.is_dir():
            published.refuse_missing(folder, "one folder of images for each of the 100 classes")
        images = list_images(folder)
        classes = [folders[0] for folders in images.values()]
        if wnids and set(wnids) != set(classes):
            _check.refuse(f"{folder} must have the classes of the other part; it has others.")
        paths += list(images)
        wnids += classes
        sizes[part] = len(images)
    labels, names = published.number_names(wnids)
    if len(names) != CLASSES:
        _check.refuse(
            f"{root / 'imagenet100'} must hold {CLASSES} classes; it holds {len(names):,}."
        )
    files = published.open_images(paths, "ImageNet100")
    return published.Dataset(
        Examples(files, labels, class_names=names), published.split_in_order(**sizes)
    )
