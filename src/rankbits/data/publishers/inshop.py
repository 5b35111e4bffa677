"""In-Shop Clothes Retrieval (DeepFashion, Z. Liu et al., 2016): 7,982 items in 23 categories.

``inshop/Eval/list_eval_partition.txt`` (or right in ``inshop``): a count, a header, then lines
``image_name item_id evaluation_status`` such as
``img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train``; the images lie in
``inshop/img`` or ``inshop/Img/img``. The category is the folder of clothes, ``WOMEN/Dresses``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.publishers.published import Published, fields, numbered, present

FORM = "image_name item_id evaluation_status"
PARTS = ("train", "query", "gallery")


def read(root: Path) -> Published:
    """Parts ``train``, ``query`` and ``gallery``."""
    folder = root / "inshop"
    beside = folder / "list_eval_partition.txt"
    source = beside if beside.is_file() else folder / "Eval" / "list_eval_partition.txt"
    rows = list(fields(source, FORM, "the partition of In-Shop", 2))
    for name, _, part in rows:
        if part not in PARTS or name.count("/") < 4:
            _check.refuse(
                f"{source} must name img/WHO/WHAT/ITEM/FILE and one of {', '.join(PARTS)}; "
                f"got {name!r} {part!r}."
            )
    labels, items = numbered([item for _, item, _ in rows])
    categories, clothes = numbered(["/".join(name.split("/")[1:3]) for name, _, _ in rows])
    images = folder / "Img" if (folder / "Img" / "img").is_dir() else folder
    paths = present([str(images / name) for name, _, _ in rows], "the images of In-Shop")
    statuses = np.array([part for _, _, part in rows])
    return Published(
        Examples(ImageFiles(paths), labels, categories, items, clothes),
        {part: np.flatnonzero(statuses == part) for part in PARTS},
    )
