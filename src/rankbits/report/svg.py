"""Draw small charts as SVG: axes, lines, steps and bars.

They are written by hand so that they take their colours from ``page.css``, and one page can be
light, dark or printed; a drawing of matplotlib has fixed colours. Widths are those of a column or a
phone, so that letters stay readable; the page draws the legend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

DASHES = ("", "7 4", "2 4", "10 4 2 4", "12 3", "4 2", "1 3")
COLOURS = 7


@dataclass(frozen=True)
class Series:
    """A named line: points from left to right, drawn in the colour and dash of ``style``.

    ``fill``: tint the area below. ``faint``: one of several lines of one method.
    """

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 0
    fill: bool = False
    faint: bool = False


def _choose_stroke(style: int) -> str:
    """Choose the colour and dash of a style; where colours repeat, the dash is another one."""
    dash = DASHES[(style + style // COLOURS) % len(DASHES)]
    return f'stroke="var(--s{style % COLOURS})"' + (f' stroke-dasharray="{dash}"' if dash else "")


def choose_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Choose at most ``most`` round numbers from low to high.

    >>> choose_ticks(0, 1), choose_ticks(0, 16), choose_ticks(3, 3)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 5.0, 10.0, 15.0], [3.0])
    """
    if not high > low:
        return [float(low)]
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10, 20) if (high - low) / (unit * m) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{n * step:.15g}") for n in range(first, math.floor(high / step + 1e-9) + 1)]


def spell_ticks(values: Sequence[float]) -> list[str]:
    """Spell ticks in few letters, but enough of them to tell each from the next.

    >>> spell_ticks([0.0, 0.5]), spell_ticks([0.0, 1200.0]), spell_ticks([0.69312, 0.69314])
    (['0', '0.5'], ['0', '1,200'], ['0.69312', '0.69314'])
    """
    texts: list[str] = []
    for digits in range(4, 16):
        texts = [
            f"{v:,.0f}" if abs(v) >= 1000 and v == round(v) else f"{v:.{digits}g}" for v in values
        ]
        if len(set(texts)) == len(texts):
            break
    return texts


def plot(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    label: str,
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, str]] | None = None,
    size: tuple[int, int] = (400, 270),
) -> str:
    """Draw lines over two axes; ``label`` says in words what the drawing shows. ``x`` and ``y`` are
    the ends of the axes; ``marks`` are places and texts below it, in place of round numbers.

    >>> drawn = plot([Series("a", [(0, 0), (1, 1)])], x_label="x", y_label="y", label="a line")
    >>> drawn.count("<polyline"), 'aria-label="a line"' in drawn
    (1, True)
    """
    points = [p for s in series for p in s.points] or [(0.0, 0.0)]
    (x0, x1), (y0, y1) = (
        ends or (min(p[i] for p in points), max(p[i] for p in points))
        for i, ends in ((0, x), (1, y))
    )
    x1, y1 = (x1 if x1 > x0 else x0 + 1), (y1 if y1 > y0 else y0 + 1)
    across, up = marks or _mark_ticks(x0, x1), _mark_ticks(y0, y1)
    width, height = size
    left = max(10 + 7 * max(len(text) for _, text in up), 7 * len(across[0][1]) / 2 + 4)
    right, top, bottom = width - 7 * len(across[-1][1]) / 2 - 4, 26, height - 38

    def at(px: float, py: float) -> tuple[float, float]:
        return (
            left + (px - x0) / (x1 - x0) * (right - left),
            bottom - (py - y0) / (y1 - y0) * (bottom - top),
        )

    drawn = [f'<text x="0" y="12">{escape(y_label)}</text>']
    for t, text in up:
        py = at(x0, t)[1]
        drawn.append(
            f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{py:.1f}" y2="{py:.1f}"/>'
            f'<text x="{left - 6:.1f}" y="{py + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for t, text in across:
        px = at(t, y0)[0]
        drawn.append(
            f'<line class="axis" x1="{px:.1f}" x2="{px:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text x="{px:.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>'
        )
    drawn.append(
        f'<line class="axis" x1="{left:.1f}" x2="{right:.1f}" y1="{bottom}" y2="{bottom}"/>'
        f'<text x="{(left + right) / 2:.1f}" y="{height - 4}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    for s in series:
        spots = [at(*p) for p in s.points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in spots)
        if s.fill and spots:
            closed = f"{spots[0][0]:.1f},{bottom} {path} {spots[-1][0]:.1f},{bottom}"
            drawn.append(
                f'<polygon points="{closed}" fill="var(--s{s.style % COLOURS})" opacity=".22"/>'
            )
        faint = ' opacity=".55"' if s.faint else ""
        drawn.append(f'<polyline class="line" points="{path}" {_choose_stroke(s.style)}{faint}/>')
        if len(spots) == 1:
            px, py = spots[0]
            drawn.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="var(--s{s.style % COLOURS})"/>'
            )
    return _wrap_svg(size, label, drawn)


def outline_steps(values: Sequence[float]) -> list[tuple[float, float]]:
    """Find the outline of a histogram whose bars stand at 0, 1, 2, ...

    >>> outline_steps([0.25, 0.75])
    [(-0.5, 0.25), (0.5, 0.25), (0.5, 0.75), (1.5, 0.75)]
    """
    return [(i + edge, float(v)) for i, v in enumerate(values) for edge in (-0.5, 0.5)]


def draw_shares(values: Sequence[float], *, label: str, size: tuple[int, int] = (300, 84)) -> str:
    """Draw a bar from one half to each share, on an axis from 0 to 1."""
    width, height = size
    left, top, bottom = 30, 6, height - 6
    middle, room = (top + bottom) / 2, bottom - top
    gap = (width - left) / max(1, len(values))
    drawn = []
    for t, text in ((0.0, "0"), (0.5, "0.5"), (1.0, "1")):
        py = bottom - t * room
        drawn.append(
            f'<line class="{"axis" if t == 0.5 else "grid"}" x1="{left}" x2="{width}" '
            f'y1="{py:.1f}" y2="{py:.1f}"/>'
            f'<text x="{left - 6}" y="{py + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for i, value in enumerate(values):
        end = bottom - float(value) * room
        drawn.append(
            f'<rect x="{left + i * gap + gap * 0.1:.2f}" width="{gap * 0.8:.2f}" '
            f'y="{min(end, middle):.2f}" height="{max(abs(end - middle), 0.8):.2f}" '
            'fill="var(--s0)"/>'
        )
    return _wrap_svg(size, label, drawn)


def draw_key(style: int) -> str:
    """Draw a sample of a line, for a legend."""
    return (
        '<svg class="key" viewBox="0 0 26 10" aria-hidden="true">'
        f'<line class="line" x1="1" x2="25" y1="5" y2="5" {_choose_stroke(style)}/></svg>'
    )


def _mark_ticks(low: float, high: float) -> list[tuple[float, str]]:
    values = choose_ticks(low, high)
    return list(zip(values, spell_ticks(values), strict=True))


def _wrap_svg(size: tuple[int, int], label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
