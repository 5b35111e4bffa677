"""Choices by definition: one row and one group after another."""

from __future__ import annotations

import numpy as np


def _descend(chosen: np.ndarray, products: np.ndarray, gram: np.ndarray, step: int) -> float:
    """Improve one row's choices in place; return 2 <x, s> - |s|^2 of the final sum s."""
    groups = len(chosen)
    values = len(gram) // groups
    first = np.arange(groups) * values
    changed = True
    while changed:
        changed = False
        for group in range(groups):
            others = np.delete(first + chosen, group)
            atoms = np.arange(group * values, (group + 1) * values)
            shared = gram[np.ix_(atoms, others)].sum(axis=1)
            gains = 2 * products[atoms] - 2 * shared - gram[atoms, atoms]
            if group == groups - 1:
                gains[np.arange(values) % step > 0] = -np.inf
            best = int(gains.argmax())
            if gains[best] > gains[chosen[group]] + 1e-6:
                chosen[group], changed = best, True
    atoms = first + chosen
    return float(2 * products[atoms].sum() - gram[np.ix_(atoms, atoms)].sum())


def improve_choices(
    choices: np.ndarray, products: np.ndarray, gram: np.ndarray, step: int, kicks: np.ndarray
) -> np.ndarray:
    out = choices.astype(np.int64)
    wide = gram.astype(np.float64)
    for row, best in enumerate(out):
        row_products = products[row].astype(np.float64)
        worth = _descend(best, row_products, wide, step)
        for kick in kicks:
            tried = best.copy()
            for group, value in kick:
                tried[group] = value
            ended = _descend(tried, row_products, wide, step)
            if ended > worth + 1e-6:
                best[:], worth = tried, ended
    return out.astype(np.uint8)


def _mark_choices(choices: np.ndarray, values: int) -> np.ndarray:
    """1 for each atom that a row chooses, else 0, float64 (n, atoms)."""
    rows, groups = choices.shape
    out = np.zeros((rows, groups * values))
    out[np.arange(rows)[:, None], np.arange(groups) * values + choices] = 1
    return out


def count_pairs(choices: np.ndarray, values: int) -> np.ndarray:
    marks = _mark_choices(choices, values)
    return marks.T @ marks


def sum_by_choice(choices: np.ndarray, rows: np.ndarray, values: int) -> np.ndarray:
    return _mark_choices(choices, values).T @ rows.astype(np.float64)
