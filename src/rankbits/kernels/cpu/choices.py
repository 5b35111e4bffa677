"""Choices in numba: for each row the products of its present sum with all atoms are kept, and a
change of one group adds one row of the gram and subtracts another."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import make_read_only

ROWS = 64  # rows of one task
LEAST = np.float32(1e-6)  # the least improvement by a change


@njit(nogil=True, cache=True)
def _exchange(gone, come, out):
    for j in range(out.shape[0]):
        out[j] += come[j] - gone[j]


@njit(nogil=True, cache=True)
def _find_best_value(products, gram, sums, first, values, step, current):
    """The best atom of a group in which ``current`` is chosen now."""
    best, gain = current, np.float32(0)
    row = gram[current]
    here = products[current] - sums[current] - np.float32(0.5) * row[current]
    for j in range(first, first + values, step):
        # there - here is half the gain: <x - s, a_j - a_current> - |a_j - a_current|^2 / 2
        there = products[j] - sums[j] - np.float32(0.5) * gram[j, j] + row[j] - row[current]
        if there - here > gain + LEAST and j != current:
            best, gain = j, there - here
    return best


@njit(nogil=True, cache=True)
def _descend(chosen, products, gram, sums, values, step):
    groups = chosen.shape[0]
    changed = True
    while changed:
        changed = False
        for group in range(groups):
            first = group * values
            current = first + chosen[group]
            by = step if group == groups - 1 else 1
            best = _find_best_value(products, gram, sums, first, values, by, current)
            if best != current:
                _exchange(gram[current], gram[best], sums)
                chosen[group] = best - first
                changed = True


@njit(nogil=True, cache=True)
def _measure_worth(chosen, products, sums, values):
    total = np.float64(0)
    for group in range(chosen.shape[0]):
        at = group * values + chosen[group]
        total += 2 * np.float64(products[at]) - np.float64(sums[at])
    return total


@njit(nogil=True, cache=True)
def _improve_tile(choices, products, gram, step, kicks, out):
    groups = choices.shape[1]
    values = gram.shape[0] // groups
    chosen, tried = np.empty(groups, np.int64), np.empty(groups, np.int64)
    sums, again = np.empty(gram.shape[0], np.float32), np.empty(gram.shape[0], np.float32)
    for row in range(choices.shape[0]):
        sums[:] = 0
        for group in range(groups):
            chosen[group] = choices[row, group]
            sums += gram[group * values + chosen[group]]
        row_products = products[row]
        _descend(chosen, row_products, gram, sums, values, step)
        worth = _measure_worth(chosen, row_products, sums, values)
        for kick in range(kicks.shape[0]):
            tried[:], again[:] = chosen, sums
            for change in range(kicks.shape[1]):
                group, value = kicks[kick, change]
                at = group * values
                _exchange(gram[at + tried[group]], gram[at + value], again)
                tried[group] = value
            _descend(tried, row_products, gram, again, values, step)
            ended = _measure_worth(tried, row_products, again, values)
            if ended > worth + LEAST:
                chosen[:], sums[:], worth = tried, again, ended
        for group in range(groups):
            out[row, group] = chosen[group]


def improve_choices(
    choices: np.ndarray, products: np.ndarray, gram: np.ndarray, step: int, kicks: np.ndarray
) -> np.ndarray:
    choices, products, gram = make_read_only(choices, products, gram)
    out = np.empty(choices.shape, np.uint8)

    def work(start):  # type: ignore[no-untyped-def]
        part = slice(start, start + ROWS)
        _improve_tile(choices[part], products[part], gram, step, kicks, out[part])

    run_tasks(work, range(0, len(choices), ROWS))
    return out


@njit(nogil=True, cache=True)
def _count_pairs_of(choices, values, group, out):
    for row in range(choices.shape[0]):
        at = choices[row, group]
        for other in range(choices.shape[1]):
            out[at, other * values + choices[row, other]] += 1


def count_pairs(choices: np.ndarray, values: int) -> np.ndarray:
    (choices,) = make_read_only(choices)
    groups = choices.shape[1]
    out = np.zeros((groups, values, groups * values), np.float64)
    run_tasks(lambda group: _count_pairs_of(choices, values, group, out[group]), range(groups))
    return out.reshape(groups * values, groups * values)


@njit(nogil=True, cache=True)
def _sum_rows_of(choices, rows, group, out):
    for row in range(choices.shape[0]):
        at = choices[row, group]
        for i in range(rows.shape[1]):
            out[at, i] += rows[row, i]


def sum_by_choice(choices: np.ndarray, rows: np.ndarray, values: int) -> np.ndarray:
    choices, rows = make_read_only(choices, rows)
    groups = choices.shape[1]
    out = np.zeros((groups, values, rows.shape[1]), np.float64)
    run_tasks(lambda group: _sum_rows_of(choices, rows, group, out[group]), range(groups))
    return out.reshape(groups * values, rows.shape[1])
