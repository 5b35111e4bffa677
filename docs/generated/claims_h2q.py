"""What H2Q claims, and whether the rows bear it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from generated.claims import NO, NONE, YES, Claim, Finding, ahead, unavailable
from generated.evidence import Evidence, Gap, Place, counted, grid, signed
from generated.rows import read, seconds, table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "results"
LOSSES = {
    "CEL": "cel", "DCH": "dch", "DHN": "dhn", "DPSH": "dpsh", "WGLHH": "wglhh", "HyP2": "hyp2",
    "HashNet": "hashnet", "ADSH": "adsh",
}  # fmt: skip
BROKEN, AWARE = "mAP@5000 broken", "mAP@5000 retrieved"
T1, T2, TUNED, PENALTY = "h2q/table1", "h2q/table2", "h2q/tuned", "h2q/tuned-penalty"
HSWD = "h2q/tuned-hswd"
RATE = (  # of the recipes below TUNED and PENALTY
    " Each loss has the rate of 1e-4, 3e-4 and 1e-3 that is best on validation rows at 32 bits and "
    "seed 0, which is not among the seeds here; where that is 1e-3, 2e-3 gained at most .001."
)


def table1(quantizer: str, under: str = T1) -> list[tuple[str, Place]]:
    said = "" if quantizer == "none" else f" + {quantizer}"
    return [(n + said, Place(f"{under}/{loss}", quantizer)) for n, loss in LOSSES.items()]


def table2(kind: str) -> list[tuple[str, Place]]:
    said = {"penalty": "with its penalty", "hswd": "with HSWD"}[kind]
    return [(f"{n} {said}", Place(f"{T2}/{loss}-{kind}")) for n, loss in LOSSES.items()]


def penalties() -> list[tuple[str, Place]]:
    """The whole network trained with the losses' own penalties."""
    return [(f"{n} with its penalty", Place(f"{PENALTY}/{loss}")) for n, loss in LOSSES.items()]


def sliced() -> list[tuple[str, Place]]:
    """The whole network trained with HSWD."""
    return [(f"{n} with HSWD", Place(f"{HSWD}/{loss}")) for n, loss in LOSSES.items()]


def gains(evidence: Evidence, ours: Sequence, theirs: Sequence, figure: str = BROKEN) -> list[Gap]:
    """Gaps of pairs of lines at every code length of H2Q's tables."""
    pairs = zip(ours, theirs, strict=True)
    found = [
        evidence.gap(a.at(b), c.at(b), figure)
        for (_, a), (_, c) in pairs
        for b in evidence.bits("h2q")
    ]
    return [gap for gap in found if gap is not None]


def mean_of(gaps: Sequence[Gap]) -> float:
    return sum(g.mean for g in gaps) / max(1, len(gaps))


def itq(under: str) -> Callable[[Evidence], Finding]:
    def find(evidence: Evidence) -> Finding:
        plain = table1("none", under)
        gaps = gains(evidence, table1("itq", under), plain)
        if not gaps:
            return Finding(NONE)
        lower = sum(g.mean < 0 for g in gaps)
        h2q = gains(evidence, table1("h2q", under), plain)
        said = (
            f"ITQ lowers the figure in {lower} of {len(gaps)} cases and changes it by "
            f"{signed(mean_of(gaps))} on average; H2Q changes it by {signed(mean_of(h2q))}."
        )
        shown = grid(evidence, [*plain, *table1("itq", under)], evidence.bits(under), BROKEN)
        return Finding(YES if lower >= len(gaps) / 4 else NO, said, shown)

    return find


def four_losses(evidence: Evidence) -> Finding:
    names = ("h2q", "h2q-l1", "h2q-min", "h2q-variance")
    every = {n: gains(evidence, table1(n), table1("none")) for n in names}
    if not all(every.values()):
        return Finding(NONE)
    means = {n: mean_of(gaps) for n, gaps in every.items()}
    said = ", ".join(f"{n} {signed(m)}" for n, m in means.items())
    alike = max(means.values()) - min(means.values()) <= 0.01
    bits = evidence.bits("h2q/table1")
    lines = [line for n in names for line in table1(n)]
    return Finding(
        YES if alike and min(means.values()) > 0 else NO,
        f"Mean gain over no rotation: {said}.",
        grid(evidence, lines, bits, BROKEN),
    )


