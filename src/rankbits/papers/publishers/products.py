"""Stanford Online Products (H. O. Song et al., 2016): 22,634 products in 12 categories.

``Stanford_Online_Products/Ebay_train.txt`` and ``Ebay_test.txt``, a header and then lines
``image_id class_id super_class_id path``; the images lie beside them in ``bicycle_final/`` and so
on.
"""

from __future__ import annotations

from pathlib import Path

from rankbits.data.examples import Examples
from rankbits.papers.publishers.dataset import (
    Dataset,
    number_names,
    open_images,
    read_list,
    split_in_order,
)

NAME = "Stanford Online Products"
FORM = "image_id class_id super_class_id path"


def read(root: Path) -> Dataset:
    """Parts ``train`` and ``test``, of different products."""
    folder = root / "Stanford_Online_Products"
    lists = [
        list(read_list(folder / f"Ebay_{part}.txt", FORM, f"the lists of {NAME}", skip=1))
        for part in ("train", "test")
    ]
    rows = lists[0] + lists[1]
    labels, classes = number_names([row[1] for row in rows])
    names = {row[2]: row[3].split("/")[0].removesuffix("_final") for row in rows}
    categories, numbers = number_names([row[2] for row in rows])
    files = open_images([str(folder / row[3]) for row in rows], NAME)
    category_names = tuple(names[number] for number in numbers)
    return Dataset(
        Examples(files, labels, categories, classes, category_names),
        split_in_order(train=len(lists[0]), test=len(lists[1])),
    )
