"""Lengths of the embeddings that codes stand for, and sums by tables of bytes."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import cut_tiles, make_read_only

TINY = 1e-60  # squared lengths up to this count as zero: their root has no inverse in float32
ROWS = 256  # codes whose lengths are computed together


@njit(nogil=True, cache=True)
def _add(values, out):
    for i in range(out.shape[0]):
        out[i] += values[i]


@njit(nogil=True, cache=True)
def _measure_tile(atoms, centre, size, x, start, out):
    """Measure one code after another, so that no digit depends on its neighbours."""
    total = np.empty(centre.shape[0], np.float32)
    mask = np.uint64(atoms.shape[1] - 1)
    for j in range(out.shape[0]):
        total[:] = centre
        for group in range(atoms.shape[0]):
            byte, place = group * size // 8, group * size % 8
            shift = np.uint64(8 * (byte % 8) + 8 - size - place)
            _add(atoms[group, (x[byte // 8, start + j] >> shift) & mask], total)
        square = 0.0
        for i in range(total.shape[0]):
            square += np.float64(total[i]) * np.float64(total[i])
        out[j] = np.sqrt(square) if square > TINY else 1.0


def measure_lengths(atoms: np.ndarray, centre: np.ndarray, words: np.ndarray) -> np.ndarray:
    atoms, centre, words = make_read_only(atoms, centre, words)
    size = atoms.shape[1].bit_length() - 1
    out = np.empty(words.shape[1], np.float32)
    run_tasks(
        lambda start: _measure_tile(atoms, centre, size, words, start, out[start : start + ROWS]),
        range(0, len(out), ROWS),
    )
    return out


@njit(nogil=True, cache=True)
def _sum_tile(tables, x, rows, out):
    for i in range(tables.shape[0]):
        for j in range(rows.shape[1]):
            total = 0.0
            for place in range(tables.shape[1]):
                word = x[place // 8, rows[i, j]]
                total += tables[i, place, (word >> np.uint64(8 * (place % 8))) & np.uint64(255)]
            out[i, j] = total


def sum_rows(tables: np.ndarray, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
    tables, words = make_read_only(tables, words)
    rows, out = np.ascontiguousarray(rows, np.int64), np.empty(rows.shape, np.float64)
    run_tasks(
        lambda tile: _sum_tile(tables[tile], words, rows[tile], out[tile]), cut_tiles(len(tables))
    )
    return out
