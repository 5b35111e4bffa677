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
from rankbits.papers.publishers import published

FORM = "image_name item_id evaluation_status"
PARTS = ("train", "query", "gallery")


def read(root: Path) -> published.Dataset:
    """Read the images; parts ``train``, ``query`` and ``gallery``."""
    folder = root / "inshop"
    beside = folder / "list_eval_partition.txt"
    source = beside if beside.is_file() else folder / "Eval" / "list_eval_partition.txt"
    rows = published.read_list(source, FORM, "the partition of In-Shop", 2)
    for name, _, part in rows:
        if part not in PARTS or name.count("/") < 4:
            _check.refuse(
                f"{source} must name img/WHO/WHAT/ITEM/FILE and one of {', '.join(PARTS)}; "
                f"got {name!r} {part!r}."
            )
    labels, items = published.number_names([item for _, item, _ in rows])
    categories, clothes = published.number_names(
        ["/".join(name.split("/")[1:3]) for name, _, _ in rows]
    )
    images = folder / "Img" if (folder / "Img" / "img").is_dir() else folder
    files = published.open_images([str(images / name) for name, _, _ in rows], "In-Shop")
    statuses = np.array([part for _, _, part in rows])
    return published.Dataset(
        Examples(files, labels, categories, items, clothes),
        {part: np.flatnonzero(statuses == part) for part in PARTS},
    )
