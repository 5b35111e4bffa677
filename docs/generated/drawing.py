"""Two kinds of drawings as SVG that stands alone: dots by row, and lines over two axes.

Colours are Okabe and Ito's, and every series has a mark or a dash of its own too, so nothing is
said by colour alone. Numbers are rounded to a tenth of a unit: the same rows make the same file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from rankbits.report.svg import choose_ticks, spell_ticks

WIDTH, LETTER = 760, 7.0  # of a drawing, of a letter
APART, BETWEEN = 9, 11  # of the series of a row, and of rows
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8c6d1f", "#555555")
DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2", "12 3", "1 3")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-weight:600}.g{stroke:#ddd}"
    ".a{stroke:#666}.l{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Dot:
    """A value in a row; ``low`` and ``high``: a bar through it."""

    row: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Panel:
    """A title and, by the name of a series, its dots (of lines: its points, left to right)."""

    title: str
    series: dict[str, list[Dot]] = field(default_factory=dict)
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def dots(panels: Sequence[Panel], label: str, of: str, zero: bool = False) -> str:
    """Rows of dots, the panels side by side over axes of ``of``; ``zero``: a line at nothing.

    >>> drawn = dots([Panel("16 bits", {"ours": [Dot("CEL", 0.8, 0.7, 0.9)]})], "a dot", "AP_T")
    >>> drawn.count("<circle"), "CEL" in drawn
    (2, True)
    """
    names = list(dict.fromkeys(d.row for p in panels for s in p.series.values() for d in s))
    series = list(dict.fromkeys(name for p in panels for name in p.series))
    every = [v for p in panels for s in p.series.values() for d in s for v in _ends(d)]
    low, high = min(every + [0.0] * zero), max(every + [0.0] * zero)
    room = (high - low or 1.0) * 0.04
    low, high = low - room, high + room
    side = LETTER * max(map(len, names)) + 12
    head = 30 + 20 * (len(series) > 1)
    there = {n: [s for s in series if any(_has(p, s, n) for p in panels)] for n in names}
    tall = [APART * len(there[name]) + BETWEEN for name in names]
    middle = {n: head + sum(tall[:i]) + tall[i] / 2 for i, n in enumerate(names)}
    bottom = head + sum(tall)
    wide = (WIDTH - side) / len(panels)
    parts = _legend(series, side) if len(series) > 1 else []
    parts += [_text(side - 8, middle[name] + 4, name, "end") for name in names]
    for k, panel in enumerate(panels):
        left, right = side + k * wide + 8, side + (k + 1) * wide - 16

        def at(value: float, left: float = left, right: float = right) -> float:
            return left + (value - low) / (high - low) * (right - left)

        parts += _across(
            panel.title, at, choose_ticks(low, high, 5), (left, right), (head, bottom), of
        )
        if zero:
            parts.append(_line("a", at(0), at(0), head, bottom))
        for s, name in enumerate(series):
            for dot in panel.series.get(name, ()):
                order = there[dot.row]
                y = middle[dot.row] + APART * (order.index(name) - (len(order) - 1) / 2)
                if dot.low is not None and dot.high is not None:
                    parts.append(
                        f'<line x1="{at(dot.low):.1f}" x2="{at(dot.high):.1f}" y1="{y:.1f}" '
                        f'y2="{y:.1f}" stroke="{COLOURS[s]}" stroke-width="2" opacity=".6"/>'
                    )
                parts.append(_mark(s, at(dot.value), y))
    return _svg(bottom + 44, label, parts)


def lines(
    panels: Sequence[Panel], label: str, across: str, of: str, every: int | None = None
) -> str:
    """Lines over the logarithm of ``across``, the panels side by side, each with axes of its own.
    ``every``: over whole numbers as they are, those that it divides marked below.

    >>> drawn = lines([Panel("R@1", lines={"a": [(1, 0.5), (10, 0.7)]})], "up", "bins", "R@1")
    >>> drawn.count("<polyline")
    1
    """
    series = list(dict.fromkeys(name for p in panels for name in p.lines))
    head, bottom, side = 50, 270, 52
    wide = WIDTH / len(panels)
    parts = _legend(series, side) if len(series) > 1 else []
    scale: Callable[[float], float] = float if every else math.log
    for k, panel in enumerate(panels):
        left, right = side + k * wide, (k + 1) * wide - 20
        heights = [y for points in panel.lines.values() for _, y in points]
        room = (max(heights) - min(heights) or 1.0) * 0.06
        low, high = min(heights) - room, max(heights) + room
        up = choose_ticks(low, high, 6)
        marks = sorted({x for points in panel.lines.values() for x, _ in points})
        first, last = scale(marks[0]), scale(marks[-1])
        marks = [mark for mark in marks if every is None or mark % every == 0]

        def at(
            value: float, left: float = left, right: float = right, a: float = first,
            b: float = last,
        ) -> float:  # fmt: skip
            return left + (scale(value) - a) / (b - a or 1.0) * (right - left)

        def over(value: float, low: float = low, high: float = high) -> float:
            return bottom - (value - low) / (high - low) * (bottom - head)

        for value, text in zip(up, spell_ticks(up), strict=True):
            parts.append(_line("g", left, right, over(value), over(value)))
            parts.append(_text(left - 8, over(value) + 4, text, "end"))
        said = f"{panel.title}, {of}"
        parts += _across(said, at, marks, (left, right), (head, bottom), across)
        for s, name in enumerate(series):
            points = panel.lines.get(name, [])
            path = " ".join(f"{at(x):.1f},{over(y):.1f}" for x, y in points)
            parts.append(f'<polyline class="l" points="{path}" {_stroke(s)}/>')
            parts += [_mark(s, at(x), over(y)) for x, y in points]
    return _svg(bottom + 44, label, parts)


def _has(panel: Panel, series: str, row: str) -> bool:
    return any(dot.row == row for dot in panel.series.get(series, ()))


def _ends(dot: Dot) -> list[float]:
    return [v for v in (dot.value, dot.low, dot.high) if v is not None]


def _across(
    title: str,
    at: Callable[[float], float],
    values: Sequence[float],
    sides: tuple[float, float],
    ends: tuple[float, float],
    of: str,
) -> list[str]:
    """A panel's title, its axis with numbers below, and what they are of."""
    (left, right), (top, bottom) = sides, ends
    parts = [_text(left, top - 10, title, kind="t")]
    for value, text in zip(values, spell_ticks(values), strict=True):
        parts.append(_line("g", at(value), at(value), top, bottom))
        parts.append(_text(at(value), bottom + 16, text, "middle"))
    parts.append(_line("a", left, right, bottom, bottom))
    return [*parts, _text((left + right) / 2, bottom + 34, of, "middle")]


def _legend(series: Sequence[str], left: float) -> list[str]:
    parts, x = [], left
    for s, name in enumerate(series):
        parts += [_mark(s, x + 6, 12), _text(x + 16, 16, name)]
        x += LETTER * len(name) + 34
    return parts


def _mark(series: int, x: float, y: float) -> str:
    """A circle, a square, a diamond, a triangle; then the same, hollow."""
    fill = COLOURS[series] if series < 4 else "#fff"
    paint = f'fill="{fill}" stroke="{COLOURS[series]}" stroke-width="1.5"'
    kind = series % 4
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {paint}/>'
    if kind == 1:
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" {paint}/>'
    ends = ((0, -5), (5, 0), (0, 5), (-5, 0)) if kind == 2 else ((0, -5), (5, 4), (-5, 4))
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in ends)}" {paint}/>'


def _stroke(series: int) -> str:
    dash = f' stroke-dasharray="{DASHES[series]}"' if DASHES[series] else ""
    return f'stroke="{COLOURS[series]}"{dash}'


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{side}{named}>{escape(text)}</text>'


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
