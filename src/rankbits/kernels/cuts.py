"""The best signs of rows, block by block, by minimum cuts.

The energy of signs z is z' A z / 2 + u' z with a symmetric A. Minimising it over all rows is
NP-hard. Over a block in which A is 0 or below, with the other rows fixed, it is submodular: one
minimum cut solves it exactly, so no block raises the energy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankbits.kernels.backend import load_loops


def improve_signs(
    weights: np.ndarray, unary: np.ndarray, signs: np.ndarray, blocks: Sequence[np.ndarray]
) -> np.ndarray:
    """Set the signs of each block in turn to its best ones, and return all signs, float32 (n,).

    ``weights`` float32 (n, n) is A, whose diagonal does not count, ``unary`` (n,) is u. In a block,
    weights above 0 count as 0. Weights that are not whole numbers are rounded to 2**-24 of the
    block's largest; a block whose new signs do not lower the energy keeps the old ones.

    >>> weights = np.array([[0.0, -2.0], [-2.0, 0.0]])
    >>> improve_signs(weights, np.array([3.0, -1.0]), np.ones(2), [np.array([0, 1])])
    array([-1., -1.], dtype=float32)
    """
    order = np.concatenate([*blocks, np.empty(0, np.int64)]).astype(np.int64)
    starts = np.cumsum([0, *map(len, blocks)])
    weights = np.ascontiguousarray(weights, np.float32)
    linear = np.ascontiguousarray(unary, np.float32)
    return load_loops("cuts").improve_signs(
        weights, linear, signs.astype(np.float32), order, starts
    )
