"""Compare runs, codes and reports: their figures, their costs, and what is not known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._files import write_whole
from rankbits.report import page, tables
from rankbits.report.cost import Cost, measure_cost
from rankbits.report.entries import CUTOFFS, Entry, read_entry
from rankbits.report.groups import Group, group_entries, have_same_queries
from rankbits.report.samples import (
    FindProtocol,
    Sample,
    choose_samples,
    find_pictures,
    read_pictures,
)
from rankbits.report.significance import Difference, compare_paired, correct_by_holm
from rankbits.report.statistics import Statistics, measure_codes
from rankbits.types import Figure
from rankbits.types.evidence import SIDES

MOST_PAIRS = 15  # with more than six methods each is compared only with the best
BESIDE = ("precision@10", "recall@100", "hit@1", "precision within 2")


@dataclass(frozen=True)
class Pair:
    """Two methods, the difference of their figures, and its p corrected by Holm."""

    first: str
    second: str
    difference: Difference
    corrected: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Everything that a page shows. ``missing``: sentences that say what is left out, and why."""

    groups: tuple[Group, ...]
    figure: str
    differences: tuple[Pair, ...]
    costs: tuple[Cost, ...]
    statistics: tuple[Statistics | None, ...]
    samples: tuple[Sample, ...]
    missing: tuple[str, ...]

    @property
    def headline(self) -> tuple[Figure, ...]:
        """The compared figure of each group."""
        return tuple(f for g in self.groups if (f := g.figure(self.figure)) is not None)

    @property
    def beside(self) -> tuple[str, ...]:
        """A few other figures that every group has."""
        return tuple(
            n for n in BESIDE if n != self.figure and all(g.figure(n) for g in self.groups)
        )

    @property
    def title(self) -> str:
        sizes = {(e.report.queries, e.report.database) for g in self.groups for e in g.entries}
        many = f"{len(self.groups)} method{'' if len(self.groups) == 1 else 's'}"
        if len(sizes) > 1:
            return f"{many}, judged on different queries or databases"
        queries, database = sizes.pop()
        return f"{many}, {queries:,} queries x {database:,} database items"

    @property
    def protocol(self) -> str:
        """How the rankings were made, or a warning where they were made in different ways."""
        protocols = dict.fromkeys(e.report.protocol for g in self.groups for e in g.entries)
        return next(iter(protocols)) if len(protocols) == 1 else self.missing[0]

    def __repr__(self) -> str:
        return f"Comparison({self.title})"

    def __str__(self) -> str:
        return tables.write_text(self)

    def to_markdown(self) -> str:
        """Write the tables as Markdown; only the page has drawings."""
        return tables.write_markdown(self)

    def to_html(self) -> str:
        """Write one self-contained page."""
        return page.render_comparison(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.html`` or ``.md``, whole or not at all."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".htm", ".md"):
            _check.refuse(f"{path} must end in .html or .md; got '{suffix}'.")
        text = self.to_markdown() + "\n" if suffix == ".md" else self.to_html()
        write_whole(path, lambda file: file.write(text.encode()))


def compare(
    sources: Sequence[str | Path | Entry],
    *,
    figure: str = "mAP",
    k: Sequence[int] = CUTOFFS,
    relevance: str = "any",
    images: tuple[str | Path, str | Path] | None = None,
    find_protocol: FindProtocol | None = None,
    many: int = 4,
    measure: bool = True,
    seed: int = 0,
) -> Comparison:
    """Compare runs, codes and reports (see :func:`read_entry`) -> ``Comparison``.

    ``figure`` is what methods are compared by. ``many`` sample queries are shown with ``images``,
    those of the queries and of the database in the order of the codes; without them,
    ``find_protocol`` (that of ``rankbits.papers``) finds the images a run was judged on.
    ``measure``: time a search. ``seed``: of the random swaps that test differences.

    >>> import tempfile
    >>> import rankbits as rb
    >>> x, labels = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3
    >>> x[:, :3] += 4 * np.eye(3)[labels]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, rows in (("queries", slice(20)), ("database", slice(20, 60))):
    ...         rb.pack(x[rows] - 1).save(f"{folder}/{name}.npz", labels=labels[rows])
    ...     comparison = compare([f"signs={folder}"], measure=False)
    >>> comparison
    Comparison(1 method, 20 queries x 40 database items)
    >>> comparison.to_markdown().startswith("# 1 method")
    True
    """
    if not sources or isinstance(sources, (str, Path)):
        _check.refuse("Give a list of runs, reports or codes to compare; got none.")
    groups = group_entries(
        [s if isinstance(s, Entry) else read_entry(s, k=k, relevance=relevance) for s in sources]
    )
    for entry in (e for group in groups for e in group.entries):
        if figure not in entry.report.figures:
            near = _check.suggest(figure, entry.report.figures)
            _check.refuse(f"{entry.source} has no figure '{figure}'{near}.")
    differences, untested = _test_differences(groups, figure, seed)
    samples, without_samples = _choose_samples(groups, images, find_protocol, many, figure)
    statistics = tuple(measure_codes(g.evidence) if g.evidence else None for g in groups)
    missing = [*_warn_of_protocols(groups), *untested, *_list_missing(groups, statistics)]
    return Comparison(
        tuple(groups), figure, differences, tuple(measure_cost(g, measure=measure) for g in groups),
        statistics, samples, (*missing, *without_samples),
    )  # fmt: skip


def _test_differences(
    groups: Sequence[Group], figure: str, seed: int
) -> tuple[tuple[Pair, ...], list[str]]:
    """Test every pair of groups that answered the same queries, or, past 15 pairs, each group with
    the best -> the tested pairs, and a sentence for each that cannot be tested."""
    testable = [g for g in groups if g.per_query(figure) is not None]
    untested = [
        f"Differences to {g.name} are not tested: its figures of each query are not known, or its "
        "seeds answered different queries."
        for g in groups
        if g not in testable and len(groups) > 1
    ]
    values = {g: f.value for g in testable if (f := g.figure(figure)) is not None}
    ranked = sorted(testable, key=lambda g: -np.nan_to_num(values[g], nan=-1.0))
    pairs = list(combinations(ranked, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = [(ranked[0], other) for other in ranked[1:]]
    tested = []
    for better, other in pairs:
        if have_same_queries(better.first, other.first, figure):
            gap = compare_paired(better.per_query(figure), other.per_query(figure), seed=seed)
            tested.append((better.name, other.name, gap))
        else:
            names = f"{better.name} and {other.name}"
            untested.append(f"{names} answered different queries: not tested.")
    corrected = correct_by_holm([gap.p for *_, gap in tested])
    return tuple(Pair(*names, p) for names, p in zip(tested, corrected, strict=True)), untested


def _choose_samples(
    groups: Sequence[Group],
    images: Any,
    find_protocol: FindProtocol | None,
    many: int,
    figure: str,
) -> tuple[tuple[Sample, ...], list[str]]:
    """Choose sample queries -> them, and a sentence that says why there are none."""
    if _check.whole("many", many, 0) == 0:
        return (), []
    pictures = None
    if images is not None:
        pictures = (read_pictures(images[0]), read_pictures(images[1]))
        for evidence in [g.evidence for g in groups if g.evidence]:
            for name, side, codes in zip(SIDES, pictures, evidence.codes or (), strict=True):
                _check.same_length(f"{name} images", len(side), "the codes", len(codes))
    try:
        return choose_samples(
            groups, pictures or find_pictures(groups, find_protocol), many, figure
        ), []
    except (_check.Refusal, OSError) as sentence:
        return (), [f"Sample queries are left out: {sentence}"]


def _warn_of_protocols(groups: Sequence[Group]) -> list[str]:
    """Warn where rankings were made in different ways: their figures mean different things."""
    by_protocol: dict[str, list[str]] = {}
    for group in groups:
        for protocol in dict.fromkeys(e.report.protocol for e in group.entries):
            by_protocol.setdefault(protocol, []).append(group.name)
    if len(by_protocol) < 2:
        return []
    lines = (f"{', '.join(names)}: {protocol}" for protocol, names in by_protocol.items())
    return [f"Not all were ranked in the same way. {' '.join(lines)}"]


def _list_missing(groups: Sequence[Group], statistics: Sequence[Statistics | None]) -> list[str]:
    """List a sentence for each kind of drawing that some group cannot have."""
    sentences = []
    without_codes = [g.name for g, s in zip(groups, statistics, strict=True) if s is None]
    if without_codes:
        sentences.append(
            "Curves, distances and bits need the codes with their labels, which are not known of: "
            f"{', '.join(without_codes)}."
        )
    without_log = [g.name for g in groups if not any(e.log for e in g.entries)]
    if without_log:
        sentences.append(f"No learning curve (no log of training): {', '.join(without_log)}.")
    return sentences
