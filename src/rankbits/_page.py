"""HTML that several rooms write: a self-contained page in the style of ``page.css``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("page.css")


def wrap_page(title: str, body: str) -> str:
    """Wrap a body in the head and the style that every page of rankbits has."""
    style = STYLE.read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>rankbits: {escape(title)}</title><style>{style}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def draw_bar(worst: float, value: float, best: float) -> str:
    """Draw the range of ties as a band and the mean as a mark, on an axis from 0 to 1."""
    left, mark, right = (100 * min(max(v, 0.0), 1.0) for v in (worst, value, best))
    return (
        f'<svg role="img" aria-label="{worst:.4f} to {best:.4f}">'
        '<line x1="0" x2="100%" y1="50%" y2="50%" stroke="var(--line)" stroke-width="2"/>'
        f'<rect x="{left:.2f}%" width="{max(right - left, 0.2):.2f}%" y="25%" height="50%" rx="2" '
        'fill="var(--range)"/>'
        f'<line x1="{mark:.2f}%" x2="{mark:.2f}%" y1="8%" y2="92%" stroke="var(--dot)" '
        'stroke-width="2.5"/></svg>'
    )


def tabulate_figures(figures: Mapping[str, Any]) -> str:
    """Make a table with a row for each figure: value, range of ties, definition."""
    rows = []
    for f in figures.values():
        bar = draw_bar(f.worst, f.value, f.best) if f.value <= 1 and f.best <= 1 else ""
        rows.append(
            f'<tr><td class="name">{escape(f.name)}</td>'
            f'<td class="number strong">{f.spelled}</td>'
            f'<td class="bar">{bar}<small>{f.range_of_ties}</small></td>'
            f"<td><small>{escape(f.definition)}</small></td></tr>"
        )
    return (
        '<div class="wide"><table><thead><tr><th>metric</th><th>value</th>'
        "<th>ties could make it</th><th>definition</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def render_report(
    *, title: str, protocol: str, remarks: Sequence[str], figures: Mapping[str, Any]
) -> str:
    """Make the page of one report."""
    notes = "".join(f"<p>{escape(r)}</p>" for r in remarks)
    head = f"<h1>{escape(title)}</h1><p>{escape(protocol)}</p>"
    return wrap_page(title, head + tabulate_figures(figures) + notes)
