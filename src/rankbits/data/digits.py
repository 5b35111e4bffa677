"""The embedded dataset: 1,797 handwritten digits of 8 x 8 pixels, for a first look and for tests.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository (CC BY 4.0), the test part, as scikit-learn distributes it.
"""

from __future__ import annotations

from importlib import resources

import numpy as np


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (1797, 8, 8) with values 0 to 16, and labels int64 (1797,).

    >>> images, labels = digits()
    >>> images.shape, labels[:5]
    ((1797, 8, 8), array([0, 1, 2, 3, 4]))
    """
    source = resources.files("rankbits.data").joinpath("digits.npz")
    with source.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return archive["images"], archive["labels"].astype(np.int64)
