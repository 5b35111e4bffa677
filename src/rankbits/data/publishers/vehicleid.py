"""PKU VehicleID (H. Liu et al., 2016): 26,267 vehicles seen by surveillance cameras.

``VehicleID_V1.0/train_test_split/train_list.txt`` and ``test_list_{800,1600,2400}.txt`` have lines
``image vehicle``, ``attribute/model_attr.txt`` lines ``vehicle model`` for some of the vehicles;
the images are ``image/<image>.jpg``. The model is the category; a vehicle without one has none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.publishers.published import Published, fields, in_parts, numbered, present

SIZES = {"small": 800, "medium": 1600, "large": 2400}


def read(root: Path, size: str) -> Published:
    """Parts ``train`` and ``test``, the test list of ``size`` vehicles."""
    folder = root / "VehicleID_V1.0"
    lists = folder / "train_test_split"
    put = "the lists of VehicleID"
    train = list(fields(lists / "train_list.txt", "image vehicle", put))
    test = list(fields(lists / f"test_list_{SIZES[size]}.txt", "image vehicle", put))
    models = dict(fields(folder / "attribute" / "model_attr.txt", "vehicle model", put))
    rows = train + test
    labels, vehicles = numbered([vehicle for _, vehicle in rows])
    numbers, names = numbered([models[v] for v in vehicles if v in models])
    of = iter(numbers)
    of_vehicle = np.array([next(of) if v in models else -1 for v in vehicles], np.int64)
    paths = [str(folder / "image" / f"{image}.jpg") for image, _ in rows]
    return Published(
        Examples(
            ImageFiles(present(paths, "the images of VehicleID")),
            labels,
            of_vehicle[labels],
            vehicles,
            names,
        ),
        in_parts(train=len(train), test=len(test)),
    )
