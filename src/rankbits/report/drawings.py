"""Draw the sections of a page: curves, distances, bits and learning. A section without data is
left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rankbits.report.groups import Group
from rankbits.report.png import colour_correlations, make_uri
from rankbits.report.statistics import Statistics
from rankbits.report.svg import Series, draw_key, draw_shares, outline_steps, plot

if TYPE_CHECKING:
    from rankbits.report.comparison import Comparison

SMALL = (320, 200)


def draw_curves(comparison: Comparison) -> list[str]:
    """Draw precision by recall, and precision by the number of items looked at."""
    measured = _list_measured(comparison)
    if not measured:
        return []
    by_recall, by_items = [], []
    for i, group, s in measured:
        pairs = zip(s.recall.tolist(), s.precision.tolist(), strict=True)
        by_recall.append(Series(group.name, list(pairs), i))
        pairs = zip(np.log10(s.cutoffs).tolist(), s.precision.tolist(), strict=True)
        by_items.append(Series(group.name, list(pairs), i))
    decades = range(len(str(max(s.cutoffs[-1] for _, _, s in measured))))
    recall = plot(
        by_recall, x_label="recall", y_label="precision",
        label="precision by recall of each method", x=(0, 1), y=(0, 1),
    )  # fmt: skip
    nearest = plot(
        by_items, x_label="items looked at", y_label="precision", y=(0, 1),
        label="precision of the nearest items", marks=[(n, f"{10**n:,}") for n in decades],
    )  # fmt: skip
    return _make_section(
        "Precision and recall",
        "Means over queries at cutoffs from 1 to the whole database; ties averaged.",
        [_make_chart("Precision by recall", recall), _make_chart("By items looked at", nearest)],
        legend=[(i, group.name) for i, group, _ in measured],
        size="charts large",
    )


def draw_distances(comparison: Comparison) -> list[str]:
    """Draw the Hamming distances of neighbours and of others, for each method."""
    charts = []
    for _, group, s in _list_measured(comparison):
        bits, top = len(s.neighbours) - 1, float(max(s.neighbours.max(), s.others.max()))
        lines = [
            Series("neighbours", outline_steps(s.neighbours.tolist()), 0, fill=True),
            Series("others", outline_steps(s.others.tolist()), 1, fill=True),
        ]
        drawn = plot(
            lines, x_label="Hamming distance", y_label="share of pairs", x=(-0.5, bits + 0.5),
            y=(0, top * 1.05), size=SMALL,
            label=f"{group.name}: distances of neighbours and of others",
        )  # fmt: skip
        charts.append(_make_chart(group.name, drawn))
    return _make_section(
        "How far neighbours and others lie",
        "The less the two overlap, the better the ranking; each adds up to 1.",
        charts,
        legend=[(0, "neighbours"), (1, "others")],
    )


def draw_bits(comparison: Comparison) -> list[str]:
    """Draw the share of ones of each bit and the correlations of the bits, for each method."""
    charts = []
    for _, group, s in _list_measured(comparison):
        off = np.abs(s.correlation - np.diag(np.diag(s.correlation)))
        pairs = max(1, off.size - len(off))
        note = (
            f"means: {np.abs(s.ones - 0.5).mean():.3f} off balance, "
            f"|correlation| {off.sum() / pairs:.3f}"
        )
        alt = escape(f"{group.name}: correlation of each bit with each")
        source = make_uri(colour_correlations(s.correlation))
        drawn = draw_shares(s.ones.tolist(), label=f"{group.name}: share of ones of each bit")
        drawn += f'<img class="heat" alt="{alt}" src="{source}">'
        charts.append(_make_chart(group.name, drawn, note))
    return _make_section(
        "What the bits carry",
        "Above, the share of ones of each bit; one half is best. Below, the correlation of each "
        "bit with each: blue is the same, orange the opposite, blank none. A bit that never "
        "changes, or that repeats another, is wasted.",
        charts,
    )


def draw_learning(comparison: Comparison) -> list[str]:
    """Draw the loss by step of each run with a log, and the validation mAP of all of them."""
    charts, legend = [], []
    validations: list[Series] = []
    for i, group in enumerate(comparison.groups):
        losses = _read_series(group, i, "loss")
        if losses:
            kind = (group.first.settings or {}).get("loss", "of training")
            drawn = plot(
                losses, x_label="step", y_label=f"loss ({kind})", size=SMALL,
                label=f"{group.name}: loss by step",
                x=_find_span(losses, 0), y=_find_span(losses, 1),
            )  # fmt: skip
            charts.append(_make_chart(group.name, drawn))
        judged = _read_series(group, i, "validation_mAP")
        validations += judged
        legend += [(i, group.name)] if judged else []
    if validations:
        drawn = plot(
            validations, x_label="step", y_label="mAP of validation rows", size=SMALL,
            label="validation mAP by step", x=_find_span(validations, 0), y=(0, 1),
        )  # fmt: skip
        charts.append(_make_chart("Validation", drawn))
    words = "Losses of different kinds cannot be compared; validation can."
    return _make_section("How they learned", words, charts, legend)


def _find_span(series: Iterable[Series], axis: int) -> tuple[float, float]:
    """Find the ends of an axis: from 0, or the least value below it, to the greatest."""
    values = [p[axis] for s in series for p in s.points]
    return min(0.0, *values), max(values)


def _read_series(group: Group, style: int, name: str) -> list[Series]:
    """Read a line from each log of a group: (step, value) of the rows that have both."""
    series = []
    for entry in group.entries:
        pairs = [(row["step"], row[name]) for row in entry.log if {"step", name} <= set(row)]
        points = sorted(
            (float(step), float(value))
            for step, value in pairs
            if all(isinstance(v, (int, float)) and np.isfinite(v) for v in (step, value))
        )
        if points:
            series.append(Series(group.name, points, style, faint=len(group.entries) > 1))
    return series


def _list_measured(comparison: Comparison) -> list[tuple[int, Group, Statistics]]:
    """List the number, the group and the statistics of each group whose codes are known."""
    pairs = enumerate(zip(comparison.groups, comparison.statistics, strict=True))
    return [(i, group, s) for i, (group, s) in pairs if s is not None]


def _make_section(
    title: str,
    words: str,
    charts: Sequence[str],
    legend: Iterable[tuple[int, str]] = (),
    size: str = "charts",
) -> list[str]:
    if not charts:
        return []
    items = "".join(f"<span>{draw_key(i)}{escape(name)}</span>" for i, name in legend)
    key = f'<div class="legend">{items}</div>' if items else ""
    return [
        f"<section><h2>{title}</h2><p>{words}</p>{key}",
        f'<div class="{size}">{"".join(charts)}</div></section>',
    ]


def _make_chart(caption: str, drawn: str, note: str = "") -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(caption)}{small}</figcaption>{drawn}</figure>"
