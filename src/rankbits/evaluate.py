"""Where labels meet rankings: every figure of a ranking, with the range that ties leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from rankbits import _check, metrics
from rankbits.data.trec import Judged
from rankbits.kernels import hamming, words
from rankbits.metrics.ranking import compact
from rankbits.types import Codes, Figure, Ranking, Report

COUNTS = 1 << 21  # cells of counts held at a time
PAIRS = 1 << 21  # (query, item) pairs held at a time where floats break the ties

Metric = Callable[..., np.ndarray]


def evaluate(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Any = None,
    database_labels: Any = None,
    *,
    k: Any = (10, 100, 1000),
    radius: int = 2,
    relevance: Any = "any",
    gain: str = "exp2",
    tie_break: tuple[Any, Any] | None = None,
    exclude_self: bool = False,
) -> Report:
    """Judge a ranking by Hamming distance -> ``Report``.

    Labels are (n,) whole numbers or (n, C) multi-hot, or ``relevance`` is the (Q, N) grades. ``k``
    are the cutoffs; those past the end of the database are left out. ``exclude_self``: the queries
    are the database, and each leaves itself out.

    ``tie_break=(query_embeddings, database_embeddings)`` is the protocol of H2Q's published tables:
    equal Hamming distances are ordered by the squared Euclidean distance of the unit-length
    embeddings. That is no pure Hamming ranking, and the report says so.

    >>> import rankbits as rb
    >>> report = rb.evaluate(rb.pack([[1, 1]]), rb.pack([[1, 1], [1, -1], [1, -1]]), [7], [7, 7, 3],
    ...                      k=1)
    >>> print(f"{report['mAP']:.4f} {report.figures['mAP'].worst:.4f} {report['hit@1']:.1f}")
    0.9167 0.8333 1.0
    """
    _check.not_empty("queries", len(query_codes))
    points = tuple(at for at in _check.cutoffs(k) if at <= len(database_codes))
    radius = _check.whole("radius", radius, 0)
    table = _figures(points, gain, radius)
    if tie_break is None:
        protocol = "Ranked by Hamming distance; ties averaged over all their orders."
        rankings = _by_counts(
            query_codes, database_codes, query_labels, database_labels, relevance, exclude_self
        )
    else:
        protocol = (
            "H2Q's published protocol: Hamming distance, ties broken by the squared Euclidean "
            "distance of unit-length embeddings. Not a pure Hamming ranking."
        )
        if exclude_self:
            _check.refuse("exclude_self and tie_break cannot be used together.")
        rankings = _by_embeddings(
            query_codes, database_codes, query_labels, database_labels, relevance, tie_break
        )
        table = [row for row in table if "within" not in row[0]]
    notes = _dropped(k, points, len(database_codes))
    return _report(
        rankings,
        table,
        protocol=protocol,
        database=len(database_codes) - exclude_self,
        bits=query_codes.bits,
        notes=notes,
    )


def evaluate_run(judged: Judged, *, k: Any = (10, 100, 1000), gain: str = "exp2") -> Report:
    """Judge a retrieval run by relevance judgements (TREC's two files), equal scores as ties."""
    queries = len(judged.names)
    table = _figures(_check.cutoffs(k), gain, None)
    return _report(
        judged.rankings(COUNTS),
        table,
        protocol="Ranked by the run's scores; equal scores averaged over all their orders.",
        database=judged.documents,
        bits=None,
        notes=judged.notes,
        queries=queries,
    )


def _figures(
    points: tuple[int, ...], gain: str, radius: int | None
) -> list[tuple[str, Metric, str]]:
    """Name, metric and definition of every row of a report, in order."""
    ap, m = metrics.average_precision, metrics
    gains = {"exp2": "2^grade - 1", "linear": "the grade"}
    spelled = gains[_check.choice("gain", gain, tuple(gains))]
    rows: list[tuple[str, Metric, str]] = [
        ("mAP", ap, "average precision over the whole ranking"),
    ]
    for at in points:
        rows += [
            (f"mAP@{at}", partial(ap, k=at), f"AP of the top {at}, divided by all relevant items"),
            (
                f"mAP@{at} retrieved",
                partial(ap, k=at, divide_by="retrieved"),
                f"AP of the top {at}, divided by the relevant items in it (H2Q, most scripts)",
            ),
        ]
    rows.append(("NDCG", partial(m.ndcg, gain=gain), f"gain {spelled}, the whole ranking"))
    for at in points:
        rows += [
            (f"NDCG@{at}", partial(m.ndcg, k=at, gain=gain), f"gain {spelled}, the top {at}"),
            (f"precision@{at}", partial(m.precision_at, k=at), f"relevant share of the top {at}"),
            (f"recall@{at}", partial(m.recall_at, k=at), f"share of the relevant in the top {at}"),
            (
                f"hit@{at}",
                partial(m.hit_at, k=at),
                f"anything relevant in the top {at} (R@k of metric learning)",
            ),
        ]
    rows += [
        ("R-precision", m.r_precision, "precision at R, the query's number of relevant items"),
        ("MAP@R", m.map_at_r, "average precision at R"),
        ("MRR", m.reciprocal_rank, "1 / rank of the first relevant item"),
    ]
    if radius is not None:
        rows += [
            (
                f"{name} within {radius}",
                lambda ranking, ties, metric=metric: metric(ranking, radius),
                f"{name} within Hamming radius {radius}{rest}",
            )
            for name, metric, rest in (
                ("precision", m.precision_within, " (0 where nothing is found)"),
                ("recall", m.recall_within, ""),
            )
        ]
    return rows


def _by_counts(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Any,
    database_labels: Any,
    relevance: Any,
    exclude_self: bool,
) -> Iterator[Ranking]:
    """Rankings of slices of the queries, so that the counts in memory stay few."""
    if exclude_self:
        yield metrics.rank_codes(
            query_codes,
            database_codes,
            query_labels,
            database_labels if database_labels is not None else query_labels,
            relevance,
            exclude_self=True,
        )
        return
    prepared: Any = words(database_codes)
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
            prepared,
            None if labels is None else labels[part],
            database_labels,
            relevance if isinstance(relevance, str) else relevance[part],
        )


