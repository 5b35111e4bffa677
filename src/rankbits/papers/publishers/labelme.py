"""22K LabelMe (A. Torralba et al., 2008): 22,019 images as GIST descriptors of 512 numbers, without
labels: the array ``gist`` of ``labelme/LabelMe_gist.mat``, or of ``labelme/LabelMe_gist.npz``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

DIM = 512


def read(root: Path) -> published.Dataset:
    """Read GIST descriptors float32; part ``all``. Without labels every image is its own class."""
    plain = root / "labelme" / "LabelMe_gist.npz"
    matlab = plain.with_suffix(".mat")
    if not plain.is_file() and not matlab.is_file():
        published.refuse_missing(matlab, "the GIST descriptors of 22K LabelMe")
    source = plain if plain.is_file() else matlab
    gist = read_columns(plain).get("gist") if plain.is_file() else _read_matlab(matlab)
    if gist is None or gist.ndim != 2 or gist.shape[1] != DIM or gist.dtype.kind != "f":
        _check.refuse(f"{source} must hold 'gist', an array of numbers of shape (n, {DIM}).")
    features = _check.finite(f"gist of {source}", gist.astype(np.float32))
    rows = np.arange(len(features))
    return published.Dataset(Examples(features, rows), {"all": rows})


def _read_matlab(path: Path) -> Any:
    try:
        from scipy.io import loadmat
    except ImportError:
        _check.refuse(f"{path} needs the package scipy: pip install scipy, or put an .npz there.")
    try:
        return loadmat(path, variable_names=["gist"]).get("gist")
    except Exception:  # a damaged file may make the parser raise anything
        _check.refuse(f"{path} is truncated, damaged or of MATLAB's format 7.3; put an .npz there.")
