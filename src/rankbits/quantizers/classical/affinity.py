"""Which rows are similar: what all classical methods learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses import neighbour_grades, neighbour_thresholds
from rankbits.quantizers import rows

MOST_ROWS = 5000  # all pairs of them are looked at: TALR's training sets are of this size


def read_pairs(embeddings: Any, labels: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows float32 (n, dim) to learn from, at most 5,000, and grades uint8 (n, n) of their pairs.

    With labels a grade is 1 for rows that share one, and 0 for others. Without labels it is TALR's
    of near rows: 10, 5, 2 and 1 for the 0.1, 0.2, 1 and 5 % nearest pairs. No row has a grade with
    itself.
    """
    value = rows.embeddings("embeddings", embeddings)
    marks = None if labels is None else _check.labels("labels", labels, len(value), names=True)
    sample, chosen = rows.sample(value, MOST_ROWS, _check.whole("seed", seed, 0))
    known = sample.float().cpu()
    rows.finite("embeddings", known)
    if len(known) < 2:
        _check.refuse(f"embeddings must have at least 2 rows to form pairs; got {len(known)}.")
    if marks is None:
        grades = neighbour_grades(known, known, neighbour_thresholds(known)).numpy()
    elif marks.ndim == 1:
        own = marks[chosen]
        grades = (own[:, None] == own).astype(np.uint8)
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
    return np.ascontiguousarray(known.numpy()), grades


def find_cliques(similar: np.ndarray, most: int) -> list[np.ndarray]:
    """Rows in blocks of at most ``most``, all similar to one another; each row is in one block.

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
