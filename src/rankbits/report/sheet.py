"""A comparison as one self-contained page: sections of tables and drawings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rankbits._version import VERSION
from rankbits.report import drawings, tables
from rankbits.report.samples import Answer, Near, Sample
from rankbits.types.page import bar, figure_rows, shell

if TYPE_CHECKING:
    from rankbits.report.comparison import Comparison

STYLE = """<style>
.heat { border: 1px solid var(--line); width: 100%; max-width: 13rem; margin: .5rem 0 0 30px; }
.sample { display: grid; grid-template-columns: 5rem 1fr; gap: .5rem 1.25rem; padding: 1rem 0;
  border-bottom: 1px solid var(--line); }
.sample .query img { width: 4.5rem; border-radius: 4px; }
.answer { display: flex; flex-wrap: wrap; align-items: flex-start; gap: .3rem .35rem;
  margin-bottom: .6rem; }
.answer b { flex: 0 0 11rem; font-weight: 500; font-size: .88rem; line-height: 1.3; }
.near { width: 2.7rem; text-align: center; font-size: .72rem; line-height: 1.35;
  color: var(--soft); font-variant-numeric: tabular-nums; }
.near img { width: 2.7rem; height: 2.7rem; object-fit: contain; border: 2px solid var(--good);
  border-radius: 4px; background: var(--sunk); }
.near.no img { border: 2px dashed var(--bad); }
@media (prefers-color-scheme: dark) { .heat { filter: brightness(1.35); } }
@media (max-width: 640px) { .sample { grid-template-columns: 1fr; } .answer b { flex-basis: 100%; }
  .near, .near img { width: 2rem; } .near img { height: 2rem; } }
