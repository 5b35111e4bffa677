"""Codes as choices: each group of bits chooses one of a few atoms, whose sum should be near a row.

With atoms a_j, the choices of a row x change |x - sum of chosen atoms|^2 only through the products
<x, a_j> and <a_i, a_j>: one group at a time is set to its best value, while that helps. Choices are
uint8 (n, groups); value ``v`` of group ``g`` chooses atom ``g * values + v``.
"""

from __future__ import annotations

import numpy as np

from rankbits.kernels.backend import load_loops

KICKED = 2  # groups that each further try changes at random


def draw_kicks(tries: int, groups: int, values: int, step: int) -> np.ndarray:
    """Draw the groups and values (tries, 2, 2) that are changed before each further try. They are
    the same for every row, so that equal rows get equal codes. Values of the last group are
    multiples of ``step``."""
    draw = np.random.default_rng(tries)
    group = draw.integers(groups, size=(tries, KICKED))
    value = draw.integers(values, size=(tries, KICKED))
    value = np.where(group == groups - 1, value // step * step, value)
    return np.stack([group, value], axis=2).astype(np.int64)


def improve_choices(
    choices: np.ndarray, products: np.ndarray, gram: np.ndarray, *, step: int = 1, tries: int = 0
) -> np.ndarray:
    """Improve choices, uint8 (n, groups), until no change of a single group makes them better.

    ``products`` float32 (n, atoms) are those of rows and atoms, ``gram`` (atoms, atoms) those of
    atoms with each other. The last group takes multiples of ``step`` only. Each of ``tries``
    changes two groups of the best choices at random and improves the result, which is kept where it
    is better.

    >>> atoms = np.array([[0.0], [4.0], [0.0], [1.0]], np.float32)
    >>> rows = np.array([[5.0], [1.2]], np.float32)
    >>> improve_choices(np.zeros((2, 2), np.uint8), rows @ atoms.T, atoms @ atoms.T)
    array([[1, 1],
           [0, 1]], dtype=uint8)
    """
    groups = choices.shape[1]
    values = gram.shape[0] // groups
    kicks = draw_kicks(tries, groups, values, step)
    products = np.ascontiguousarray(products, np.float32)
    gram = np.ascontiguousarray(gram, np.float32)
    return load_loops("choices").improve_choices(
        np.ascontiguousarray(choices), products, gram, step, kicks
    )


def count_pairs(choices: np.ndarray, values: int) -> np.ndarray:
    """float64 (atoms, atoms): in how many rows two atoms are chosen together."""
    return load_loops("choices").count_pairs(np.ascontiguousarray(choices), values)


def sum_by_choice(choices: np.ndarray, rows: np.ndarray, values: int) -> np.ndarray:
    """float64 (atoms, dim): the sum of the ``rows`` (n, dim) that choose each atom."""
    rows = np.ascontiguousarray(rows, np.float32)
    return load_loops("choices").sum_by_choice(np.ascontiguousarray(choices), rows, values)
