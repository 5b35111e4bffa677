"""A report as one self-contained HTML page: no script, no font, no request to anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --line: #e4e7ec; --paper: #fff;
  --range: #b9d0fb; --dot: #1f4fd8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf2; --soft: #98a2b3; --line: #2b3240;
  --paper: #12161f; --range: #2c4a8f; --dot: #8fb2ff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; } p { margin: .25rem 0; color: var(--soft); }
table { border-collapse: collapse; width: 100%; margin: 1.5rem 0; }
th, td { text-align: left; padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-size: .8rem; color: var(--soft); font-weight: 600; }
td.number { font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
td.name { white-space: nowrap; } td.bar { width: 38%; } td.bar svg { width: 100%; height: 1.5rem; }
small { color: var(--soft); display: block; }
"""


def _bar(worst: float, value: float, best: float) -> str:
    """The range of ties as a band and the tie-aware value as a dot, on an axis from 0 to 1."""
    left, dot, right = (100 * min(max(v, 0.0), 1.0) for v in (worst, value, best))
    return (
        f'<svg role="img" aria-label="{worst:.4f} to {best:.4f}">'
        '<line x1="0" x2="100%" y1="50%" y2="50%" stroke="var(--line)" stroke-width="2"/>'
        f'<rect x="{left:.2f}%" width="{max(right - left, 0.2):.2f}%" y="30%" height="40%" rx="3" '
        'fill="var(--range)"/>'
        f'<circle cx="{dot:.2f}%" cy="50%" r="5" fill="var(--dot)"/></svg>'
    )


def render(*, title: str, protocol: str, remarks: Sequence[str], figures: Mapping[str, Any]) -> str:
    rows = []
    for f in figures.values():
        span = f"{f.worst:.4f} to {f.best:.4f}" if f.tied else "no tie matters"
        bar = _bar(f.worst, f.value, f.best) if f.value <= 1 and f.best <= 1 else ""
        rows.append(
            f'<tr><td class="name">{escape(f.name)}</td><td class="number">{f.value:.4f}</td>'
            f'<td class="bar">{bar}<small>{span}</small></td>'
            f"<td><small>{escape(f.definition)}</small></td></tr>"
        )
    notes = "".join(f"<p>{escape(r)}</p>" for r in remarks)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>rankbits: {escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>{escape(protocol)}</p>"
        "<table><thead><tr><th>metric</th><th>value</th><th>what ties could make of it</th>"
        f"<th>definition</th></tr></thead><tbody>{''.join(rows)}</tbody></table>{notes}</html>\n"
    )