</style>"""


def page(found: Comparison) -> str:
    """The whole page."""
    body = [
        STYLE,
        "<header><h1>How well the bits rank</h1>",
        f"<p>{escape(found.title)}. {escape(found.protocol)}</p></header><main>",
        *_summary(found),
        *_differences(found),
        *drawings.curves(found),
        *drawings.distances(found),
        *drawings.bits(found),
        *drawings.learning(found),
        *_samples(found),
        *_costs(found),
        *_all_figures(found),
        *_words(found),
        "</main>",
    ]
    return shell(found.title, "".join(body))


def _table(head: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """A table of cells (class, HTML); on a phone each row stands as a list of named cells."""
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


def _cell(text: str, kind: str = "number") -> tuple[str, str]:
    return kind, f"<span>{escape(text)}</span>"


def _summary(found: Comparison) -> list[str]:
    best = max((f.value for f in found.headline), default=0)
    seeds = any(len(g.entries) > 1 for g in found.groups)
    rows = []
    for group, figure, cost in zip(found.groups, found.headline, found.costs, strict=True):
        strong = "number strong" if figure.value == best else "number"
        drawn = bar(figure.worst, figure.value, figure.best) if 0 <= figure.best <= 1 else ""
        rows.append([
            _cell(group.name, "name"), _cell(str(group.bits or "floats")), _cell(tables.size(cost)),
            _cell(tables.value(group, figure), strong),
            ("bar", f"{drawn}<small>{tables.ties(figure)}</small>"),
            *(_cell(f"{x.value:.4f}") for n in found.beside if (x := group.figure(n)) is not None),
            *([_cell(str(len(group.entries)))] if seeds else []),
        ])  # fmt: skip
    head = ["method", "bits", "bytes an item", found.figure, "what ties could make of it"]
    words = (
        "The mark is the mean over all orders of tied items, the band what a script that sorts "
        "could have reported, from the worst order to the best, on an axis from 0 to 1."
    )
    if seeds:
        words += " ± is the sample deviation over seeds."
    return [
        "<section><h2>The ranking, and the range of its ties</h2>", f"<p>{words}</p>",
        _table([*head, *found.beside, *(["seeds"] if seeds else [])], rows), "</section>",
    ]  # fmt: skip


def _differences(found: Comparison) -> list[str]:
    if not found.differences:
        return []
    rows = []
    for c in found.differences:
        gap = c.difference
        rows.append([
            _cell(c.first, "name"), _cell(c.second, "name"),
            _cell(f"{gap.mean:+.4f}", "number strong"),
            _cell(f"{gap.low:+.4f} to {gap.high:+.4f}"), _cell(tables.chance(gap.p)),
            _cell(tables.chance(c.corrected)),
        ])  # fmt: skip
    head = [
        "method",
        "beside",
        f"difference in {found.figure}",
        "95 % interval",
        "p",
        "p corrected",
    ]
    return [
        "<section><h2>Are the differences more than luck?</h2>",
        f"<p>{escape(tables.tested(found))}</p>", _table(head, rows), "</section>",
    ]  # fmt: skip


def _samples(found: Comparison) -> list[str]:
    if not found.samples:
        return []
    return [
        "<section><h2>Sample queries</h2>",
        "<p>From the hardest to the easiest for the best method, evenly spaced; the nearest items, "
        "with their Hamming distance. A solid green frame is a neighbour, a dashed orange one is "
        "not. Tied items stand in the order of the database.</p>",
        *(_sample(s, found.figure) for s in found.samples), "</section>",
    ]  # fmt: skip


def _sample(sample: Sample, figure: str) -> str:
    label = escape(sample.label)
    return (
        f'<div class="sample"><div class="query"><img alt="the query, {label}" '
        f'src="{sample.image}"><small>label {label}</small></div>'
        f"<div>{''.join(_answer(a, figure) for a in sample.answers)}</div></div>"
    )


def _answer(answer: Answer, figure: str) -> str:
    one = escape(figure.replace("mAP", "AP"))  # of a single query there is no mean
    known = "" if np.isnan(answer.value) else f"<small>{one} {answer.value:.4f}</small>"
    strip = "".join(map(_near, answer.nearest))
    return f'<div class="answer"><b>{escape(answer.method)}{known}</b>{strip}</div>'


def _near(near: Near) -> str:
    kind = "near" if near.relevant else "near no"
    said = escape(f"{near.label}, {'a neighbour' if near.relevant else 'not a neighbour'}")
    return (
        f'<span class="{kind}" title="{said}"><img alt="{said}" src="{near.image}">'
        f"{near.distance}</span>"
    )


def _costs(found: Comparison) -> list[str]:
    head, rows = tables.costs(found)
    words = ""
    if any(c.milliseconds is not None for c in found.costs):
        threads = found.costs[0].threads
        words = (
            f"<p>A search is one query for its exact nearest ten, measured when this page was made "
            f"on {threads} thread{'' if threads == 1 else 's'}: the median of five rounds.</p>"
        )
    cells = [[_cell(row[0], "name"), *map(_cell, row[1:])] for row in rows]
    return ["<section><h2>What it costs</h2>", words, _table(head, cells), "</section>"]


def _all_figures(found: Comparison) -> list[str]:
    parts = ["<section><h2>Every figure</h2>"]
    for group in found.groups:
        figures = {n: f for n in group.first.report.figures if (f := group.figure(n)) is not None}
        parts.append(
            f"<details><summary>{escape(group.name)}: {len(figures)} figures with their "
            f"definitions</summary>{figure_rows(figures)}</details>"
        )
    return [*parts, "</section>"]


def _words(found: Comparison) -> list[str]:
    remarks = dict.fromkeys(
        f"{g.name}: {r}" for g in found.groups for e in g.entries for r in e.report.remarks
    )
    lines = [*found.missing, *remarks]
    sources = "; ".join(f"{g.name}: {', '.join(e.source for e in g.entries)}" for g in found.groups)
    listed = "".join(f"<p>{escape(line)}</p>" for line in lines)
    left = f"<h2>What is left out, and remarks</h2>{listed}" if lines else ""
    return [
        f"<section>{left}<h2>Made of</h2><p>{escape(sources)}. rankbits {VERSION}.</p></section>"
    ]
