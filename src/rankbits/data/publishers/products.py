"""Stanford Online Products (H. O. Song et al., 2016): 22,634 products in 12 categories.

``Stanford_Online_Products/Ebay_train.txt`` and ``Ebay_test.txt``, a header and then lines
``image_id class_id super_class_id path``; the images lie beside them in ``bicycle_final/`` and so
on.
"""

from __future__ import annotations

from pathlib import Path

from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.publishers.published import Published, fields, in_parts, numbered, present

FORM = "image_id class_id super_class_id path"


def read(root: Path) -> Published:
    """Parts ``train`` and ``test``, of different products."""
    folder = root / "Stanford_Online_Products"
    listed = {
        part: list(
            fields(folder / f"Ebay_{part}.txt", FORM, "the lists of Stanford Online Products", 1)
        )
        for part in ("train", "test")
    }
    rows = listed["train"] + listed["test"]
    labels, classes = numbered([row[1] for row in rows])
    named = {row[2]: row[3].split("/")[0].removesuffix("_final") for row in rows}
    categories, supers = numbered([row[2] for row in rows])
    paths = [str(folder / row[3]) for row in rows]
    return Published(
        Examples(
            ImageFiles(present(paths, "the images of Stanford Online Products")),
            labels,
            categories,
            classes,
            tuple(named[number] for number in supers),
        ),
        in_parts(train=len(listed["train"]), test=len(listed["test"])),
    )
