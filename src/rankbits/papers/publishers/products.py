"""Stanford Online Products (H. O. Song et al., 2016): 22,634 products in 12 categories.

``Stanford_Online_Products/Ebay_train.txt`` and ``Ebay_test.txt``, a header and then lines
``image_id class_id super_class_id path``; the images lie beside them in ``bicycle_final/`` and so
on.
"""

from __future__ import annotations

from pathlib import Path

from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

NAME = "Stanford Online Products"
FORM = "image_id class_id super_class_id path"


def read(root: Path) -> published.Dataset:
    """Read the images; parts ``train`` and ``test`` have different products."""
    folder = root / "Stanford_Online_Products"
    lists = [
        published.read_list(folder / f"Ebay_{part}.txt", FORM, f"the lists of {NAME}", skip=1)
        for part in ("train", "test")
    ]
    rows = lists[0] + lists[1]
    labels, classes = published.number_names([row[1] for row in rows])
    names = {row[2]: row[3].split("/")[0].removesuffix("_final") for row in rows}
    categories, numbers = published.number_names([row[2] for row in rows])
    files = published.open_images([str(folder / row[3]) for row in rows], NAME)
    category_names = tuple(names[number] for number in numbers)
    return published.Dataset(
        Examples(files, labels, categories, classes, category_names),
        published.split_in_order(train=len(lists[0]), test=len(lists[1])),
    )
