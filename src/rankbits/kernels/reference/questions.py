"""Distances of questions by definition: planes (Q, P, W) and signs (Q, W), words (W, N) uint64."""

from __future__ import annotations

import numpy as np

LARGEST = np.float32(np.finfo(np.float32).max)  # a distance past it is as far
TINY = 1e-60  # squares that are nothing: their root has no inverse in float32


def _topk(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(distances, kind="stable")[:k]
    return ids, distances[ids]


def _unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """0 and 1 as uint8 (N, bits)."""
    rows = np.ascontiguousarray(words.T).view(np.uint8)
    return np.unpackbits(rows.reshape(words.shape[1], -1), axis=1, count=bits)


def plane_sums(planes: np.ndarray, signs: np.ndarray, words: np.ndarray) -> np.ndarray:
    """int64 (N,): sum_p 2^p popcount(plane_p & (code ^ sign)) of one question, (P, W) and (W,)."""
    differing = words ^ signs[:, None]
    found = np.zeros(words.shape[1], np.int64)
    for power, plane in enumerate(planes):
        found += np.bitwise_count(differing & plane[:, None]).sum(axis=0, dtype=np.int64) << power
    return found


def planes_topk(
    planes: np.ndarray,
    signs: np.ndarray,
    words: np.ndarray,
    k: int,
    bits: int,
    scale: tuple[np.ndarray, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """ids int64 (Q, k) and sums int64 (Q, k), by sum, then by row.

    With ``scale``, (slopes, bases, inverses), by (slope x sum - base) x inverse, all in float32.
    """
    found = []
    for i in range(len(planes)):
        far = plane_sums(planes[i], signs[i], words)
        if scale is not None:
            slopes, bases, inverses = scale
            with np.errstate(over="ignore"):
                scaled = (slopes[i] * far.astype(np.float32) - bases[i]) * inverses
            far = np.minimum(scaled, LARGEST)
        found.append(_topk(far, k))
    return _stack(found, k, np.int64 if scale is None else np.float32)


def weights_topk(
    weights: np.ndarray,
    words: np.ndarray,
    k: int,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The same by float weights (Q, bits): the sum d of |weights| where signs differ, in float64,
    or (2 d - base) x inverse; distances float32 (Q, k)."""
    ones = _unpack(words, weights.shape[1]) > 0
    found = []
    for question, base in zip(weights.astype(np.float64), bases, strict=True):
        sums = np.where(ones != (question > 0), np.abs(question), 0).sum(axis=1)
        far = sums if inverses is None else (2 * sums - base) * inverses
        found.append(_topk(np.minimum(far, LARGEST).astype(np.float32), k))
    return _stack(found, k, np.float32)


def weights_of_rows(
    weights: np.ndarray,
    words: np.ndarray,
    rows: np.ndarray,
    bases: np.ndarray,
    inverses: np.ndarray | None,
) -> np.ndarray:
    """Distances as of ``weights_topk``, float32 (Q, S), of question i to ``rows[i]`` (S,)."""
    out = np.empty(rows.shape, np.float32)
    for i, listed in enumerate(rows):
        near = None if inverses is None else inverses[listed]
        part = np.ascontiguousarray(words[:, listed])
        span = slice(i, i + 1)
        ids, far = weights_topk(weights[span], part, len(listed), bases[span], near)
        out[i, ids[0]] = far[0]
    return out


def sums_of_rows(tables: np.ndarray, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 (Q, S): for question i and each of ``rows[i]``, its bytes' entries of tables (Q,
    bytes, 256), added byte by byte."""
    packed = np.ascontiguousarray(words.T).view(np.uint8).reshape(words.shape[1], -1)
    out = np.zeros(rows.shape, np.float64)
    for i, listed in enumerate(rows):
        for place in range(tables.shape[1]):
            out[i] += tables[i, place, packed[listed, place]]
    return out


def lengths(atoms: np.ndarray, centre: np.ndarray, words: np.ndarray) -> np.ndarray:
    """float32 (N,): the norm of ``centre`` plus the atoms (groups, 2**g, dim) that the groups of
    g bits choose, 1 where it is zero."""
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


def _stack(found: list, k: int, kind: type) -> tuple[np.ndarray, np.ndarray]:
    if not found:
        return np.empty((0, k), np.int64), np.empty((0, k), kind)
    ids, distances = zip(*found, strict=True)
    return np.stack(ids), np.stack(distances).astype(kind, copy=False)
