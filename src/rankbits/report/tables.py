"""Make the tables of a comparison, which the page, Markdown and the terminal share."""

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
Table = tuple[list[str], list[list[str]]]  # the head and the rows
SHORT = (0, 3, 4, 2)  # columns of the methods' table that a terminal shows before the seeds


def tabulate_methods(comparison: Comparison) -> Table:
    """Tabulate the methods: figure, range of ties, a few other figures, and number of seeds."""
    seeds = any(len(g.entries) > 1 for g in comparison.groups)
    head = ["method", "bits", "bytes an item", comparison.figure, "ties could make it"]
    head += [*comparison.beside, *(["seeds"] if seeds else [])]
    rows = []
    for group, figure, cost in zip(
        comparison.groups, comparison.headline, comparison.costs, strict=True
    ):
        size = UNKNOWN if cost.bytes is None else f"{cost.bytes:,}"
        row = [group.name, str(group.bits or "floats"), size, _spell_figure(group, figure)]
        row += [figure.range_of_ties]
        row += [f.spelled for n in comparison.beside if (f := group.figure(n)) is not None]
        rows.append([*row, *([str(len(group.entries))] if seeds else [])])
    return head, rows


def tabulate_differences(comparison: Comparison) -> Table:
    """Tabulate the pairs of methods that were tested."""
    head = ["method", "beside", f"difference in {comparison.figure}", "95 % interval", "p"]
    rows = []
    for pair in comparison.differences:
        gap = pair.difference
        row = [pair.first, pair.second, f"{gap.mean:+.4f}", f"{gap.low:+.4f} to {gap.high:+.4f}"]
        rows.append([*row, spell_chance(gap.p), spell_chance(pair.corrected)])
    return [*head, "p corrected"], rows


def tabulate_costs(comparison: Comparison) -> Table:
    """Tabulate what each method costs."""
    head = ["method", "bytes an item", "smaller than its floats", "a search", "training"]
    return head, [
        [group.name, *_spell_cost(cost)]
        for group, cost in zip(comparison.groups, comparison.costs, strict=True)
    ]


def _spell_figure(group: Group, figure: Figure) -> str:
    """Spell a mean, with its deviation where there are several seeds."""
    deviation = group.deviation(figure.name)
    if deviation is None or figure.spelled == "undefined":
        return figure.spelled
    return f"{figure.spelled} ± {deviation:.4f}"


def _spell_cost(cost: Cost) -> list[str]:
    smaller = searching = training = UNKNOWN
    if cost.bytes is not None and cost.floats is not None:
        smaller = f"{4 * cost.floats / cost.bytes:,.0f} times"
    if cost.milliseconds is not None:
        searching = f"{cost.milliseconds:.3g} ms"
    if cost.seconds is not None:
        training = f"{cost.seconds:,.1f} s" + (f", {cost.steps:,} steps" if cost.steps else "")
    return [UNKNOWN if cost.bytes is None else f"{cost.bytes:,}", smaller, searching, training]


def spell_chance(p: float) -> str:
    """Spell a p-value in two digits, and never as 0, which random swaps cannot show.

    >>> spell_chance(0.25), spell_chance(1 / 10001)
    ('0.25', '0.00010')
    """
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.1g}" if p >= 1e-4 else f"{p:.5f}"


def describe_test(comparison: Comparison) -> str:
    """Describe in one paragraph how differences were tested."""
    gaps = [pair.difference for pair in comparison.differences]
    queries = " or ".join(dict.fromkeys(f"{g.queries:,}" for g in gaps))
    how = (
        "every swap counted"
        if all(g.exact for g in gaps)
        else f"{DRAWS:,} random swaps, so no p below 0.0001"
    )
    return (
        f"Paired over {queries} queries: a two-sided randomisation test ({how}), the 95 % interval "
        "of the mean difference by the bootstrap, and p corrected for the number of comparisons "
        "(Holm). The test varies the queries, not the training."
    )


def write_text(comparison: Comparison) -> str:
    """Write a short table for a terminal."""
    head, rows = tabulate_methods(comparison)
    columns = [*SHORT, *([len(head) - 1] if head[-1] == "seeds" else [])]
    lines = [[row[i] for i in columns] for row in (["", *head[1:]], *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    return "\n".join([comparison.title, "", *text])


def write_markdown(comparison: Comparison) -> str:
    """Write every table of the page as Markdown."""
    lines = [f"# {comparison.title}", "", comparison.protocol]
    lines += _mark_down(tabulate_methods(comparison))
    if any(len(g.entries) > 1 for g in comparison.groups):
        lines.append("± is the sample deviation over seeds.")
    if comparison.differences:
        lines += ["## Differences", "", describe_test(comparison)]
        lines += _mark_down(tabulate_differences(comparison))
    lines += ["## Cost", *_mark_down(tabulate_costs(comparison))]
    lines += [f"- {sentence}" for sentence in comparison.missing]
    return "\n".join(lines).rstrip()


def _mark_down(table: Table) -> Sequence[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (table[0], *table[1])]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return ["", lines[0], "|" + "---|" * len(table[0]), *lines[1:], ""]
