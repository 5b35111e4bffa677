"""Boosted decision trees: they grow on binned rows and score rows of floats.

A tree of depth D is an array of 2**D - 1 nodes; the children of node k are 2 k + 1 and 2 k + 2. A
row goes right where its feature is above the node's threshold, and ends in one of 2**D leaves. Its
score is the sum of its leaves' values over all trees.
"""

from __future__ import annotations

import numpy as np

from rankbits.kernels.backend import load_loops

ASIDE = 255  # the cut of a node that does not split: no bin is above it


def boost_trees(
    bins: np.ndarray, wanted: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Grow trees whose summed values have the signs ``wanted``, by confidence-rated AdaBoost.

    ``bins`` uint8 (dim, n) are below 255, ``wanted`` bool (n,), ``columns`` (rounds, depth, count)
    the features that the nodes of each level may split by. Each round weighs row i by
    exp(-z_i F(x_i)); a split has the least sum of sqrt(W+ W-) over its children, and a leaf's value
    is log(W+ / W-) / 2, smoothed by 1 / n (Schapire and Singer 1999): the sum of weights never
    rises. Returns features int32 (rounds, nodes); cuts uint8 (rounds, nodes), rows with
    ``bin > cut`` go right; leaves float32 (rounds, leaves); the mean weights (rounds + 1,).

    >>> bins = np.array([[0, 1, 2, 3]], np.uint8)
    >>> wanted = np.array([False, True, True, False])
    >>> features, cuts, leaves, losses = boost_trees(bins, wanted, np.zeros((1, 2, 1), int))
    >>> leaves[0].round(2), bool(losses[1] < losses[0])
    (array([-0.35,  0.  ,  0.55, -0.35], dtype=float32), True)
    """
    columns = np.ascontiguousarray(columns, np.int64)
    wanted = np.ascontiguousarray(wanted, np.bool_)
    return load_loops("trees").boost_trees(np.ascontiguousarray(bins), wanted, columns)


def score_trees(
    rows: np.ndarray, features: np.ndarray, thresholds: np.ndarray, leaves: np.ndarray
) -> np.ndarray:
    """float32 (n, bits): the sum of the values of the leaves that ``rows`` float32 (n, dim) reach.

    ``features`` int32 and ``thresholds`` float32 (bits, rounds, nodes), ``leaves`` float32 (bits,
    rounds, leaves). Features are not checked to be below dim.

    >>> half = np.array([[[0.5]]], np.float32)
    >>> rows = np.array([[0.0], [1.0]], np.float32)
    >>> leaves = np.array([[[-1.0, 2.0]]], np.float32)
    >>> score_trees(rows, np.zeros((1, 1, 1), np.int32), half, leaves)
    array([[-1.],
           [ 2.]], dtype=float32)
    """
    rows = np.ascontiguousarray(rows, np.float32)
    return load_loops("trees").score_trees(rows, features, thresholds, leaves)
