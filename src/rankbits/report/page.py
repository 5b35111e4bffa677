"""Render a comparison as one self-contained page: sections of tables and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rankbits._page import draw_bar, tabulate_figures, wrap_page
from rankbits._version import VERSION
from rankbits.report import drawings, tables
from rankbits.report.samples import Near, Sample, SampleRow

if TYPE_CHECKING:
    from rankbits.report.comparison import Comparison

Cell = tuple[str, str]  # a cell's class and its HTML


def render_comparison(comparison: Comparison) -> str:
    """Render the whole page."""
    sections = [
        "<header><h1>How well the bits rank</h1>",
        f"<p>{escape(comparison.title)}. {escape(comparison.protocol)}</p></header><main>",
        *_render_methods(comparison),
        *_render_differences(comparison),
        *drawings.draw_curves(comparison),
        *drawings.draw_distances(comparison),
        *drawings.draw_bits(comparison),
        *drawings.draw_learning(comparison),
        *_render_samples(comparison),
        *_render_costs(comparison),
        *_render_all_figures(comparison),
        *_render_remarks(comparison),
        "</main>",
    ]
    return wrap_page(comparison.title, "".join(sections))


def _render_table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Render a table; on a phone each row becomes a list of named cells."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-name="{escape(name)}">{cell}</td>'
            for name, (kind, cell) in zip(head, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table class="stack"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _render_row(row: Sequence[str], names: int = 1, strong: int | None = None) -> list[Cell]:
    """Make the cells of a row: ``names`` names, then numbers; ``strong`` is the one in bold."""
    kinds = ["name" if i < names else "number" for i in range(len(row))]
    if strong is not None:
        kinds[strong] = "number strong"
    return [(k, f"<span>{escape(text)}</span>") for k, text in zip(kinds, row, strict=True)]


def _render_methods(comparison: Comparison) -> list[str]:
    head, texts = tables.tabulate_methods(comparison)
    best = max((f.value for f in comparison.headline), default=0)
    rows = []
    for figure, text in zip(comparison.headline, texts, strict=True):
        row = _render_row(text, strong=3 if figure.value == best else None)
        bar = draw_bar(figure.worst, figure.value, figure.best) if 0 <= figure.best <= 1 else ""
        row[4] = ("bar", f"{bar}<small>{text[4]}</small>")
        rows.append(row)
    words = (
        "The mark is the mean over all orders of tied items. The band is what a script that sorts "
        "could have reported, from the worst order to the best. The axis goes from 0 to 1."
    )
    if head[-1] == "seeds":
        words += " ± is the sample deviation over seeds."
    return [
        "<section><h2>The ranking, and the range of its ties</h2>", f"<p>{words}</p>",
        _render_table(head, rows), "</section>",
    ]  # fmt: skip


def _render_differences(comparison: Comparison) -> list[str]:
    if not comparison.differences:
        return []
    head, texts = tables.tabulate_differences(comparison)
    return [
        "<section><h2>Are the differences more than luck?</h2>",
        f"<p>{escape(tables.describe_test(comparison))}</p>",
        _render_table(head, [_render_row(text, 2, strong=2) for text in texts]), "</section>",
    ]  # fmt: skip


def _render_samples(comparison: Comparison) -> list[str]:
    if not comparison.samples:
        return []
    return [
        "<section><h2>Sample queries</h2>",
        "<p>Queries from the hardest to the easiest for the best method, evenly spaced, and their "
        "nearest items with the Hamming distance. A neighbour has a solid green frame, any other "
        "item a dashed orange one. Tied items are in the order of the database.</p>",
        *(_render_sample(s, comparison.figure) for s in comparison.samples), "</section>",
    ]  # fmt: skip


def _render_sample(sample: Sample, figure: str) -> str:
    label = escape(sample.label)
    rows = "".join(_render_sample_row(row, figure) for row in sample.rows)
    return (
        f'<div class="sample"><div class="query"><img alt="the query, {label}" '
        f'src="{sample.image}"><small>label {label}</small></div><div>{rows}</div></div>'
    )


def _render_sample_row(row: SampleRow, figure: str) -> str:
    name = escape(figure.replace("mAP", "AP"))  # a single query has no mean
    value = "" if np.isnan(row.value) else f"<small>{name} {row.value:.4f}</small>"
    images = "".join(map(_render_near, row.nearest))
    return f'<div class="answer"><b>{escape(row.method)}{value}</b>{images}</div>'


def _render_near(near: Near) -> str:
    kind = "near" if near.relevant else "near no"
    text = escape(f"{near.label}, {'a neighbour' if near.relevant else 'not a neighbour'}")
    return (
        f'<span class="{kind}" title="{text}"><img alt="{text}" src="{near.image}">'
        f"{near.distance}</span>"
    )


def _render_costs(comparison: Comparison) -> list[str]:
    head, texts = tables.tabulate_costs(comparison)
    words = ""
    if any(c.milliseconds is not None for c in comparison.costs):
        threads = comparison.costs[0].threads
        words = (
            f"<p>A search is one query for its exact nearest ten, measured when this page was made "
            f"on {threads} thread{'' if threads == 1 else 's'}: the median of five rounds.</p>"
        )
    table = _render_table(head, [_render_row(text) for text in texts])
    return ["<section><h2>What it costs</h2>", words, table, "</section>"]


def _render_all_figures(comparison: Comparison) -> list[str]:
    parts = ["<section><h2>Every figure</h2>"]
    for group in comparison.groups:
        figures = {n: f for n in group.first.report.figures if (f := group.figure(n)) is not None}
        parts.append(
            f"<details><summary>{escape(group.name)}: {len(figures)} figures with their "
            f"definitions</summary>{tabulate_figures(figures)}</details>"
        )
    return [*parts, "</section>"]


def _render_remarks(comparison: Comparison) -> list[str]:
    remarks = dict.fromkeys(
        f"{g.name}: {r}" for g in comparison.groups for e in g.entries for r in e.report.remarks
    )
    lines = "".join(f"<p>{escape(line)}</p>" for line in [*comparison.missing, *remarks])
    sources = "; ".join(
        f"{g.name}: {', '.join(e.source for e in g.entries)}" for g in comparison.groups
    )
    left_out = f"<h2>What is left out, and remarks</h2>{lines}" if lines else ""
    return [
        f"<section>{left_out}<h2>Made of</h2><p>{escape(sources)}. rankbits {VERSION}.</p>",
        "</section>",
    ]
