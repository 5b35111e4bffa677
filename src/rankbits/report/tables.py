"""A comparison in words: the table of a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankbits.report.cost import Cost
from rankbits.report.groups import Group
from rankbits.report.significance import DRAWS
from rankbits.types import Figure

if TYPE_CHECKING:
    from rankbits.report.comparison import Comparison

UNKNOWN = "not known"


def value(group: Group, figure: Figure) -> str:
    """A mean, with its deviation where there are seeds."""
    if figure.value != figure.value:
        return "undefined"
    apart = group.deviation(figure.name)
    return f"{figure.value:.4f}" + ("" if apart is None else f" ± {apart:.4f}")


def ties(figure: Figure) -> str:
    return f"{figure.worst:.4f} to {figure.best:.4f}" if figure.tied else "no tie matters"


def size(cost: Cost) -> str:
    return UNKNOWN if cost.bytes is None else f"{cost.bytes:,}"


def smaller(cost: Cost) -> str:
    """How many times less than the floats the bits were made of."""
    if cost.bytes is None or cost.floats is None:
        return UNKNOWN
    return f"{4 * cost.floats / cost.bytes:,.0f} times"


def search(cost: Cost) -> str:
    return UNKNOWN if cost.milliseconds is None else f"{cost.milliseconds:.3g} ms"


def training(cost: Cost) -> str:
    if cost.seconds is None:
        return UNKNOWN
    return f"{cost.seconds:,.1f} s" + (f", {cost.steps:,} steps" if cost.steps else "")


def chance(p: float) -> str:
    """A p-value; never 0, for a test of draws cannot know that.

    >>> chance(0.25), chance(1 / 10001)
    ('0.25', '0.00010')
    """
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.1g}" if p >= 1e-4 else f"{p:.5f}"


def tested(found: Comparison) -> str:
    """What the significance table is, in one paragraph."""
    gaps = [c.difference for c in found.differences]
    queries = " or ".join(dict.fromkeys(f"{g.queries:,}" for g in gaps))
    how = (
        "every swap counted"
        if all(g.exact for g in gaps)
        else f"{DRAWS:,} random swaps, so no p below 0.0001"
    )
    return (
        f"Paired over {queries} queries: a two-sided randomisation test ({how}), the 95 % interval "
        "of the mean difference by the bootstrap, and p corrected for the number of comparisons "
        "(Holm). What varies here is the queries, not the training."
    )


def text(found: Comparison) -> str:
    """A short table for a terminal."""
    seeds = any(len(g.entries) > 1 for g in found.groups)
    head = ["", found.figure, "ties could make it", "bytes an item", *(["seeds"] if seeds else [])]
    rows = [head]
    for group, figure, cost in zip(found.groups, found.headline, found.costs, strict=True):
        row = [group.name, value(group, figure), ties(figure), size(cost)]
        rows.append([*row, *([str(len(group.entries))] if seeds else [])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join([found.title, "", *lines])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    spelled = [[c.replace("|", "\\|") for c in row] for row in (head, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in spelled]
    return ["", lines[0], "|" + "---|" * len(head), *lines[1:], ""]


def markdown(found: Comparison) -> str:
    """Every table of the page as Markdown."""
    figures = found.headline
    lines = [f"# {found.title}", "", found.protocol]
    lines += _table(
        ["method", "bits", "bytes an item", found.figure, "ties could make it", *found.beside],
        [
            [g.name, str(g.bits or "floats"), size(c), value(g, f), ties(f)]
            + [value(g, x) for n in found.beside if (x := g.figure(n)) is not None]
            for g, f, c in zip(found.groups, figures, found.costs, strict=True)
        ],
    )
    if any(len(g.entries) > 1 for g in found.groups):
        many = ", ".join(f"{g.name} {len(g.entries)}" for g in found.groups)
        lines.append(f"± is the sample deviation over seeds ({many}).")
    if found.differences:
        lines += ["## Differences", "", tested(found)]
        lines += _table(
            ["first", "second", "difference", "95 % interval", "p", "p corrected"],
            [
                [
                    c.first, c.second, f"{c.difference.mean:+.4f}",
                    f"{c.difference.low:+.4f} to {c.difference.high:+.4f}",
                    chance(c.difference.p), chance(c.corrected),
                ]
                for c in found.differences
            ],
        )  # fmt: skip
    lines += ["## Cost", *_table(*costs(found))]
    lines += [*(f"- {word}" for word in found.missing), ""] if found.missing else []
    return "\n".join(lines).rstrip()


def costs(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of costs."""
    head = ["method", "bytes an item", "smaller than its floats", "a search", "training"]
    rows = [
        [g.name, size(c), smaller(c), search(c), training(c)]
        for g, c in zip(found.groups, found.costs, strict=True)
    ]
    return head, rows
