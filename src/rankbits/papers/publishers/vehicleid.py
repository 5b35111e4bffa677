"""PKU VehicleID (H. Liu et al., 2016): 26,267 vehicles seen by surveillance cameras.

``VehicleID_V1.0/train_test_split/train_list.txt`` and ``test_list_{800,1600,2400}.txt`` have lines
``image vehicle``, ``attribute/model_attr.txt`` lines ``vehicle model`` for some of the vehicles;
the images are ``image/<image>.jpg``. The model is the category; a vehicle without one has none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbits.data.examples import Examples
from rankbits.papers.publishers import published


def read(root: Path, size: int) -> published.Dataset:
    """Read the images; part ``test`` is the test list of ``size`` vehicles, 800, 1600 or 2400."""
    folder = root / "VehicleID_V1.0"
    lists = folder / "train_test_split"
    put = "the lists of VehicleID"
    train = published.read_list(lists / "train_list.txt", "image vehicle", put)
    test = published.read_list(lists / f"test_list_{size}.txt", "image vehicle", put)
    attributes = folder / "attribute" / "model_attr.txt"
    models = dict(published.read_list(attributes, "vehicle model", put))
    rows = train + test
    labels, vehicles = published.number_names([vehicle for _, vehicle in rows])
    names = tuple(dict.fromkeys(models[v] for v in vehicles if v in models))
    number = {name: i for i, name in enumerate(names)}
    of_vehicle = np.array([number[models[v]] if v in models else -1 for v in vehicles], np.int64)
    paths = [str(folder / "image" / f"{image}.jpg") for image, _ in rows]
    files = published.open_images(paths, "VehicleID")
    return published.Dataset(
        Examples(files, labels, of_vehicle[labels], vehicles, names),
        published.split_in_order(train=len(train), test=len(test)),
    )
