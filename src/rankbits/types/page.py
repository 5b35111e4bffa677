"""The one style of every page: self-contained HTML, no script, no font, no request to anywhere.

Series are in the colours of Okabe and Ito, told apart by any eye, each with a dash of its own for
print; the dark theme lightens them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light; --paper: #fbfaf8; --raised: #fff; --sunk: #f1efea; --ink: #1c1e22;
  --soft: #565b65; --line: #dddad3; --range: #b5cdf0; --dot: #1d5fb8; --good: #00714f;
  --bad: #b04a00; --s0: #0072b2; --s1: #d55e00; --s2: #008a65; --s3: #b4568a; --s4: #a87400;
  --s5: #3a93c9; --s6: #1c1e22; }
@media (prefers-color-scheme: dark) { :root { color-scheme: dark; --paper: #131519;
  --raised: #1b1e24; --sunk: #23272f; --ink: #eae7e1; --soft: #a9aeb8; --line: #353a44;
  --range: #2d4a78; --dot: #86b6ff; --good: #4fd3a8; --bad: #ffab66; --s0: #4aa8e8;
  --s1: #ff8d3f; --s2: #2fc79b; --s3: #e29ac2; --s4: #f0b93a; --s5: #9ad4f5; --s6: #eae7e1; } }
*, *::before, *::after { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans",
  sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem; margin: 2.5rem auto;
  padding: 0 1.25rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 .35rem; }
h2 { font-size: 1.2rem; letter-spacing: -.01em; margin: 2.75rem 0 .15rem; }
p { margin: .25rem 0; color: var(--soft); max-width: 46rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .5rem 1rem .5rem 0; border-bottom: 1px solid var(--line);
  vertical-align: middle; }
th { font-size: .8rem; color: var(--soft); font-weight: 600; vertical-align: bottom; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.strong { font-weight: 650; } td.name { white-space: nowrap; }
td.bar { min-width: 11rem; width: 34%; }
td.bar svg { width: 100%; height: 1.5rem; display: block; }
small { color: var(--soft); display: block; font-size: .82rem; }
.key { display: inline-block; width: 1.6rem; height: .7rem; margin-right: .5rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .75rem 0; font-size: .88rem; }
.legend span { white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19.5rem), 1fr));
  gap: 1.25rem 1.75rem; margin: 1rem 0; }
.charts.large { grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; max-width: 34rem; }
figcaption { font-size: .88rem; font-weight: 600; margin-bottom: .2rem; }
figcaption small { font-weight: 400; }
figure svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans",
  "Liberation Sans", sans-serif; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--soft); }
svg .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--soft); }
img { image-rendering: pixelated; display: block; }
@media (max-width: 640px) { .stack thead { display: none; } .stack tr { display: block;
    padding: .6rem 0; border-bottom: 1px solid var(--line); }
  .stack td { display: flex; justify-content: space-between; gap: 1rem; border: 0; width: auto;
    padding: .1rem 0; white-space: normal; }
  .stack td::before { content: attr(data-name); color: var(--soft); }
  .stack td:first-child { font-weight: 650; } .stack td.bar { display: block; } }
@media print { :root { --paper: #fff; --sunk: #f4f4f4; } body { max-width: none; margin: 0; }
  figure, tr, .sample { break-inside: avoid; } h2 { break-after: avoid; } }
"""


def shell(title: str, body: str) -> str:
    """A whole page of a body: what every page of rankbits has around it."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>rankbits: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def bar(worst: float, value: float, best: float) -> str:
    """The range of ties as a band and the tie-aware value as a mark, on an axis from 0 to 1."""
    left, mark, right = (100 * min(max(v, 0.0), 1.0) for v in (worst, value, best))
    return (
        f'<svg role="img" aria-label="{worst:.4f} to {best:.4f}">'
        '<line x1="0" x2="100%" y1="50%" y2="50%" stroke="var(--line)" stroke-width="2"/>'
        f'<rect x="{left:.2f}%" width="{max(right - left, 0.2):.2f}%" y="25%" height="50%" rx="2" '
        'fill="var(--range)"/>'
        f'<line x1="{mark:.2f}%" x2="{mark:.2f}%" y1="8%" y2="92%" stroke="var(--dot)" '
        'stroke-width="2.5"/></svg>'
    )


def span(figure: Any) -> str:
    """What ties could have made of a figure, in words."""
    return f"{figure.worst:.4f} to {figure.best:.4f}" if figure.tied else "no tie matters"


def figure_rows(figures: Mapping[str, Any]) -> str:
    """A table with a row for each figure: value, range of ties, definition."""
    rows = []
    for f in figures.values():
        drawn = bar(f.worst, f.value, f.best) if f.value <= 1 and f.best <= 1 else ""
        rows.append(
            f'<tr><td class="name">{escape(f.name)}</td>'
            f'<td class="number strong">{f.spelled}</td>'
            f'<td class="bar">{drawn}<small>{span(f)}</small></td>'
            f"<td><small>{escape(f.definition)}</small></td></tr>"
        )
    return (
        '<div class="wide"><table><thead><tr><th>metric</th><th>value</th>'
        "<th>what ties could make of it</th><th>definition</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def render(*, title: str, protocol: str, remarks: Sequence[str], figures: Mapping[str, Any]) -> str:
    """The page of one report."""
    notes = "".join(f"<p>{escape(r)}</p>" for r in remarks)
    head = f"<h1>{escape(title)}</h1><p>{escape(protocol)}</p>"
    return shell(title, head + figure_rows(figures) + notes)