def hurts(evidence: Evidence) -> Finding:
    """Fig. 2: penalties and HSWD sometimes lower the figure of lambda = 0, H2Q never."""
    counts = {}
    for said, ours in (
        ("penalty", table2("penalty")),
        ("HSWD", table2("hswd")),
        ("H2Q", table1("h2q")),
    ):
        gaps = gains(evidence, ours, table1("none"))
        if not gaps:
            return Finding(NONE)
        counts[said] = (sum(g.mean < 0 for g in gaps), len(gaps), mean_of(gaps))
    said = "; ".join(f"{n} in {a} of {b} (mean {signed(m)})" for n, (a, b, m) in counts.items())
    right = counts["H2Q"][0] == 0 and counts["penalty"][0] > 0 and counts["HSWD"][0] > 0
    bits = evidence.bits("h2q/table2")
    lines = [*table1("none"), *table2("penalty"), *table2("hswd")]
    return Finding(
        YES if right else NO, f"Lower than lambda = 0: {said}.", grid(evidence, lines, bits, BROKEN)
    )


def consistently(theirs: Sequence, under: str = T1) -> Callable[[Evidence], Finding]:
    """Whether H2Q is ahead of them in more than half of the cases."""

    def find(evidence: Evidence) -> Finding:
        ours = table1("h2q", under)
        gaps = gains(evidence, ours, theirs)
        if not gaps:
            return Finding(NONE)
        shown = grid(evidence, [*ours, *theirs], evidence.bits(under), BROKEN)
        won = sum(g.mean > 0 for g in gaps)
        return Finding(YES if won > len(gaps) / 2 else NO, counted(gaps), shown)

    return find


def best_of_all(under: str, penalised: Sequence) -> Callable[[Evidence], Finding]:
    ours = [("HyP2 + h2q", Place(f"{under}/hyp2", "h2q"))]
    theirs = [line for line in [*table1("none", under), *penalised] if line[0] != "HyP2"]
    return ahead(ours, theirs, under, BROKEN)


def supervised(under: str) -> Callable[[Evidence], Finding]:
    """Not claimed by anyone: the rotation trained on AP_T against H2Q's, and no rotation."""

    def find(evidence: Evidence) -> Finding:
        ours, h2q, plain = (table1(q, under) for q in ("supervised", "h2q", "none"))
        against = gains(evidence, ours, h2q, "mAP")
        if not against:
            return Finding(NONE)
        alone = mean_of(gains(evidence, ours, plain, "mAP"))
        said = (
            f"Tie-aware mAP: {signed(mean_of(against))} against H2Q and {signed(alone)} against no "
            f"rotation, on average. Against H2Q: {counted(against)}"
        )
        lines = [*plain, *h2q, *ours]
        return Finding("", said, grid(evidence, lines, evidence.bits(under), "mAP", paper=False))

    return find


def times(evidence: Evidence) -> Finding:
    """Fig. 4, from the benchmark rows: the paper's solver, ours and encoding, by code length."""
    path = BENCHMARKS / "speed_h2q_lengths.jsonl"
    rows = read(path) if path.is_file() else []
    if not rows:
        return Finding(NONE)
    bits = sorted({r["bits"] for r in rows})
    kinds = {
        f"{'encode' if r['name'] == 'encode' else 'fit, ' + r['name']}, {r['work']:,} rows": (
            r["name"], r["work"],
        ) for r in rows
    }  # fmt: skip
    taken = {(r["name"], r["work"], r["bits"]): r["median"] for r in rows}
    shown = [[said, *(seconds(taken[(*of, b)]) for b in bits)] for said, of in kinds.items()]
    fits = max(s for (name, _, _), s in taken.items() if name.endswith("solver"))
    encodes = max(s for (name, _, _), s in taken.items() if name == "encode")
    said = (
        f"The paper's solver takes at most {fits:.0f} s, encoding at most {encodes:.2f} s, on "
        f"{rows[0]['threads']} threads (`{rows[0]['command']}`)."
    )
    lines = table(["", *(f"{b} bits" for b in bits)], shown)
    return Finding(YES if fits <= 180 and encodes < 1 else NO, said, lines)


