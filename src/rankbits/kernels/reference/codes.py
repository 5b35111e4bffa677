"""Hamming kernels by definition: queries (Q, W) and database (W, N) words of 64 bits."""

from __future__ import annotations

import numpy as np


def _measure_distances(query: np.ndarray, words: np.ndarray) -> np.ndarray:
    return np.bitwise_count(query[:, None] ^ words).sum(axis=0, dtype=np.int64)


def hamming(queries: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
    for i, query in enumerate(queries):
        out[i] = _measure_distances(query, words)


def hamming_topk(
    queries: np.ndarray, words: np.ndarray, k: int, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    ids = np.empty((len(queries), k), np.int64)
    distances = np.empty((len(queries), k), np.int32)
    for i, query in enumerate(queries):
        row = _measure_distances(query, words)
        ids[i] = np.argsort(row, kind="stable")[:k]
        distances[i] = row[ids[i]]
    return ids, distances


def hamming_within(
    queries: np.ndarray, words: np.ndarray, radius: int, bits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.zeros(len(queries) + 1, np.int64)
    ids, distances = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for i, query in enumerate(queries):
        row = _measure_distances(query, words)
        order = np.argsort(row, kind="stable")
        ids.append(order[row[order] <= radius])
        distances.append(row[ids[-1]].astype(np.int32))
        offsets[i + 1] = offsets[i] + len(ids[-1])
    return offsets, np.concatenate(ids), np.concatenate(distances)


def _count(queries: np.ndarray, words: np.ndarray, grades_of, bits: int, most: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    counts = np.zeros((len(queries), bits + 1, most + 1), np.int64)
    for i, query in enumerate(queries):
        np.add.at(counts[i], (_measure_distances(query, words), grades_of(i)), 1)
    return counts


def count_classes(
    queries: np.ndarray,
    words: np.ndarray,
    query_classes: np.ndarray,
    classes: np.ndarray,
    bits: int,
) -> np.ndarray:
    return _count(queries, words, lambda i: (classes == query_classes[i]).astype(np.int64), bits, 1)


def count_shared(
    queries: np.ndarray,
    words: np.ndarray,
    query_sets: np.ndarray,
    sets: np.ndarray,
    bits: int,
    most: int,
) -> np.ndarray:
    def grades(i: int) -> np.ndarray:
        shared = np.bitwise_count(query_sets[i][:, None] & sets).sum(axis=0, dtype=np.int64)
        return np.minimum(shared, most)

    return _count(queries, words, grades, bits, most)


def count_grades(
    queries: np.ndarray, words: np.ndarray, grades: np.ndarray, bits: int, most: int
) -> np.ndarray:
    return _count(queries, words, lambda i: grades[i], bits, most)
