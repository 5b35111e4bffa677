"""Hamming distances of packed codes: all of them, counted, the nearest k, or within a radius.

Codes are laid out as 64-bit words, word-major (W, n): the same word of neighbouring items lies side
by side, so that one vector instruction serves eight items.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels import backend
from rankbits.types import Codes, Results


@dataclass(frozen=True, eq=False)
class Words:
    """Codes in the layout of the kernels, uint64 (ceil(bits/64), n): make it once, search it often.

    On a GPU (``on``) the words are a tensor there, int32 (2 ceil(bits/64), n).
    """

    words: Any
    bits: int

    def __len__(self) -> int:
        return self.words.shape[1]

    def on(self, device: str | torch.device) -> Words:
        """The same words in a GPU's memory, where large batches of queries are answered faster."""
        if isinstance(self.words, torch.Tensor):
            return self
        return Words(_load_cuda("codes").move_words(self.words, device), self.bits)

    def prefix(self, bits: int) -> Words:
        """The first ``bits`` bits of all codes: no copy where they fill whole words."""
        if bits == self.bits:
            return self
        count = -(-bits // 64)
        first = self.words[: count * len(self.words) // -(-self.bits // 64)]
        if bits % 64:
            mask = np.packbits(np.arange(64 * count) < bits)
            if isinstance(first, torch.Tensor):
                first = first & torch.from_numpy(mask.view(np.int32)).to(first.device)[:, None]
            else:
                first = first & mask.view(np.uint64)[:, None]
        return Words(first, bits)


def words(codes: Codes | Words) -> Words:
    """Lay ``codes`` out for the kernels; codes of 57 to 64 bits are not copied."""
    if isinstance(codes, Words):
        return codes
    if not isinstance(codes, Codes):
        _check.refuse(f"Codes are wanted here (rb.pack makes them); got {type(codes).__name__}.")
    rows, width = codes.packed.shape
    if width % 8:
        padded = np.zeros((rows, width + -width % 8), np.uint8)
        padded[:, :width] = codes.packed
    else:
        padded = codes.packed
    return Words(np.ascontiguousarray(padded.view(np.uint64).T), codes.bits)


def choose_module(database: Words, room: str) -> ModuleType:
    """The module ``room`` of the backend that searches ``database``; words on a GPU stay there."""
    on_gpu = isinstance(database.words, torch.Tensor)
    name = "cuda" if on_gpu else backend.choose_backend("cpu")
    return _load_cuda(room) if name == "cuda" else backend.load(name, room)


def _load_cuda(room: str) -> ModuleType:
    """The module ``room`` in Triton; refuses where it cannot run."""
    if not backend.has_triton() or not torch.cuda.is_available():
        _check.refuse(
            "Searching on a GPU needs a CUDA device and triton; "
            "RANKBITS_BACKEND=cpu searches without them."
        )
    return backend.load("cuda", room)  # pragma: no cover - needs a GPU


def _lay_out_pair(queries: Codes | Words, database: Codes | Words) -> tuple[np.ndarray, Words]:
    """Query words row by row (Q, W) and the database word-major; refuses an empty database and
    codes that differ in bits."""
    left, right = words(queries), words(database)
    _check.same_bits(left.bits, right.bits)
    _check.not_empty("database", len(right))
    return np.ascontiguousarray(left.words.T), right


def hamming(codes_a: Codes | Words, codes_b: Codes | Words) -> np.ndarray:
    """All Hamming distances, (n, m) uint16 (uint32 past 65,535 bits).

    >>> from rankbits import pack
    >>> hamming(pack([[1, 1, 1]]), pack([[1, 1, 1], [-1, 1, -1]]))
    array([[0, 2]], dtype=uint16)
    """
    left, right = _lay_out_pair(codes_a, codes_b)
    out = np.empty((len(left), len(right)), np.uint16 if right.bits < 1 << 16 else np.uint32)
    choose_module(right, "codes").hamming(left, right.words, out)
    return out


def hamming_topk(queries: Codes | Words, database: Codes | Words, k: int) -> Results:
    """Find the k nearest rows of the database for each query: exact, by distance, then by row.

    ``ids`` (Q, k) int64 and ``distances`` (Q, k) int32; a database of fewer than k rows gives all
    of them.

    >>> from rankbits import pack
    >>> nearest = hamming_topk(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1], [1, -1, 1]]), k=2)
    >>> nearest.ids, nearest.distances
    (array([[1, 0]]), array([[0, 1]], dtype=int32))
    """
    left, right = _lay_out_pair(queries, database)
    ids, distances = choose_module(right, "codes").hamming_topk(
        left, right.words, min(_check.cutoff(k), len(right)), right.bits
    )
    return Results(ids, distances)


def hamming_within(queries: Codes | Words, database: Codes | Words, radius: int) -> Results:
    """Find every row of the database within Hamming distance ``radius``, by distance, then by row.

    >>> from rankbits import pack
    >>> hamming_within(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1]]), radius=1)[0]
    (array([1, 0]), array([0, 1], dtype=int32))
    """
    left, right = _lay_out_pair(queries, database)
    limit = min(_check.whole("radius", radius, 0), right.bits)
    offsets, ids, distances = choose_module(right, "codes").hamming_within(
        left, right.words, limit, right.bits
    )
    return Results(ids, distances, offsets)


def hamming_counts(
    queries: Codes | Words,
    database: Codes | Words,
    query_labels: Any = None,
    database_labels: Any = None,
    relevance: Any = "any",
) -> np.ndarray:
    """Count items by query, Hamming distance and relevance grade: int64 (Q, bits + 1, grades).

    Labels are (n,) whole numbers or names, or (n, C) multi-hot. ``relevance="any"``: grade 1 where
    a label is shared; ``"count"``: the number of shared labels. Instead of labels, ``relevance``
    may be the grades themselves, (Q, N), dense or sparse (anything with ``tocsr``). Memory is
    (Q x bits x grades): the (Q, N) distances are never stored.

    >>> from rankbits import pack
    >>> hamming_counts(pack([[1, 1]]), pack([[1, 1], [1, -1], [1, -1]]), [7], [7, 7, 3])[0]
    array([[0, 1],
           [1, 1],
           [0, 0]])
    """
    left, right = _lay_out_pair(queries, database)
    module = choose_module(right, "codes")
    if not isinstance(relevance, str):
        if query_labels is not None or database_labels is not None:
            _check.refuse("Give either labels or a matrix of grades as relevance, not both.")
        if hasattr(relevance, "tocsr"):
            return _count_sparse(module, left, right, relevance)
        grades = _check.grades("relevance", relevance)
        _check_shape(grades.shape, (len(left), len(right)))
        most = int(grades.max(initial=1))
        return module.count_grades(left, right.words, grades, right.bits, most)

    mode = _check.choice("relevance", relevance, ("any", "count"))
    query_labels, database_labels = _check.number_names(query_labels, database_labels)
    query_labels = _check.labels("query_labels", query_labels, len(left))
    database_labels = _check.labels("database_labels", database_labels, len(right))
    _check.same_kind_of_labels(query_labels, database_labels)
    if database_labels.ndim == 1:
        return module.count_classes(left, right.words, query_labels, database_labels, right.bits)
    most = 1
    if mode == "count" and len(query_labels):
        most = max(1, int(query_labels.sum(axis=1).max()))
    query_sets, database_sets = _pack_labels(query_labels), _pack_labels(database_labels)
    return module.count_shared(
        left, right.words, np.ascontiguousarray(query_sets.T), database_sets, right.bits, most
    )


def _pack_labels(labels: np.ndarray) -> np.ndarray:
    """Multi-hot labels as 64-bit sets, word-major (ceil(C/64), n)."""
    if labels.shape[1] == 0:
        return np.zeros((1, len(labels)), np.uint64)
    return words(Codes(np.packbits(labels, axis=1), labels.shape[1])).words


def _check_shape(shape: tuple[int, ...], wanted: tuple[int, int]) -> None:
    if tuple(shape) != wanted:
        _check.refuse(
            f"relevance must have shape (queries, database) {wanted}; got {tuple(shape)}."
        )


def _count_sparse(module: ModuleType, left: np.ndarray, right: Words, relevance: Any) -> np.ndarray:
    """Count all items as grade 0, then move each judged pair to its grade: what that adds in work
    and memory is linear in the judged pairs."""
    _check_shape(relevance.shape, (len(left), len(right)))
    if isinstance(right.words, torch.Tensor):
        _check.refuse("Sparse relevance is counted on the CPU; give Codes, not words on a GPU.")
    table = relevance.tocsr()
    table.sum_duplicates()
    grades = _check.grades("relevance", table.data).astype(np.int64)
    absent, classes = np.full(len(left), -1), np.zeros(len(right), np.int64)
    counts = module.count_classes(left, right.words, absent, classes, right.bits)
    wide = np.zeros((*counts.shape[:2], max(1, grades.max(initial=1)) + 1), np.int64)
    wide[:, :, 0] = counts[:, :, 0]
    row = np.repeat(np.arange(len(left)), np.diff(table.indptr))
    for start in range(0, len(row), 1 << 20):
        span = slice(start, start + (1 << 20))
        differing = left[row[span]] ^ right.words[:, table.indices[span]].T
        level = np.bitwise_count(differing).sum(axis=1, dtype=np.int64)
        cell: Any = (row[span], level)
        np.add.at(wide, (*cell, 0), -1)
        np.add.at(wide, (*cell, grades[span]), 1)
    return wide
