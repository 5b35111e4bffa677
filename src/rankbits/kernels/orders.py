"""The order of a list that violates a ranking loss most (McFee and Lanckriet 2010).

A list has P relevant and N other items at distances d from a query. In an order y the m-th nearest
relevant item has c_m others before it, c_1 <= c_2 <= …; the right order has none. The order that is
most violated has the greatest

    loss(y) - 1 / (P N) * sum of (d_k - d_m) over all pairs in which the other item k is before m.

Both losses add up over m, and each term is concave in c_m: pooling adjacent violators is exact.
"""

from __future__ import annotations

import numpy as np

from rankbits.kernels.backend import load_loops


def find_violated(
    distances: np.ndarray, gains: np.ndarray, own: np.ndarray, ndcg: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Find each query's most violated order: the coefficients float32 (Q, n) of the distances in
    the sum above, and the losses (Q,).

    ``distances`` and ``gains`` (Q, n): an item is relevant where its gain is above 0; item
    ``own[q]`` is left out. ``ndcg``: the loss is the NDCG lost against the right order, with ranks
    discounted by 1 / log2(1 + rank); otherwise the share of pairs in the wrong order (1 - AUC). A
    query with nothing relevant, or nothing else, has zeros.

    >>> distances, gains = np.array([[0.0, 1.0, 3.0, 5.0]]), np.array([[0.0, 0.0, 1.0, 0.0]])
    >>> find_violated(distances, gains, np.array([0]), ndcg=False)
    (array([[ 0. ,  0.5, -0.5,  0. ]], dtype=float32), array([0.5]))
    """
    distances = np.ascontiguousarray(distances, np.float64)
    gains = np.ascontiguousarray(gains, np.float64)
    return load_loops("orders").find_violated(distances, gains, own.astype(np.int64), bool(ndcg))
