"""The exact search over one weight of a kernel bit (Kulis and Darrell 2009, Sec. 3.2).

Bit i is one where sum_q w_q k_q(x_i) > 0. While one weight grows from minus to plus infinity and
the others stay, each bit flips exactly once. The search sorts the bits by where they flip and adds
up what each flip costs, which tries all values of the weight.
"""

from __future__ import annotations

import numpy as np

from rankbits.kernels.backend import load_loops


def search_weights(
    kernel: np.ndarray, weights: np.ndarray, starts: np.ndarray, others: np.ndarray,
    costs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Set each weight in turn to its best value; return the weights (anchors,) and their bits (n,).

    ``kernel`` is float64 (anchors, n). Row i is paired with rows
    ``others[starts[i]:starts[i + 1]]``, and each pair is listed for both of its rows; ``costs``
    says what a pair costs whose bits differ. The sum of costs never rises.

    >>> kernel = np.array([[1.0, 2.0, -1.0], [1.0, 1.0, 1.0]])
    >>> starts, others = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])
    >>> costs = np.array([5.0, 5.0, -3.0, -3.0])  # rows 0 and 1 alike, rows 1 and 2 not
    >>> _, bits = search_weights(kernel, np.array([0.0, 1.0]), starts, others, costs)
    >>> bits == bits[0]
    array([ True,  True, False])
    """
    kernel = np.ascontiguousarray(kernel, np.float64)
    pairs = starts.astype(np.int64), others.astype(np.int32), costs.astype(np.float32)
    return load_loops("flips").search_weights(kernel, weights.astype(np.float64), *pairs)
