"""Evaluate on many workers: each counts a shard of the database, and counts are added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.evaluate.figures import choose_figures, make_report, note_dropped
from rankbits.evaluate.judge import BY_CODES
from rankbits.evaluate.rankings import COUNTS
from rankbits.metrics import rank_codes
from rankbits.scale.cluster import cut_spans, join_cluster, run_parts
from rankbits.types import Codes, Ranking, Report

ROWS = 1 << 20


def _count_shard(
    queries: Codes, labels: np.ndarray, shard: tuple[np.ndarray, np.ndarray], relevance: str
) -> np.ndarray:
    """The counts (Q, bits + 1, grades) of some queries over one shard of the database."""
    packed, shard_labels = shard
    return rank_codes(
        queries, Codes(packed, queries.bits), labels, np.array(shard_labels), relevance
    ).counts


def evaluate(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Any = None,
    database_labels: Any = None,
    *,
    address: str = "local",
    rows: int = ROWS,
    k: Any = (10, 100, 1000),
    radius: int = 2,
    relevance: str = "any",
    gain: str = "exp2",
    exclude_self: bool = False,
    tie_break: Any = None,
) -> Report:
    """``rb.evaluate`` by the workers of a Ray cluster: the same report, to the last bit.

    The database goes out in shards of ``rows``; a worker sends back (queries x bits x grades)
    counts, whatever the size of its shard.
    """
    if tie_break is not None:
        _check.refuse("tie_break cannot be used with Ray: floats cannot be merged by counting.")
    for name, codes in (("query", query_codes), ("database", database_codes)):
        if not isinstance(codes, Codes):
            _check.refuse(f"The {name} codes must be Codes here; got {type(codes).__name__}.")
    _check.not_empty("queries", len(query_codes))
    _check.not_empty("database", len(database_codes))
    _check.same_bits(query_codes.bits, database_codes.bits)
    _check.choice("relevance", relevance, ("any", "count"))
    if exclude_self:
        _check.square(len(query_codes), len(database_codes))
        if query_codes != database_codes:
            _check.refuse("exclude_self needs the database to be the queries themselves.")
        database_labels = query_labels if database_labels is None else database_labels
    query_labels, database_labels = _check.number_names(query_labels, database_labels)
    query_labels = _check.labels("query_labels", query_labels, len(query_codes))
    database_labels = _check.labels("database_labels", database_labels, len(database_codes))
    _check.same_kind_of_labels(query_labels, database_labels)
    others = len(database_codes) - exclude_self
    points = tuple(at for at in _check.cutoffs(k) if at <= others)
    table = choose_figures(points, gain, _check.whole("radius", radius, 0))
    shards = cut_spans(len(database_codes), rows)
    with join_cluster(address) as ray:
        sent = [ray.put((database_codes.packed[s], database_labels[s])) for s in shards]
        return make_report(
            _sum_rankings(ray, query_codes, query_labels, sent, relevance, exclude_self),
            table,
            protocol=BY_CODES,
            database=others,
            bits=query_codes.bits,
            notes=note_dropped(k, points, others),
        )


def _sum_rankings(
    ray: Any,
    queries: Codes,
    labels: np.ndarray,
    shards: list,
    relevance: str,
    exclude_self: bool,
) -> Iterator[Ranking]:
    """Yield the rankings of slices of the queries, each the sum over all shards."""
    self_grades: np.ndarray = np.ones(len(labels), np.int64)
    if labels.ndim == 2:
        self_grades = np.asarray(
            labels.sum(axis=1) if relevance == "count" else labels.any(axis=1), np.int64
        )
    most = int(self_grades.max(initial=1))
    slices = cut_spans(len(queries), max(64, COUNTS // ((queries.bits + 1) * (most + 1))))
    parts = [(queries[s], labels[s], shard, relevance) for s in slices for shard in shards]
    counts = run_parts(ray, _count_shard, parts, "evaluate")
    for part in slices:
        total = Ranking(np.array(next(counts)))
        for _ in shards[1:]:
            total = total + Ranking(next(counts))
        if exclude_self:
            total.counts[np.arange(len(total)), 0, self_grades[part]] -= 1
        yield total
