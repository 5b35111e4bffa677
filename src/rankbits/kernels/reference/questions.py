"""Distances of questions by definition: planes (Q, P, W) and signs (Q, W), words (W, N) uint64."""

from __future__ import annotations

import numpy as np

LARGEST = np.float32(np.finfo(np.float32).max)  # greater distances become this one
TINY = 1e-60  # squared lengths up to this count as zero: their root has no inverse in float32


def _take_nearest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(distances, kind="stable")[:k]
    return ids, distances[ids]


def _unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """0 and 1 as uint8 (N, bits)."""
    rows = np.ascontiguousarray(words.T).view(np.uint8)
    return np.unpackbits(rows.reshape(words.shape[1], -1), axis=1, count=bits)


def sum_planes(planes: np.ndarray, signs: np.ndarray, words: np.ndarray) -> np.ndarray:
    """int64 (N,): sum_p 2^p popcount(plane_p & (code ^ sign)) of one question, (P, W) and (W,)."""
    differing = words ^ signs[:, None]
    sums = np.zeros(words.shape[1], np.int64)
    for power, plane in enumerate(planes):
        sums += np.bitwise_count(differing & plane[:, None]).sum(axis=0, dtype=np.int64) << power
    return sums


def planes_topk(
    planes: np.ndarray,
    signs: np.ndarray,
    words: np.ndarray,
    k: int,
    bits: int,
    scale: tuple[np.ndarray, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """ids int64 (Q, k) and sums int64 (Q, k), by sum, then by row.

    With ``scale`` = (slopes, bases, inverses), distances are (slope x sum - base) x inverse, all in
    float32.
    """
    nearest = []
    for i in range(len(planes)):
        far = sum_planes(planes[i], signs[i], words)
        if scale is not None:
            slopes, bases, inverses = scale
            with np.errstate(over="ignore"):
                scaled = (slopes[i] * far.astype(np.float32) - bases[i]) * inverses
            far = np.minimum(scaled, LARGEST)
        nearest.append(_take_nearest(far, k))
    return _stack(nearest, k, np.int64 if scale is None else np.float32)


def weights_topk(
    weights: np.ndarray,
    words: np.ndarray,
    k: int,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The same by float weights (Q, bits). Distances float32 (Q, k) are the sum d of |weights|
    where signs differ, taken in float64, or (2 d - base) x inverse."""
    ones = _unpack(words, weights.shape[1]) > 0
    nearest = []
    for question, base in zip(weights.astype(np.float64), bases, strict=True):
        sums = np.where(ones != (question > 0), np.abs(question), 0).sum(axis=1)
        far = sums if inverses is None else (2 * sums - base) * inverses
        nearest.append(_take_nearest(np.minimum(far, LARGEST).astype(np.float32), k))
    return _stack(nearest, k, np.float32)


def weigh_rows(
    weights: np.ndarray,
    words: np.ndarray,
    rows: np.ndarray,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> np.ndarray:
    """Distances float32 (Q, S), as in ``weights_topk``, of question i to ``rows[i]`` (S,)."""
    out = np.empty(rows.shape, np.float32)
    for i, listed in enumerate(rows):
        near = None if inverses is None else inverses[listed]
        part = np.ascontiguousarray(words[:, listed])
        span = slice(i, i + 1)
        ids, far = weights_topk(weights[span], part, len(listed), bases[span], near)
        out[i, ids[0]] = far[0]
    return out


def sum_rows(tables: np.ndarray, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 (Q, S): for question i and each of ``rows[i]``, the sum of the entries that the row's
    bytes pick from tables (Q, bytes, 256)."""
    packed = np.ascontiguousarray(words.T).view(np.uint8).reshape(words.shape[1], -1)
    out = np.zeros(rows.shape, np.float64)
    for i, listed in enumerate(rows):
        for place in range(tables.shape[1]):
            out[i] += tables[i, place, packed[listed, place]]
    return out


def measure_lengths(atoms: np.ndarray, centre: np.ndarray, words: np.ndarray) -> np.ndarray:
    """float32 (N,): the norm of ``centre`` plus the atoms (groups, 2**g, dim) that the groups of
    g bits choose; 1 where that is zero."""
    out = np.empty(words.shape[1], np.float32)
    packed = np.ascontiguousarray(words.T).view(np.uint8).reshape(words.shape[1], -1)
    values = atoms.shape[1]
    size = values.bit_length() - 1
    for start in range(0, len(out), 1 << 14):
        part = packed[start : start + (1 << 14)]
        total = np.tile(centre.astype(np.float64), (len(part), 1))
        for group, table in enumerate(atoms):
            at, place = divmod(group * size, 8)
            total += table[(part[:, at] >> (8 - size - place)) & (values - 1)]
        norms = np.linalg.norm(total, axis=1)
        out[start : start + (1 << 14)] = np.where(norms > np.sqrt(TINY), norms, 1)
    return out


def _stack(nearest: list, k: int, kind: type) -> tuple[np.ndarray, np.ndarray]:
    if not nearest:
        return np.empty((0, k), np.int64), np.empty((0, k), kind)
    ids, distances = zip(*nearest, strict=True)
    return np.stack(ids), np.stack(distances).astype(kind, copy=False)
