"""Draw the rows of a protocol by class, by label or from all, without overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankbits import _check
from rankbits.data.splits import make_draw, shuffle


def draw_rows(rows: np.ndarray, counts: Sequence[int], seed: int) -> list[np.ndarray]:
    """Draw a part of rows for each of ``counts``, without overlap; the rest is the last part."""
    if len(rows) < sum(counts):
        _check.refuse(f"The split needs {sum(counts):,} examples; there are {len(rows):,}.")
    mixed = shuffle(rows, make_draw(seed))
    return [np.sort(part) for part in np.split(mixed, np.cumsum(counts))]


def draw_per_class(labels: np.ndarray, counts: Sequence[int], seed: int) -> list[np.ndarray]:
    """Draw as many rows of every class as each of ``counts`` says; the rest is the last part.

    >>> [part.tolist() for part in draw_per_class(np.array([0, 1, 0, 1, 0]), (1, 1), seed=0)]
    [[1, 4], [2, 3], [0]]
    """
    rows_of = {label: np.flatnonzero(labels == label) for label in np.unique(labels)}
    return [np.sort(part) for part in _draw_from_each(rows_of, counts, seed, "examples", "class")]


def draw_classes(
    labels: np.ndarray, categories: np.ndarray, counts: Sequence[int], seed: int
) -> list[np.ndarray]:
    """Draw as many whole classes of every category as each of ``counts`` says -> the rows of each
    part; the rest is the last part.

    >>> labels, categories = np.array([0, 0, 1, 1, 2, 3]), np.array([0, 0, 0, 0, 1, 1])
    >>> [part.tolist() for part in draw_classes(labels, categories, (1,), seed=0)]
    [[2, 3, 5], [0, 1, 4]]
    """
    classes_of = {c: np.unique(labels[categories == c]) for c in np.unique(categories)}
    parts = _draw_from_each(classes_of, counts, seed, "classes", "category")
    return [np.flatnonzero(np.isin(labels, part)) for part in parts]


def _draw_from_each(
    members: dict[int, np.ndarray], counts: Sequence[int], seed: int, things: str, group: str
) -> list[np.ndarray]:
    """Draw as many members of every group as each of ``counts`` says; the rest is the last part."""
    draw = make_draw(seed)
    pieces = []
    for name, values in members.items():
        if len(values) < sum(counts):
            _check.refuse(
                f"The split needs {sum(counts):,} {things} of every {group}; "
                f"{group} {name} has {len(values):,}."
            )
        pieces.append(np.split(shuffle(values, draw), np.cumsum(counts)))
    return [np.concatenate(part) for part in zip(*pieces, strict=True)]


def draw_per_label(hot: np.ndarray, counts: Sequence[int], seed: int) -> list[np.ndarray]:
    """Draw as many rows for every label of (n, C) multi-hot rows as each of ``counts`` says; no row
    twice, and the rest is the last part. The rarest label draws first: it has the least choice."""
    draw = make_draw(seed)
    free = np.ones(len(hot), bool)
    rarest = np.argsort(hot.sum(axis=0), kind="stable")
    parts = []
    for count in counts:
        drawn = []
        for label in rarest:
            rows = np.flatnonzero(hot[:, label] & free)
            if len(rows) < count:
                _check.refuse(
                    f"The split needs {count:,} examples of every label; "
                    f"label {label} has {len(rows):,} left."
                )
            rows = shuffle(rows, draw)[:count]
            free[rows] = False
            drawn.append(rows)
        parts.append(np.sort(np.concatenate(drawn)))
    return [*parts, np.flatnonzero(free)]
