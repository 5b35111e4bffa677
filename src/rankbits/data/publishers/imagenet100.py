"""ImageNet100 (the 100 classes of HashNet): ``imagenet100/{train,val}/<wnid>/*.JPEG``."""

from __future__ import annotations

from pathlib import Path

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.folders import by_folder
from rankbits.data.images import ImageFiles
from rankbits.data.publishers.published import Published, in_parts, numbered, present
from rankbits.data.root import missing

CLASSES = 100


def read(root: Path) -> Published:
    """Parts ``train`` and ``val``."""
    paths: list[str] = []
    wnids: list[str] = []
    sizes = {}
    for part in ("train", "val"):
        folder = root / "imagenet100" / part
        if not folder.is_dir():
            missing(folder, "one folder of images for each of the 100 classes")
        found = by_folder(folder)
        if set(wnids) and set(wnids) != {parts[0] for parts in found.values()}:
            _check.refuse(f"{folder} must have the classes of the other part; it has others.")
        paths += list(found)
        wnids += [parts[0] for parts in found.values()]
        sizes[part] = len(found)
    labels, names = numbered(wnids)
    if len(names) != CLASSES:
        _check.refuse(
            f"{root / 'imagenet100'} must hold {CLASSES} classes; it holds {len(names):,}."
        )
    files = ImageFiles(present(paths, "the images of ImageNet100"))
    return Published(Examples(files, labels, class_names=names), in_parts(**sizes))