EVERYWHERE = "ahead in the mean over seeds for every loss at every code length, paired by seed"
FROZEN, FINE = "", ", fine-tuned"


def improves(under: str, how: str) -> tuple[Claim, ...]:
    """The claims about rotations, of the networks below a folder."""
    wide = "" if how == FROZEN else f" Here the whole network is trained, as in the paper.{RATE}"
    penalised = table2("penalty") if how == FROZEN else penalties()
    both = (under, T2 if how == FROZEN else PENALTY)
    return (
        Claim(
            "H2Q",
            f"H2Q improves every loss, ties broken by floats{how}",
            "Table 2: applied to networks trained without penalty (lambda = 0), H2Q raises "
            "mAP@5000 in all cases. The figure is the paper's: equal Hamming distances ordered by "
            f"the floats.{wide}",
            EVERYWHERE,
            (under,),
            ahead(table1("h2q", under), table1("none", under), under, BROKEN, paired=True),
        ),
        Claim(
            "H2Q",
            f"H2Q improves every loss, ties averaged{how}",
            "The same claim in the pure Hamming figure, tie-aware mAP@5000, which the paper has "
            f"not.{wide}",
            EVERYWHERE,
            (under,),
            ahead(table1("h2q", under), table1("none", under), under, AWARE, paired=True),
        ),
        Claim(
            "H2Q",
            f"ITQ does not improve{how}",
            f"Section 4.3: ITQ frequently reduces mAP, by 0 points on average.{wide}",
            "ITQ is behind no rotation in at least a quarter of the cases",
            (under,),
            itq(under),
        ),
        Claim(
            "H2Q",
            f"Penalties do not outperform H2Q consistently{how}",
            "Section 4.3, the methods' own quantization penalties, their weights chosen on "
            f"validation rows of the frozen network.{wide}",
            "H2Q is ahead in more than half of the cases",
            both,
            consistently(penalised, under),
        ),
        Claim(
            "H2Q",
            f"HyP2 with H2Q is the best of all{how}",
            "Table 1: H2Q makes HyP2 the best of the methods (on AlexNet in all but two cases)."
            f"{wide}",
            "ahead in the mean over seeds of every other method, with and without penalty, at "
            "every length",
            both,
            best_of_all(under, penalised),
        ),
        Claim(
            "H2Q",
            f"A rotation trained on the metric{how}",
            f"Not claimed by the paper: its group of rotations with TALR's objective.{wide}",
            "a measurement",
            (under,),
            supervised(under),
        ),
    )


CLAIMS = (
    *improves(T1, FROZEN),
    *improves(TUNED, FINE),
    Claim(
        "H2Q",
        "The choice of H2Q's objective matters little",
        "Section 4.4: L2, L1, min entry and bit variance all improve, by much the same.",
        "each improves on average, and the averages lie within .01",
        (T1,),
        four_losses,
    ),
    Claim(
        "H2Q",
        "Penalties and HSWD sometimes hurt, H2Q never",
        "Figure 2: against lambda = 0, every strategy but H2Q lowers mAP in some cases.",
        "H2Q is never behind in the mean over seeds, penalties and HSWD each somewhere are",
        (T1, T2),
        hurts,
    ),
    Claim(
        "H2Q",
        "HSWD does not outperform H2Q consistently",
        "Section 4.3, the sliced-Wasserstein penalty with weight .1.",
        "H2Q is ahead in more than half of the cases",
        (T1, T2),
        consistently(table2("hswd")),
    ),
    Claim(
        "H2Q",
        "Fitting takes minutes, encoding less than a second",
        "Figure 4: at most 3 minutes for 20,000 embeddings of 64 bits, and less than a second for "
        "the codes of 1,000,000.",
        "the paper's solver within 180 s, encoding within 1 s",
        (),
        times,
    ),
    Claim(
        "H2Q",
        "NUS-WIDE, COCO and ImageNet",
        "Tables 1 and 2: the same claims on three more datasets.",
        "the datasets",
        (),
        unavailable(
            "The images are not available; readers and protocols are ready for anyone who has "
            "them (`nuswide-h2q`, `coco-h2q`, `imagenet100`)."
        ),
    ),
)
