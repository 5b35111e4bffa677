"""A claim and what became of it; the rules that claims of several papers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from generated.evidence import Evidence, Place, counted, grid, short

REACHED, MISSED = "reached", "not reached"  # goals of our own
YES, NO, CANNOT, NONE = "reproduced", "not reproduced", "not testable here", "no rows yet"


@dataclass(frozen=True)
class Finding:
    """A verdict ("": a measurement nobody claimed), a sentence of figures, a table."""

    verdict: str
    sentence: str = ""
    table: str = ""


@dataclass(frozen=True)
class Claim:
    """``says``: the claim; ``rule``: when it counts as reproduced; ``of``: recipes it rests on."""

    paper: str
    title: str
    says: str
    rule: str
    of: tuple[str, ...]
    find: Callable[[Evidence], Finding]


def ahead(
    ours: Sequence[tuple[str, Place]],
    theirs: Sequence[tuple[str, Place]],
    under: str,
    figure: str = "value",
    paired: bool = False,
    beside: Sequence[tuple[str, Place]] = (),
) -> Callable[[Evidence], Finding]:
    """Ours ahead of theirs at every code length of ``under``: each of each, or one of one.
    ``beside``: lines of the table that the claim is not about."""

    def find(evidence: Evidence) -> Finding:
        bits = evidence.bits(under)
        pairs = list(zip(ours, theirs, strict=True)) if paired else [
            (a, b) for a in ours for b in theirs
        ]  # fmt: skip
        found = [evidence.gap(a.at(n), b.at(n), figure) for (_, a), (_, b) in pairs for n in bits]
        gaps = [gap for gap in found if gap is not None]
        lines = list(dict.fromkeys([*ours, *theirs, *beside]))
        shown = grid(evidence, lines, bits, figure, paper=figure == "value")
        if not gaps:
            return Finding(NONE)
        missing = len(found) - len(gaps)
        said = counted(gaps) + (f" {missing} comparisons have no rows yet." if missing else "")
        return Finding(YES if all(g.mean > 0 for g in gaps) else NO, said, shown)

    return find


def reached(under: str, least: int, goal: float) -> Callable[[Evidence], Finding]:
    """Whether one method below a folder reaches a goal at every length from ``least`` bits up: the
    best of several at each length would be picked by the figures it is to be judged by."""

    def find(evidence: Evidence) -> Finding:
        keys = dict.fromkeys(
            (r["name"], r["quantizer"], r["method"]) for r in evidence.named(under)
        )
        if not keys:
            return Finding(NONE)
        bits = evidence.bits(under)
        tops = {}
        for b in bits:
            means = {k: evidence.mean(Place(k[0], k[1], b)) for k in keys}
            known = {k: m for k, m in means.items() if m is not None}
            tops[b] = max(known.items(), key=lambda pair: pair[1])
        lines = [(f"{m}, {q}", Place(n, q)) for n, q, m in keys]
        said = "; ".join(f"{b} bits: {short(m)} ({k[2]}, {k[1]})" for b, (k, m) in tops.items())
        asked = [b for b in bits if b >= least]
        found = {k: [evidence.mean(Place(k[0], k[1], b)) for b in asked] for k in keys}
        whole = {k: [m for m in means if m is not None] for k, means in found.items()}
        whole = {k: means for k, means in whole.items() if means and len(means) == len(asked)}
        verdict, most = NONE if not asked else MISSED, ""
        if whole:
            best = max(whole, key=lambda k: min(whole[k]))
            verdict = REACHED if min(whole[best]) >= goal else MISSED
            figures = ", ".join(map(short, whole[best]))
            most = f"{best[2]}, {best[1]}: {figures} at {', '.join(map(str, asked))} bits. "
        said = f"{most}Best by code length: {said}."
        return Finding(verdict, said, grid(evidence, lines, bits))

    return find


def unavailable(why: str) -> Callable[[Evidence], Finding]:
    return lambda evidence: Finding(CANNOT, why)
