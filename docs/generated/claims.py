"""Claims and findings, and the rules that claims of several papers share.

A claim is judged on the paper's own set (its rivals, its code lengths, its way of counting), and
again on an extended set (more rivals, more lengths, ties averaged).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from generated.evidence import Evidence, Gap, Place, grid, short, signed

REACHED, MISSED = "reached", "not reached"  # goals of our own
YES, NO, OPEN = "reproduced", "not reproduced", "unfinished"
CANNOT, NONE = "not testable here", "no rows yet"
SEEDS = 2  # with fewer, a comparison counts neither for a claim nor against it

Line = tuple[str, Place]
Pair = tuple[Line, Line]


@dataclass(frozen=True)
class Finding:
    """A verdict ("": a measurement without a claim), a sentence of figures, a table. ``beyond``:
    the same on the extended set. ``instead``: a sentence on what was found and not claimed."""

    verdict: str
    sentence: str = ""
    table: str = ""
    beyond: Finding | None = None
    instead: str = ""


@dataclass(frozen=True)
class Claim:
    """``says``: the claim; ``rule``: when it counts as reproduced; ``of``: recipes it rests on."""

    paper: str
    title: str
    says: str
    rule: str
    of: tuple[str, ...]
    find: Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Part:
    """Comparisons of one kind: their name, their gaps, and how many have too few rows."""

    said: str
    gaps: list[Gap] = field(default_factory=list)
    missing: int = 0

    def __str__(self) -> str:
        above = [gap for gap in self.gaps if gap.mean > 0]
        text = f"{self.said}: ahead in {len(above)} of {len(self.gaps)}"
        clear = sum(g.clear for g in above)
        behind = sum(g.clear for g in self.gaps if g.mean <= 0)
        told = [f"clearly in {clear}"] if clear else []
        told += [f"clearly behind in {behind}"] if behind else []
        told += [f"{self.missing} with fewer than two seeds"] if self.missing else []
        if self.gaps:
            worst = min(self.gaps, key=lambda gap: gap.mean)
            told.append(f"lowest gap {signed(worst.mean)}, to {name_place(worst.theirs)}")
        return text + (f" ({'; '.join(told)})" if told else "")


def name_place(place: Place) -> str:
    """A place in the words of its recipe: ``dpsh, 12 bits``."""
    words = [place.name.split("/")[-1]]
    words += [place.quantizer] if place.quantizer not in (None, "none") else []
    words += [f"{place.bits} bits"] if place.bits else []
    return ", ".join(words)


def compare(
    evidence: Evidence,
    said: str,
    pairs: Iterable[Pair],
    bits: Sequence[int | None],
    figure: str = "value",
) -> Part:
    """The first of each pair against the second, at each code length."""
    found = [
        evidence.gap(ours.at(b), theirs.at(b), figure)
        for (_, ours), (_, theirs) in pairs
        for b in bits
    ]
    gaps = [gap for gap in found if gap is not None]
    few = sum(gap.seeds < SEEDS for gap in gaps)
    return Part(said, gaps, len(found) - len(gaps) + few)


def cross(ours: Sequence[Line], theirs: Sequence[Line]) -> list[Pair]:
    return [(a, b) for a in ours for b in theirs]


def ahead_everywhere(gaps: Sequence[Gap]) -> bool:
    return all(gap.mean > 0 for gap in gaps)


def ahead_in_most(gaps: Sequence[Gap]) -> bool:
    return sum(gap.mean > 0 for gap in gaps) > len(gaps) / 2


def conclude(
    parts: Sequence[Part], rule: Callable[[Sequence[Gap]], bool] = ahead_everywhere
) -> Finding:
    """The verdict on parts. One part that breaks the rule, over two seeds or more, decides against
    the claim; a part that lacks rows keeps it unfinished."""
    known = [part for part in parts if part.gaps]
    if not known:
        return Finding(NONE)
    text = "; ".join(map(str, known)) + "."
    verdict = OPEN if any(part.missing for part in parts) else YES
    settled = [[gap for gap in part.gaps if gap.seeds >= SEEDS] for part in known]
    if not all(rule(gaps) for gaps in settled if gaps):
        verdict = NO
    return Finding(verdict, text[0].upper() + text[1:])


def ahead(
    ours: Sequence[Line],
    theirs: Sequence[Line],
    under: str,
    figure: str = "value",
    beside: Sequence[Line] = (),
) -> Callable[[Evidence], Finding]:
    """Judge whether each of ours is ahead of each of theirs at every code length of ``under``.
    ``beside``: lines of the table that the claim is not about."""

    def find(evidence: Evidence) -> Finding:
        bits = evidence.bits(under)
        judged = conclude([compare(evidence, "its rivals", cross(ours, theirs), bits, figure)])
        lines = list(dict.fromkeys([*ours, *theirs, *beside]))
        shown = grid(evidence, lines, bits, figure, paper=figure == "value")
        return Finding(judged.verdict, judged.sentence, shown if judged.sentence else "")

    return find


def reached(under: str, least: int, goal: float) -> Callable[[Evidence], Finding]:
    """Judge whether one method below a folder reaches a goal at every length from ``least`` bits.
    It must be one method: the best one of each length would be chosen by the figures to judge."""

    def find(evidence: Evidence) -> Finding:
        keys = dict.fromkeys(
            (r["name"], r["quantizer"], r["method"]) for r in evidence.named(under)
        )
        asked = [b for b in evidence.bits(under) if b >= least]
        means = {k: [evidence.mean(Place(k[0], k[1], b)) for b in asked] for k in keys}
        whole = {k: v for k, v in means.items() if v and None not in v}
        if not whole:
            return Finding(NONE if not keys or not asked else MISSED)
        best = max(whole, key=lambda k: min(m for m in whole[k] if m is not None))
        figures = [m for m in whole[best] if m is not None]
        seeds = min(len(evidence.at(Place(best[0], best[1], b))) for b in asked)
        said = f"{best[2]}, {best[1]}: {', '.join(map(short, figures))} at "
        said += f"{', '.join(map(str, asked))} bits, {seeds} seed{'s' if seeds > 1 else ''}."
        lines = [(f"{m}, {q}", Place(n, q)) for n, q, m in keys]
        verdict = REACHED if min(figures) >= goal else MISSED
        return Finding(verdict, said, grid(evidence, lines, evidence.bits(under)))

    return find


def unavailable(why: str) -> Callable[[Evidence], Finding]:
    return lambda evidence: Finding(CANNOT, why)
