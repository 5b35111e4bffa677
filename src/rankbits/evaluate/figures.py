"""Which figures a report has, and how they are computed from rankings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from rankbits import _check, metrics
from rankbits.types import Figure, Ranking, Report

Metric = Callable[..., np.ndarray]


def choose_figures(
    points: tuple[int, ...], gain: str, radius: int | None
) -> list[tuple[str, Metric, str]]:
    """The name, metric and definition of every row of a report, in order."""
    ap, m = metrics.average_precision, metrics
    gains = {"exp2": "2^grade - 1", "linear": "the grade"}
    gain_text = gains[_check.choice("gain", gain, tuple(gains))]
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
    rows.append(("NDCG", partial(m.ndcg, gain=gain), f"gain {gain_text}, the whole ranking"))
    for at in points:
        rows += [
            (f"NDCG@{at}", partial(m.ndcg, k=at, gain=gain), f"gain {gain_text}, the top {at}"),
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


def find_cutoffs(name: str) -> tuple[int, ...]:
    """Find the cutoffs that a figure's name holds.

    >>> find_cutoffs("hit@10"), find_cutoffs("MAP@R")
    ((10,), ())
    """
    return tuple(int(digits) for digits in re.findall(r"@(\d+)", name))


def check_figure(what: str, name: str) -> None:
    """Refuse a name that no figure of a ranking has, such as ``hit@0``."""
    points = tuple(at for at in find_cutoffs(name) if at) or (1,)
    _check.choice(what, name, tuple(row[0] for row in choose_figures(points, "exp2", None)))


def note_dropped(k: Any, points: tuple[int, ...], rows: int) -> tuple[str, ...]:
    """A sentence that lists the cutoffs that were left out, if any were."""
    past = [f"{at:,}" for at in _check.cutoffs(k) if at not in points]
    if not past:
        return ()
    return (f"Cutoffs past the {rows:,} database items are left out: {', '.join(past)}.",)


def make_report(
    rankings: Iterable[Ranking],
    table: list[tuple[str, Metric, str]],
    *,
    protocol: str,
    database: int,
    bits: int | None,
    notes: tuple[str, ...],
    queries: int | None = None,
) -> Report:
    """Compute every figure of ``table``, and its range over the orders of ties."""
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
    defined = np.concatenate(relevant) > 0
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
        queries=len(defined) if queries is None else queries,
        database=database,
        bits=bits,
        without_relevant=int((~defined).sum()),
        notes=notes,
        per_query={name: values[name, "mean"] for name, _, _ in table},
    )
