"""Whether the rows confirm H2Q's claims about rotations."""

from __future__ import annotations

from collections.abc import Sequence

from generated.claims import NO, NONE, OPEN, SEEDS, YES, Finding, Part, compare, conclude
from generated.evidence import Evidence, Gap, counted, grid, short, signed
from generated.h2q_lines import (
    AUTHORS,
    AWARE,
    BROKEN,
    LOSSES,
    MORE,
    NETWORKS,
    OWN,
    SOLVERS,
    T1,
    gains,
    join,
    mean_of,
    table1,
)


def improves(evidence: Evidence) -> Finding:
    """H2Q against no rotation: the paper's losses and counting, by each solver that has rows."""
    own: list[Part] = []
    beyond: list[Part] = []
    lines = []
    for under, how in NETWORKS.items():
        bits = evidence.bits(under)
        for solver, said in SOLVERS.items():
            at = [b for b in bits if any(evidence.at(p.at(b)) for _, p in table1(solver, under))]
            if not at:
                continue
            for names, figure, parts, what in (
                (tuple(OWN), BROKEN, own, f"{how}, {said}"),
                (MORE, BROKEN, beyond, f"{how}, {said}, {' and '.join(MORE)}"),
                (tuple(LOSSES), AWARE, beyond, f"{how}, {said}, ties averaged"),
            ):
                pairs = zip(table1(solver, under, names), table1("none", under, names), strict=True)
                parts.append(compare(evidence, what, pairs, at, figure))
            lines += [(f"{n}, {how}", place) for n, place in table1(solver, under)]
        lines += [(f"{n}, {how}", place) for n, place in table1("none", under)]
    judged = conclude(own)
    averaged = next(
        (p for p in beyond if p.said == "fine-tuned, the fast solver, ties averaged"), None
    )
    instead = ""
    if averaged is not None and averaged.gaps:
        up = sum(g.mean > 0 for g in averaged.gaps)
        instead = (
            f"Fine-tuned, H2Q improves {up} of {len(averaged.gaps)} cases if ties are averaged and "
            "not broken by the floats."
        )
    shown = grid(evidence, lines, evidence.bits("h2q"), BROKEN) if lines else ""
    return Finding(judged.verdict, judged.sentence, shown, conclude(beyond), instead)


def frequently_lower(gaps: Sequence[Gap]) -> bool:
    return sum(g.mean < 0 for g in gaps) >= len(gaps) / 4


def itq(evidence: Evidence) -> Finding:
    """ITQ as the paper's authors ran it, and, apart, as its own paper defines it."""
    plain, names = table1("none", AUTHORS, tuple(OWN)), {"itq-port": "ITQ as the authors ran it"}
    names |= {"itq-raw": "the same with the correct factor", "random": "a random rotation"}
    every = {q: gains(evidence, table1(q, AUTHORS, tuple(OWN)), plain) for q in names}
    told = [
        f"{names[q]} lowers {sum(g.mean < 0 for g in gaps)} of {len(gaps)}, on average "
        f"{signed(mean_of(gaps))}"
        for q, gaps in every.items() if gaps
    ]  # fmt: skip
    errors = {
        q: [r["error"] for r in evidence.named(AUTHORS) if r["quantizer"] == q and "error" in r]
        for q in ("none", *names, "itq", "h2q", "h2q-sgd", "h2q-adam")
    }
    means = ", ".join(f"{q} {short(sum(e) / len(e))}" for q, e in errors.items() if e)
    right, fast, parts = [], [], []
    for under, how in NETWORKS.items():
        gaps = gains(evidence, table1("itq", under), table1("none", under))
        h2q = gains(evidence, table1("h2q", under), table1("none", under))
        right += gaps
        fast += h2q
        if gaps:
            parts.append(
                f"{how}, ITQ as defined lowers {sum(g.mean < 0 for g in gaps)} of {len(gaps)} and "
                f"changes the figure by {signed(mean_of(gaps))} on average, H2Q by "
                f"{signed(mean_of(h2q))}"
            )
    beyond = (
        Finding(YES if frequently_lower(right) else NO, join(parts)) if right else Finding(NONE)
    )
    ported = every["itq-port"]
    verdict = OPEN if right else NONE
    if ported and all(gap.seeds >= SEEDS for gap in ported):
        verdict = YES if frequently_lower(ported) else NO
    sentence = join(told) + (
        f" Mean quantization error of training rows: {means}." if means else ""
    )
    bits = evidence.bits(AUTHORS)
    quantizers = ("none", "random", "itq-port", "itq-raw", "itq")
    lines = [line for q in quantizers for line in table1(q, AUTHORS, tuple(OWN))]
    shown = grid(evidence, lines, bits, BROKEN) if right or ported else ""
    instead = ""
    if ported and right:
        instead = (
            "ITQ as the authors ran it confuses a matrix with its transpose and ends in a random "
            f"rotation ({signed(mean_of(ported))} on average); ITQ as defined changes figures by "
            f"{signed(mean_of(right))}, H2Q by {signed(mean_of(fast))}."
        )
    return Finding(verdict, sentence.strip(), shown, beyond, instead)


def four_losses(evidence: Evidence) -> Finding:
    names = ("h2q", "h2q-l1", "h2q-min", "h2q-variance")
    every = {n: gains(evidence, table1(n), table1("none")) for n in names}
    if not all(every.values()):
        return Finding(NONE)
    means = {n: mean_of(gaps) for n, gaps in every.items()}
    said = ", ".join(f"{n} {signed(m)}" for n, m in means.items())
    alike = max(means.values()) - min(means.values()) <= 0.01
    lines = [line for n in names for line in table1(n)]
    return Finding(
        YES if alike and min(means.values()) > 0 else NO,
        f"Mean gain over no rotation: {said}.",
        grid(evidence, lines, evidence.bits(T1), BROKEN),
    )


def supervised(evidence: Evidence) -> Finding:
    """Compare the rotation trained on AP_T with H2Q's and with none; no paper claims this."""
    told, lines, instead = [], [], ""
    for under, how in NETWORKS.items():
        ours, h2q, plain = (table1(q, under) for q in ("supervised", "h2q", "none"))
        against = gains(evidence, ours, h2q, "mAP")
        if not against:
            continue
        alone = mean_of(gains(evidence, ours, plain, "mAP"))
        gain = (
            f"tie-aware mAP {signed(mean_of(against))} against H2Q and {signed(alone)} against no "
            "rotation, on average"
        )
        instead = instead or f"A rotation trained on the metric, {how}: {gain}."
        told.append(f"{how}: {gain}. Against H2Q: {counted(against).rstrip('.')}")
        lines += [(f"{said}, {how}", place) for said, place in [*plain, *h2q, *ours]]
    if not told:
        return Finding(NONE)
    shown = grid(evidence, lines, evidence.bits("h2q"), "mAP", paper=False)
    return Finding("", join(told), shown, instead=instead)
