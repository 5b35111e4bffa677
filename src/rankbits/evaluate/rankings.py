"""Rank a slice of the queries at a time, so that little is in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from rankbits import _check, metrics
from rankbits.kernels import hamming, inverse_lengths, order_rows, words
from rankbits.metrics.ranking import rank_runs
from rankbits.types import Codes, Questions, Ranking

COUNTS = 1 << 21  # cells of counts in memory at a time
PAIRS = 1 << 21  # (query, item) pairs in memory at a time, where floats order them
FINE = 2.0**40  # whole steps in a squared distance of 1; rounding errors of products are smaller


def rank_by_counts(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Any,
    database_labels: Any,
    relevance: Any,
    exclude_self: bool,
) -> Iterator[Ranking]:
    """Rank codes by Hamming distance, a slice of the queries at a time."""
    if exclude_self:
        pair = query_labels, database_labels
        yield metrics.rank_codes(query_codes, database_codes, *pair, relevance, exclude_self=True)
        return
    database: Any = words(database_codes)
    labels, most = query_labels, _check.MOST_GRADE
    if isinstance(relevance, str):
        labels = _check.labels("query_labels", query_labels, len(query_codes))
        counted = relevance == "count" and labels.ndim == 2
        most = int(labels.sum(axis=1).max(initial=1)) if counted else 1
    elif hasattr(relevance, "tocsr"):
        relevance = relevance.tocsr()
    else:
        relevance = _check.grades("relevance", relevance)
        most = int(relevance.max(initial=1))
    step = max(64, COUNTS // ((query_codes.bits + 1) * (most + 1)))
    for s in range(0, len(query_codes), step):
        part = slice(s, s + step)
        yield metrics.rank_codes(
            query_codes[part],
            database,
            None if labels is None else labels[part],
            database_labels,
            relevance if isinstance(relevance, str) else relevance[part],
        )


def _check_rows(name: str, value: Any, rows: int | None) -> torch.Tensor:
    """Embeddings as a float64 tensor; ``rows`` is the number of their codes, if they have codes."""
    embeddings = _check.finite(name, _check.matrix(name, value)).astype(np.float64)
    _check.not_empty(name, len(embeddings))
    if rows is not None:
        _check.same_length(name, len(embeddings), "its codes", rows)
    return torch.from_numpy(embeddings)


def _prepare_relevance(
    query_labels: Any, database_labels: Any, relevance: Any, sizes: tuple[int, int]
) -> Callable[[slice], np.ndarray]:
    """A function that gives the grades (q, N) of a slice of the queries."""
    if not isinstance(relevance, str):
        grades = _check.grades("relevance", relevance)
        if grades.shape != sizes:
            _check.refuse(f"relevance must have shape {sizes}; got {grades.shape}.")
        return lambda part: grades[part]
    mode = _check.choice("relevance", relevance, ("any", "count"))
    query_labels = _check.labels("query_labels", query_labels, sizes[0])
    database_labels = _check.labels("database_labels", database_labels, sizes[1])
    _check.same_kind_of_labels(query_labels, database_labels)
    if database_labels.ndim == 1:
        return lambda part: query_labels[part, None] == database_labels[None]
    columns = database_labels.astype(np.float32).T

    def count_shared(part: slice) -> np.ndarray:
        shared = query_labels[part].astype(np.float32) @ columns
        return shared > 0 if mode == "any" else shared.astype(np.int64)

    return count_shared


def rank_by_embeddings(
    embeddings: tuple[Any, Any],
    query_labels: Any,
    database_labels: Any,
    relevance: Any,
    *,
    codes: tuple[Codes, Codes] | None = None,
    distance: str = "cosine",
    exclude_self: bool = False,
) -> Iterator[Ranking]:
    """Rank by the squared distance of embeddings; with ``codes``, by Hamming distance first.

    Squared distances are at most 4, as those of unit rows are (others are scaled), so 8 x Hamming +
    squared distance has the lexicographic order. In whole steps of 2^-40, with the grade in the low
    byte, a row is one array of int64, and one sort orders distances and grades together.
    """
    names = ("query embeddings", "database embeddings")
    sizes = (len(codes[0]), len(codes[1])) if codes else (None, None)
    query, database = (
        _check_rows(name, value, size)
        for name, value, size in zip(names, embeddings, sizes, strict=True)
    )
    if query.shape[1] != database.shape[1]:
        _check.refuse(
            f"Embeddings must agree in dim; got {query.shape[1]} and {database.shape[1]}."
        )
    if exclude_self:
        _check.square(len(query), len(database))
        _check.not_empty("database without the query", len(database) - 1)
    query, database = _scale_rows(query, database, distance)
    find_grades = _prepare_relevance(
        query_labels, database_labels, relevance, (len(query), len(database))
    )
    database_words = words(codes[1]) if codes else None
    lengths = [rows.square().sum(1) for rows in (query, database)]
    step = max(1, PAIRS // len(database))
    for s in range(0, len(query), step):
        part = slice(s, min(s + step, len(query)))
        squared = lengths[0][part, None] + lengths[1] - 2 * (query[part] @ database.T)
        steps = np.rint(squared.clamp_(0, 4).numpy() * FINE).astype(np.int64)
        if codes and database_words is not None:
            steps += hamming(codes[0][part], database_words).astype(np.int64) * int(8 * FINE)
        keys = (steps << 8) | find_grades(part)
        yield _rank_keys(keys, s if exclude_self else None)


def rank_by_questions(
    questions: Questions,
    database: Codes,
    query_labels: Any,
    database_labels: Any,
    relevance: Any,
    exclude_self: bool,
) -> Iterator[Ranking]:
    """Rank by the float distance of questions to codes, as it is defined."""
    if exclude_self:
        _check.square(len(questions), len(database))
        _check.not_empty("database without the query", len(database) - 1)
    database_words = words(database)
    sizes = (len(questions), len(database))
    find_grades = _prepare_relevance(query_labels, database_labels, relevance, sizes)
    decoder = questions.decoder
    inverses = None if decoder is None else inverse_lengths(decoder, database_words)
    step = max(1, PAIRS // len(database))
    for s in range(0, len(questions), step):
        part = slice(s, min(s + step, len(questions)))
        rows = np.broadcast_to(np.arange(len(database)), (part.stop - s, len(database)))
        distances = order_rows(questions[part], database_words, rows, inverses=inverses)
        whole = (distances + np.float32(0)).view(np.int32).astype(np.int64)
        whole ^= (whole >> 31) & 0x7FFFFFFF  # whole numbers in the order of the floats
        keys = (whole << 8) | find_grades(part)
        yield _rank_keys(keys, s if exclude_self else None)


def _rank_keys(keys: np.ndarray, first: int | None) -> Ranking:
    """Rank by keys (distance << 8 | grade), (Q, N). ``first``: the row of the first query in the
    database, where each query is left out of its own ranking."""
    if first is not None:
        rows = np.arange(len(keys))
        keys[rows, first + rows] = np.iinfo(np.int64).max
    keys.sort(axis=1)
    return rank_runs(keys if first is None else keys[:, :-1])


def _scale_rows(
    query: torch.Tensor, database: torch.Tensor, distance: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale rows so that squared distances are at most 4 and order rows as ``distance`` does."""
    norms = [rows.norm(dim=1, keepdim=True) for rows in (query, database)]
    if _check.choice("distance", distance, ("cosine", "euclidean")) == "euclidean":
        most = float(max(norms[0].max(), norms[1].max())) or 1.0
        return query / most, database / most
    for name, norm in zip(("query", "database"), norms, strict=True):
        if not norm.all():
            _check.refuse(
                f"{name} embeddings must have no row of zeros; row {int(norm.argmin())} is one."
            )
    return query / norms[0], database / norms[1]
