"""Which rows are similar: all classical methods learn from that."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses import neighbour_grades, neighbour_thresholds
from rankbits.quantizers import rows

MOST_ROWS = 5000  # all their pairs are used; TALR's training sets have this size


def read_pairs(embeddings: Any, labels: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw at most 5,000 rows, float32 (n, dim), and grade their pairs, uint8 (n, n).

    With labels, a grade is 1 for rows that share one and 0 for others. Without labels, as in TALR,
    it is 10, 5, 2 and 1 for the 0.1, 0.2, 1 and 5 % nearest pairs. The grade of a row with itself
    is 0.
    """
    value = rows.check_embeddings("embeddings", embeddings)
    marks = None if labels is None else _check.labels("labels", labels, len(value), names=True)
    sample, chosen = rows.sample(value, MOST_ROWS, _check.whole("seed", seed, 0))
    drawn = sample.float().cpu()
    rows.check_finite("embeddings", drawn)
    if len(drawn) < 2:
        _check.refuse(f"embeddings must have at least 2 rows to form pairs; got {len(drawn)}.")
    if marks is None:
        grades = neighbour_grades(drawn, drawn, neighbour_thresholds(drawn)).numpy()
    elif marks.ndim == 1:
        classes = marks[chosen]
        grades = (classes[:, None] == classes).astype(np.uint8)
    else:
        sets = torch.from_numpy(marks[chosen].astype(np.float32))
        grades = (sets @ sets.T > 0).numpy().astype(np.uint8)
    np.fill_diagonal(grades, 0)
    similar = int(np.count_nonzero(grades))
    if similar in (0, len(grades) * (len(grades) - 1)):
        _check.refuse(
            f"Some pairs of rows must be similar and others not; {'all' if similar else 'none'} "
            "of these are."
        )
    return np.ascontiguousarray(drawn.numpy()), grades


def find_cliques(similar: np.ndarray, most: int) -> list[np.ndarray]:
    """Put each row into a block of at most ``most`` rows that are all similar to one another.

    >>> similar = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]], bool)
    >>> [block.tolist() for block in find_cliques(similar, 9)]
    [[0, 1], [2]]
    """
    free = np.ones(len(similar), bool)
    blocks = []
    for row in range(len(similar)):
        if not free[row]:
            continue
        block, joins = [row], free & similar[row]
        joins[row] = False
        while len(block) < most and joins.any():
            block.append(int(joins.argmax()))
            joins &= similar[block[-1]]
            joins[block[-1]] = False
        free[block] = False
        blocks.append(np.array(block))
    return blocks
