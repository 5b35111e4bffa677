"""Lengths of what codes stand for: a quadratic form of every code."""

from __future__ import annotations

import numpy as np
from numba import njit

from rankbits.kernels.backend import run_tasks
from rankbits.kernels.cpu.counting import read_only

TINY = 1e-60  # squares that are nothing: their root has no inverse in float32
ROWS = 256  # codes whose lengths are computed together


@njit(nogil=True, cache=True)
def _add_scaled(weight, values, out):
    for j in range(out.shape[0]):
        out[j] += weight * values[j]


@njit(nogil=True, cache=True)
def _add_eight(w, x, out):
    """out += w (8,) times the rows of x (8, n), added in pairs."""
    w0, w1, w2, w3, w4, w5, w6, w7 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    for j in range(out.shape[0]):
        left = (w0 * x0[j] + w1 * x1[j]) + (w2 * x2[j] + w3 * x3[j])
        right = (w4 * x4[j] + w5 * x5[j]) + (w6 * x6[j] + w7 * x7[j])
        out[j] += left + right


@njit(nogil=True, cache=True)
def _add_product(left, right, out):
    for j in range(out.shape[0]):
        out[j] += left[j] * right[j]


@njit(nogil=True, cache=True)
def _lengths_tile(gram, linear, constant, x, start, out):
    """A row of the gram at a time, over codes side by side: no digit depends on the neighbours."""
    bits, count = gram.shape[0], out.shape[0]
    signs = np.empty((bits, count), np.float32)
    for i in range(bits):
        place = np.uint64(8 * (i % 64 // 8) + 7 - i % 8)
        for j in range(count):
            bit = (x[i // 64, start + j] >> place) & np.uint64(1)
            signs[i, j] = np.float32(2) * np.float32(bit) - np.float32(1)
    squares = np.zeros(count, np.float64)
    inner = np.empty(count, np.float32)
    for i in range(bits):
        inner[:] = 0
        whole = i // 8 * 8
        for other in range(0, whole, 8):
            _add_eight(gram[i, other : other + 8], signs[other : other + 8], inner)
        for other in range(whole, i):
            _add_scaled(gram[i, other], signs[other], inner)
        inner += linear[i]
        _add_product(inner, signs[i], squares)
    diagonal = constant
    for i in range(bits):
        diagonal += gram[i, i]
    for j in range(count):
        square = diagonal + 2 * squares[j]
        out[j] = np.sqrt(square) if square > TINY else 1.0


def lengths(gram: np.ndarray, linear: np.ndarray, constant: float, words: np.ndarray) -> np.ndarray:
    gram, linear, words = read_only(gram, linear, words)
    out = np.empty(words.shape[1], np.float32)
    run_tasks(
        lambda start: _lengths_tile(
            gram, linear, constant, words, start, out[start : start + ROWS]
        ),
        range(0, len(out), ROWS),
    )
    return out
