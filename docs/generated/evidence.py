"""Find rows of ``reproduce/results``, gaps between them, and tables of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated.rows import read, table

RESULTS = Path(__file__).parents[2] / "reproduce" / "results"
CLEAR = 2.0  # deviations of the paired gap past which a gap is called clear
Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A cell of a table: a recipe, its quantizer (None: its only one), bits and what varies."""

    name: str
    quantizer: str | None = None
    bits: int | None = None
    vary: str = "{}"

    def at(self, bits: int | None) -> Place:
        return Place(self.name, self.quantizer, bits, self.vary)


@dataclass(frozen=True)
class Gap:
    """How far one place is ahead of another, seed by seed: mean and deviation of the gaps, and the
    least of them."""

    ours: Place
    theirs: Place
    mean: float
    deviation: float | None
    seeds: int
    least: float

    @property
    def deviations(self) -> float | None:
        if self.deviation is None:
            return None
        return self.mean / self.deviation if self.deviation else math.copysign(math.inf, self.mean)

    @property
    def clear(self) -> bool:
        return self.deviations is not None and abs(self.deviations) > CLEAR


class Evidence:
    """All rows, found by place."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if not row.get("shortened")]
        self.found: dict[Place, dict[int, Row]] = {}
        for row in self.rows:
            spelled = json.dumps(row["vary"], sort_keys=True)
            for quantizer in (row["quantizer"], None):
                place = Place(row["name"], quantizer, row["bits"], spelled)
                kept = self.found.setdefault(place, {})
                if quantizer is None and row["quantizer"] not in ("none",) and row["seed"] in kept:
                    continue  # of several quantizers, "none" stands for the recipe
                kept[row["seed"]] = row

    def at(self, place: Place) -> dict[int, Row]:
        return self.found.get(place, {})

    def named(self, prefix: str) -> list[Row]:
        return [row for row in self.rows if f"{row['name']}/".startswith(f"{prefix}/")]

    def bits(self, prefix: str) -> list[int]:
        return sorted({row["bits"] for row in self.named(prefix) if row["bits"]})

    def varied(self, name: str) -> list[tuple[dict[str, Any], str]]:
        """What a recipe varies, in the order of its values, with the spelling of places."""
        seen = {json.dumps(r["vary"], sort_keys=True): r["vary"] for r in self.named(name)}
        return sorted(((v, k) for k, v in seen.items()), key=lambda pair: list(pair[0].values()))

    def values(self, place: Place, figure: str = "value") -> dict[int, float]:
        rows = self.at(place).items()
        picked = {s: r[figure] if figure in r else r["figures"].get(figure) for s, r in rows}
        return {seed: value for seed, value in picked.items() if value is not None}

    def gap(self, ours: Place, theirs: Place, figure: str = "value") -> Gap | None:
        """The gap over the seeds that both have; None where they share none."""
        a, b = self.values(ours, figure), self.values(theirs, figure)
        gaps = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
        if not gaps:
            return None
        spread = statistics.stdev(gaps) if len(gaps) > 1 else None
        return Gap(ours, theirs, statistics.fmean(gaps), spread, len(gaps), min(gaps))

    def mean(self, place: Place, figure: str = "value") -> float | None:
        values = list(self.values(place, figure).values())
        return statistics.fmean(values) if values else None

    def cell(self, place: Place, figure: str = "value", paper: bool = True) -> str:
        """``.812 ± .004 (.789)``: mean, deviation over seeds, and the paper's own figure."""
        values = list(self.values(place, figure).values())
        if not values:
            return ""
        text = short(statistics.fmean(values))
        text += f" ± {short(statistics.stdev(values))}" if len(values) > 1 else ""
        theirs = next(iter(self.at(place).values()))["paper_value"] if paper else None
        return text + (f" ({short(theirs)})" if theirs is not None else "")


def load(folder: Path = RESULTS) -> Evidence:
    return Evidence(row for path in sorted(folder.glob("*.jsonl")) for row in read(path))


def short(value: float) -> str:
    """Three digits, as the papers write them.

    >>> short(0.8125), short(-0.0004), short(1.0)
    ('.812', '-.000', '1.000')
    """
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def signed(value: float) -> str:
    return ("+" if value >= 0 else "") + short(value)


def describe(place: Place) -> str:
    """``tuned/dtsh and h2q at 32 bits``: a recipe of a paper, its quantizer if any, its bits."""
    said = place.name.partition("/")[2]
    said += f" and {place.quantizer}" if place.quantizer not in (None, "none") else ""
    return said + (f" at {place.bits} bits" if place.bits else "")


def counted(gaps: Sequence[Gap]) -> str:
    """How many gaps are ahead, how many clearly, and the worst of them, in words."""
    ahead = [g for g in gaps if g.mean > 0]
    clear = sum(g.clear for g in ahead)
    behind = sum(g.clear for g in gaps if g.mean <= 0)
    worst = min(gaps, key=lambda g: g.mean)
    where = describe(worst.theirs)
    far = worst.deviations
    size = f", {abs(far):.1f} deviations" if far is not None and math.isfinite(far) else ""
    text = f"Ahead in {len(ahead)} of {len(gaps)} comparisons, clearly in {clear}"
    text += f"; clearly behind in {behind}" if behind else ""
    return f"{text}. The lowest gap is {signed(worst.mean)}{size}, to {where}."


def grid(
    evidence: Evidence,
    lines: Sequence[tuple[str, Place]],
    bits: Sequence[int],
    figure: str = "value",
    paper: bool = True,
) -> str:
    """A table of methods by code lengths; methods and lengths without rows are left out."""
    names = [said for said, _ in lines]
    columns = {b: [evidence.cell(p.at(b), figure, paper) for _, p in lines] for b in bits}
    columns = {b: cells for b, cells in columns.items() if any(cells)}
    rows = (list(row) for row in zip(names, *columns.values(), strict=True))
    return table(["", *(f"{b} bits" for b in columns)], (row for row in rows if any(row[1:])))


def origins(rows: Sequence[Row]) -> str:
    """The machines, commits and days of rows, in a line."""
    machines: dict[str, set[str]] = {}
    for row in rows:
        machine = row["machine"]
        what = machine.get("gpu") or machine["cpu"]
        said = f"{what}, {machine['cores']} cores, Python {machine['python']}, "
        said += f"torch {machine['torch']}"
        commit, dash, dirty = row["commit"].partition("-")
        machines.setdefault(said, set()).add(f"`{commit[:12]}{dash}{dirty}`")
    days = sorted({row["date"][:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    seeds = len({row["seed"] for row in rows})
    listed = "; ".join(f"{m} (commit {', '.join(sorted(c))})" for m, c in sorted(machines.items()))
    return f"{seeds} seed{'s' if seeds > 1 else ''}, {span}: {listed}."