def _by_embeddings(
    query_codes: Codes,
    database_codes: Codes,
    query_labels: Any,
    database_labels: Any,
    relevance: Any,
    tie_break: tuple[Any, Any],
) -> Iterator[Ranking]:
    """Lexicographic by (Hamming, squared distance): as squared distances of unit rows end at 4,
    8 x Hamming + squared distance orders the same way."""
    if not isinstance(tie_break, (tuple, list)) or len(tie_break) != 2:
        _check.refuse("tie_break must be (query_embeddings, database_embeddings).")
    names = ("query embeddings", "database embeddings")
    sizes = (len(query_codes), len(database_codes))
    query, database = (
        _unit_rows(name, value, size)
        for name, value, size in zip(names, tie_break, sizes, strict=True)
    )
    if query.shape[1] != database.shape[1]:
        _check.refuse(
            f"Embeddings must agree in dim; got {query.shape[1]} and {database.shape[1]}."
        )
    grades_of = _relevance_rows(query_labels, database_labels, relevance, sizes)
    prepared = words(database_codes)
    step = max(1, PAIRS // len(database_codes))
    for s in range(0, len(query_codes), step):
        part = slice(s, s + step)
        squared = (2 - 2 * (query[part] @ database.T)).clamp_(0, 4).numpy()
        # 2^-40 is far above the rounding of the products, which may depend on the row's place
        squared = np.round(squared * 2**40) / 2**40
        key = 8.0 * hamming(query_codes[part], prepared) + squared
        yield compact(metrics.rank(key, grades_of(part)))


def _unit_rows(name: str, value: Any, rows: int) -> torch.Tensor:
    found = _check.finite(name, _check.matrix(name, value)).astype(np.float64)
    _check.same_length(name, len(found), "its codes", rows)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    if not norms.all():
        _check.refuse(f"{name} must have no row of zeros; row {int(np.argmin(norms))} is one.")
    return torch.from_numpy(found / norms)


def _relevance_rows(
    query_labels: Any, database_labels: Any, relevance: Any, sizes: tuple[int, int]
) -> Callable[[slice], np.ndarray]:
    if not isinstance(relevance, str):
        grades = _check.grades("relevance", relevance)
        if grades.shape != sizes:
            _check.refuse(f"relevance must have shape {sizes}; got {grades.shape}.")
        return lambda part: grades[part]
    mode = _check.choice("relevance", relevance, ("any", "count"))
    theirs = _check.labels("query_labels", query_labels, sizes[0])
    ours = _check.labels("database_labels", database_labels, sizes[1])
    _check.same_kind_of_labels(theirs, ours)
    if ours.ndim == 1:
        return lambda part: theirs[part, None] == ours[None]
    counted = ours.astype(np.float32).T

    def shared(part: slice) -> np.ndarray:
        found = theirs[part].astype(np.float32) @ counted
        return found > 0 if mode == "any" else found.astype(np.int64)

    return shared


def _dropped(k: Any, points: tuple[int, ...], rows: int) -> tuple[str, ...]:
    past = [f"{at:,}" for at in _check.cutoffs(k) if at not in points]
    if not past:
        return ()
    return (f"Cutoffs past the {rows:,} database items are left out: {', '.join(past)}.",)


def _report(
    rankings: Iterable[Ranking],
    table: list[tuple[str, Metric, str]],
    *,
    protocol: str,
    database: int,
    bits: int | None,
    notes: tuple[str, ...],
    queries: int | None = None,
) -> Report:
    columns: dict[tuple[str, str], list[np.ndarray]] = {
        (name, ties): [] for name, _, _ in table for ties in _check.TIES
    }
    relevant = []
    for ranking in rankings:
        relevant.append(ranking.relevant)
        for name, metric, _ in table:
            for ties in _check.TIES:
                columns[name, ties].append(metric(ranking, ties=ties))
    values = {key: np.concatenate(parts) for key, parts in columns.items()}
    found = np.concatenate(relevant)
    defined = found > 0
    figures = {}
    for name, _, definition in table:
        mean, best, worst = (
            float(values[name, ties][defined].mean()) if defined.any() else float("nan")
            for ties in _check.TIES
        )
        figures[name] = Figure(name, mean, worst, best, definition)
    return Report(
        figures=figures,
        protocol=protocol,
        queries=len(found) if queries is None else queries,
        database=database,
        bits=bits,
        without_relevant=int((~defined).sum()),
        notes=notes,
        per_query={name: values[name, "mean"] for name, _, _ in table},
    )
