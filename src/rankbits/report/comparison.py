"""Judged runs, codes and reports side by side: their figures, costs, and what is not known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits._files import write_whole
from rankbits.report import samples as sampled
from rankbits.report import sheet, tables
from rankbits.report.cost import Cost, cost
from rankbits.report.entries import CUTOFFS, Entry, read
from rankbits.report.groups import Group, grouped, same_queries
from rankbits.report.seen import Seen, look
from rankbits.report.significance import Difference, difference, holm
from rankbits.types import Figure

MOST_PAIRS = 15  # past six methods each is compared with the best only
BESIDE = ("precision@10", "recall@100", "hit@1", "precision within 2")


@dataclass(frozen=True)
class Compared:
    """Two methods, the difference of their figures, and its p among all comparisons (Holm)."""

    first: str
    second: str
    difference: Difference
    corrected: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """All that a report shows. ``missing``: what it leaves out, and why, a sentence each."""

    groups: tuple[Group, ...]
    figure: str
    differences: tuple[Compared, ...]
    costs: tuple[Cost, ...]
    seen: tuple[Seen | None, ...]
    samples: tuple[sampled.Sample, ...]
    missing: tuple[str, ...]

    @property
    def headline(self) -> tuple[Figure, ...]:
        """The compared figure of each group."""
        found = [g.figure(self.figure) for g in self.groups]
        return tuple(f for f in found if f is not None)

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
        """How the rankings were made, and a warning where they were made in different ways."""
        ways = dict.fromkeys(e.report.protocol for g in self.groups for e in g.entries)
        return next(iter(ways)) if len(ways) == 1 else self.missing[0]

    def __repr__(self) -> str:
        return f"Comparison({self.title})"

    def __str__(self) -> str:
        return tables.text(self)

    def to_markdown(self) -> str:
        """The tables as Markdown; the pictures are in the page only."""
        return tables.markdown(self)

    def to_html(self) -> str:
        """One self-contained page."""
        return sheet.page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.html`` or ``.md``, whole or not at all."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".htm", ".md"):
            _check.refuse(f"{path} must end in .html or .md; got '{suffix}'.")
        made = self.to_markdown() + "\n" if suffix == ".md" else self.to_html()
        write_whole(path, lambda file: file.write(made.encode()))


def compare(
    sources: Sequence[str | Path | Entry],
    *,
    figure: str = "mAP",
    k: Sequence[int] = CUTOFFS,
    relevance: str = "any",
    images: tuple[str | Path, str | Path] | None = None,
    find_protocol: sampled.FindProtocol | None = None,
    many: int = 4,
    measure: bool = True,
    seed: int = 0,
) -> Comparison:
    """Compare runs, codes and reports (see :func:`read`) -> ``Comparison``.

    ``figure`` is what methods are compared by; ``many`` queries are shown with their ``images``
    and those of the database, both in the order of the codes; without ``images``,
    ``find_protocol`` (that of ``rankbits.papers``) reads what a run was judged on. ``measure``:
    time a search. ``seed``: of the tests' draws.

    >>> import tempfile
    >>> import numpy as np
    >>> import rankbits as rb
    >>> x, labels = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3
    >>> x[:, :3] += 4 * np.eye(3)[labels]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, rows in (("queries", slice(20)), ("database", slice(20, 60))):
    ...         rb.pack(x[rows] - 1).save(f"{folder}/{name}.npz", labels=labels[rows])
    ...     found = compare([f"signs={folder}"], measure=False)
    >>> found
    Comparison(1 method, 20 queries x 40 database items)
    >>> found.to_markdown().startswith("# 1 method")
    True
    """
    if not sources or isinstance(sources, (str, Path)):
        _check.refuse("Give a list of runs, reports or codes to compare; got none.")
    entries = [s if isinstance(s, Entry) else read(s, k=k, relevance=relevance) for s in sources]
    groups = grouped(entries)
    for group in groups:
        for entry in group.entries:
            if figure not in entry.report.figures:
                near = _check.nearest(figure, entry.report.figures)
                _check.refuse(f"{entry.source} has no figure '{figure}'{near}.")
    differences, words = _differences(groups, figure, seed)
    shown, word = _samples(groups, images, find_protocol, many, figure)
    seen = tuple(look(g.seen) if g.seen else None for g in groups)
    missing = [*_unlike(groups), *words, *_left_out(groups, seen), *([word] if word else [])]
    return Comparison(
        tuple(groups), figure, differences, tuple(cost(g, measure=measure) for g in groups),
        seen, shown, tuple(missing),
    )  # fmt: skip


def _differences(
    groups: Sequence[Group], figure: str, seed: int
) -> tuple[tuple[Compared, ...], list[str]]:
    """Every pair of groups that answered the same queries; past 15 pairs each with the best."""
    known = [g for g in groups if g.per_query(figure) is not None]
    words = [
        f"Differences to {g.name} are not tested: its figures of each query are not known, or its "
        "seeds answered different queries."
        for g in groups
        if g not in known and len(groups) > 1
    ]
    ranked = sorted(known, key=lambda g: -_value(g, figure))
    pairs = list(combinations(ranked, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = [(ranked[0], other) for other in ranked[1:]]
    found = []
    for one, other in pairs:
        if same_queries(one.first, other.first, figure):
            gap = difference(one.per_query(figure), other.per_query(figure), seed=seed)
            found.append((one.name, other.name, gap))
        else:
            words.append(f"{one.name} and {other.name} answered different queries: not tested.")
    corrected = holm([gap.p for *_, gap in found])
    return tuple(Compared(*f, p) for f, p in zip(found, corrected, strict=True)), words


def _value(group: Group, figure: str) -> float:
    found = group.figure(figure)
    return found.value if found is not None and found.value == found.value else -1.0


def _samples(
    groups: Sequence[Group],
    images: Any,
    find_protocol: sampled.FindProtocol | None,
    many: int,
    figure: str,
) -> tuple[tuple[sampled.Sample, ...], str]:
    if _check.whole("many", many, 0) == 0:
        return (), ""
    if images is not None:
        pair = (sampled.read_pictures(images[0]), sampled.read_pictures(images[1]))
        fitting = [g for g in groups if g.seen]
        for side, name in ((0, "query"), (1, "database")):
            for g in fitting:
                assert g.seen is not None and g.seen.codes is not None
                wanted = len(g.seen.codes[side])
                _check.same_length(f"{name} images", len(pair[side]), "the codes", wanted)
        found: Any = pair
    else:
        found, word = sampled.pictures_of(groups, find_protocol)
        if found is None:
            return (), f"Sample queries are left out: {word}."
    try:
        return sampled.samples(groups, found, many, figure), ""
    except (_check.Refusal, OSError) as sentence:
        return (), f"Sample queries are left out: {sentence}"


def _unlike(groups: Sequence[Group]) -> list[str]:
    """A warning where rankings were made in different ways: their figures mean different things."""
    ways: dict[str, list[str]] = {}
    for group in groups:
        for way in dict.fromkeys(e.report.protocol for e in group.entries):
            ways.setdefault(way, []).append(group.name)
    if len(ways) < 2:
        return []
    listed = " ".join(f"{', '.join(names)}: {way}" for way, names in ways.items())
    return [f"Not all were ranked in the same way. {listed}"]


def _left_out(groups: Sequence[Group], seen: Sequence[Seen | None]) -> list[str]:
    """A sentence for each kind of picture that some group cannot have."""
    words = []
    blind = [g.name for g, s in zip(groups, seen, strict=True) if s is None]
    if blind:
        words.append(
            "Curves, distances and bits need the codes with their labels, which are not known of: "
            f"{', '.join(blind)}."
        )
    silent = [g.name for g in groups if not any(e.log for e in g.entries)]
    if silent:
        words.append(f"No learning curve (no log of training): {', '.join(silent)}.")
    return words
