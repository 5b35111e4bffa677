"""The drawings of a page: curves, distances, bits and learning, each a section or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rankbits.report.groups import Group
from rankbits.report.png import heat, uri
from rankbits.report.seen import Seen
from rankbits.report.svg import Series, key, plot, shares, steps

if TYPE_CHECKING:
    from rankbits.report.comparison import Comparison


def curves(found: Comparison) -> list[str]:
    known = _shown(found)
    if not known:
        return []
    both = [
        Series(g.name, list(zip(s.recall.tolist(), s.precision.tolist(), strict=True)), i)
        for i, g, s in known
    ]
    decades = [10**n for n in range(len(str(max(s.cutoffs[-1] for _, _, s in known))))]
    near = [
        Series(
            g.name, list(zip(np.log10(s.cutoffs).tolist(), s.precision.tolist(), strict=True)), i
        )
        for i, g, s in known
    ]
    drawn = plot(
        both, x_label="recall", y_label="precision", label="precision by recall of each method",
        x=(0, 1), y=(0, 1),
    )  # fmt: skip
    nearest = plot(
        near, x_label="items looked at", y_label="precision", y=(0, 1),
        label="precision of the nearest items",
        marks=[(float(np.log10(n)), f"{n:,}") for n in decades],
    )  # fmt: skip
    return [
        "<section><h2>Precision and recall</h2>",
        "<p>Means over queries at cutoffs from 1 to the whole database; ties averaged.</p>",
        _legend((i, g.name) for i, g, _ in known), '<div class="charts large">',
        _chart("Precision by recall", drawn), _chart("Precision of the nearest", nearest),
        "</div></section>",
    ]  # fmt: skip


def distances(found: Comparison) -> list[str]:
    known = _shown(found)
    if not known:
        return []
    charts = []
    for _, group, s in known:
        bits, top = len(s.neighbours) - 1, float(max(s.neighbours.max(), s.others.max()))
        lines = [
            Series("neighbours", steps(s.neighbours.tolist()), 0, fill=True),
            Series("others", steps(s.others.tolist()), 1, fill=True),
        ]
        drawn = plot(
            lines, x_label="Hamming distance", y_label="share of pairs", x=(-0.5, bits + 0.5),
            y=(0, top * 1.05), size=(320, 200),
            label=f"{group.name}: distances of neighbours and of others",
        )  # fmt: skip
        charts.append(_chart(group.name, drawn))
    return [
        "<section><h2>How far neighbours and others lie</h2>",
        "<p>The less the two overlap, the better the ranking; each adds up to 1.</p>",
        _legend([(0, "neighbours"), (1, "others")]),
        f'<div class="charts">{"".join(charts)}</div></section>',
    ]


def bits(found: Comparison) -> list[str]:
    known = _shown(found)
    if not known:
        return []
    charts = []
    for _, group, s in known:
        off = np.abs(s.correlation - np.diag(np.diag(s.correlation)))
        pairs = max(1, off.size - len(off))
        note = (
            f"means: {np.abs(s.ones - 0.5).mean():.3f} off balance, "
            f"|correlation| {off.sum() / pairs:.3f}"
        )
        alt = escape(f"{group.name}: correlation of each bit with each")
        image = f'<img class="heat" alt="{alt}" src="{uri(heat(s.correlation))}">'
        drawn = shares(s.ones.tolist(), label=f"{group.name}: share of ones of each bit")
        charts.append(_chart(group.name, drawn + image, note))
    return [
        "<section><h2>What the bits carry</h2>",
        "<p>Above, the share of ones of each bit: a half says most. Below, the correlation of each "
        "bit with each: blue the same, orange the opposite, blank none. A bit that is always the "
        "same, or that repeats another, is a bit wasted.</p>",
        f'<div class="charts">{"".join(charts)}</div></section>',
    ]


def learning(found: Comparison) -> list[str]:
    charts, names = [], []
    held: list[Series] = []
    for i, group in enumerate(found.groups):
        many = len(group.entries) > 1
        loss = [
            Series(group.name, points, i, faint=many)
            for e in group.entries
            if (points := _points(e.log, "loss"))
        ]
        if loss:
            settings = group.first.settings or {}
            drawn = plot(
                loss, x_label="step", y_label=f"loss ({settings.get('loss', 'of training')})",
                size=(320, 200), label=f"{group.name}: loss by step",
                x=_span(loss, 0), y=_span(loss, 1),
            )  # fmt: skip
            charts.append(_chart(group.name, drawn))
        judged = [
            Series(group.name, points, i, faint=many)
            for e in group.entries
            if (points := _points(e.log, "validation_mAP"))
        ]
        held += judged
        if judged:
            names.append((i, group.name))
    if not charts and not held:
        return []
    parts = ["<section><h2>How they learned</h2>"]
    if held:
        drawn = plot(
            held, x_label="step", y_label="mAP of rows held out", size=(320, 200),
            label="validation mAP by step", x=_span(held, 0), y=(0, 1),
        )  # fmt: skip
        charts.append(_chart("Validation", drawn))
        parts.append(_legend(names))
    parts.append("<p>Losses of different kinds do not compare; validation does.</p>")
    return [*parts, f'<div class="charts">{"".join(charts)}</div></section>']


def _span(series: Iterable[Series], axis: int) -> tuple[float, float]:
    """From 0, or below, to the most."""
    values = [p[axis] for s in series for p in s.points]
    return min(0.0, *values), max(values)


def _points(log: Iterable[object], name: str) -> list[tuple[float, float]]:
    """(step, value) of the rows of a log that have both as finite numbers."""
    found = []
    for row in log:
        pair = (row.get("step"), row.get(name)) if isinstance(row, dict) else (None, None)
        if all(isinstance(v, (int, float)) and np.isfinite(v) for v in pair):
            found.append((float(pair[0]), float(pair[1])))  # type: ignore[arg-type]
    return sorted(found)


def _shown(found: Comparison) -> list[tuple[int, Group, Seen]]:
    """Number, group and what is seen of those whose codes are known."""
    pairs = enumerate(zip(found.groups, found.seen, strict=True))
    return [(i, g, s) for i, (g, s) in pairs if s is not None]


def _legend(pairs: Iterable[tuple[int, str]]) -> str:
    items = "".join(f"<span>{key(i)}{escape(name)}</span>" for i, name in pairs)
    return f'<div class="legend">{items}</div>'


def _chart(caption: str, drawn: str, note: str = "") -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(caption)}{small}</figcaption>{drawn}</figure>"
