"""Shuffle and split rows by a seed, the same way on every machine and with every numpy.

The order comes from the raw words of PCG64, which numpy promises not to change;
``Generator.permutation`` may change.
"""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples


def shuffle(rows: np.ndarray, draw: np.random.PCG64) -> np.ndarray:
    """The rows in an order drawn from ``draw``.

    >>> shuffle(np.arange(6), np.random.PCG64(0))
    array([3, 2, 1, 0, 4, 5])
    """
    words = np.asarray(draw.random_raw(len(rows)), np.uint64)
    return rows[np.argsort(words, kind="stable")]


def split_own(
    examples: Examples, validation: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to validate on, drawn within each class.

    Every class keeps two training rows if it has them. If a class is too small to give its share,
    others give more. A row with several labels counts for the rarest of them.

    >>> train, held_out = split_own(Examples(np.eye(6), [0, 0, 0, 0, 0, 1]), validation=0.3)
    >>> train, held_out
    (array([0, 1, 4, 5]), array([2, 3]))
    """
    share = _check_share(validation)
    classes = _pick_class(examples.labels)
    draw = make_draw(seed)
    mixed = shuffle(np.arange(len(classes)), draw)
    every_class, number, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    spare = np.maximum(sizes - 2, 0)
    quota = np.minimum((sizes * share).astype(np.int64), spare)
    # the rows that rounding down left over go to the classes that lost most by it, one each
    wanted = int(np.floor(share * len(classes) + 0.5)) - int(quota.sum())
    loss = np.where(quota < spare, sizes * share - quota, -1.0)
    order = shuffle(np.arange(len(every_class)), draw)
    order = order[np.argsort(-loss[order], kind="stable")]
    quota[order[: max(0, min(wanted, int((loss >= 0).sum())))]] += 1
    held_out = np.zeros(len(classes), bool)
    by_class = mixed[np.argsort(number[mixed], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(classes)) - np.repeat(starts, sizes)
    held_out[by_class[place < np.repeat(quota, sizes)]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def split_classes(
    examples: Examples, validation: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to validate on, which share no class: for models that are judged on
    classes they were not trained on.

    >>> train, held_out = split_classes(Examples(np.eye(6), [0, 0, 1, 1, 2, 2]), validation=0.3)
    >>> train, held_out
    (array([0, 1, 2, 3]), array([4, 5]))
    """
    share = _check_share(validation)
    classes = _pick_class(examples.labels)
    mixed = shuffle(np.unique(classes), make_draw(seed))
    held_out = np.isin(classes, mixed[: int(np.floor(share * len(mixed) + 0.5))])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _check_share(validation: float) -> float:
    share = _check.number("validation", validation)
    if not 0 <= share < 1:
        _check.refuse(f"validation must be a share of at least 0 and below 1; got {validation!r}.")
    return share


def _pick_class(labels: np.ndarray) -> np.ndarray:
    """One class for each row (n,): its rarest label, -1 if it has none."""
    if labels.ndim == 1:
        return labels
    rarity = np.argsort(labels.sum(axis=0), kind="stable")
    first = np.argmax(labels[:, rarity], axis=1) if labels.shape[1] else np.zeros(len(labels), int)
    return np.where(labels.any(axis=1), first, -1)


def make_draw(seed: int) -> np.random.PCG64:
    return np.random.PCG64(_check.whole("seed", seed, 0))
