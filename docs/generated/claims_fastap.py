"""What FastAP claims, and whether the rows confirm it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from generated.claims import NO, NONE, YES, Claim, Finding, Part, compare, conclude, unavailable
from generated.evidence import Evidence, Gap, Place, counted, signed
from generated.rows import table

SETS = ("omniglot", "clinc150")
OWN = ("margin", "proxy-nca", "lifted-structure", "histogram")  # of the paper's tables
MORE = ("triplet", "contrastive", "multi-similarity")


def curve(evidence: Evidence, name: str) -> list[tuple[dict, Place]]:
    return [(vary, Place(name, None, None, key)) for vary, key in evidence.varied(name)]


def curves(evidence: Evidence, kind: str, of: str = "fastap/{data}/{kind}") -> str:
    lines = []
    for data in SETS:
        for vary, place in curve(evidence, of.format(data=data, kind=kind)):
            named = ", ".join(f"{n.removeprefix('options.')} {v}" for n, v in vary.items())
            lines.append([data, named, evidence.cell(place), evidence.cell(place, "mAP")])
    return table(["", "", "R@1", "AP_T"], lines) if lines else ""


def hard(evidence: Evidence) -> Finding:
    gaps, lines, said = [], [], []
    for data in SETS:
        places = {h: Place(f"fastap/{data}/sampling-{h}") for h in ("hard", "random")}
        gap = evidence.gap(places["hard"], places["random"])
        if gap is not None:
            gaps.append(gap)
            said.append(f"{data} {signed(gap.mean)}")
        for how, place in places.items():
            lines.append([data, how, evidence.cell(place), evidence.cell(place, "mAP")])
    if not gaps:
        return Finding(NONE)
    shown = table(["", "sampling", "R@1", "AP_T"], [line for line in lines if line[2]])
    text = f"R@1 of hard minus random sampling: {', '.join(said)}. {counted(gaps)}"
    return Finding(YES if all(g.mean > 0 for g in gaps) else NO, text, shown)


def bins(evidence: Evidence) -> Finding:
    """No other number of bins is ahead of 10 by more than the deviation of the gap."""
    beaten, seen = [], 0
    for data in SETS:
        points = curve(evidence, f"fastap/{data}/bins")
        ten = next((p for v, p in points if v.get("options.bins") == 10), None)
        for vary, place in points:
            gap = evidence.gap(place, ten) if ten and place != ten else None
            if gap is None:
                continue
            seen += 1
            if gap.mean > (gap.deviation or 0):
                beaten.append(f"{vary['options.bins']} bins on {data} ({signed(gap.mean)})")
    if not seen:
        return Finding(NONE)
    said = f"{len(beaten)} of {seen} other numbers of bins are ahead of 10 by more than the "
    said += f"deviation: {', '.join(beaten)}." if beaten else "deviation."
    return Finding(NO if beaten else YES, said, curves(evidence, "bins"))


def rises(evidence: Evidence, points: Sequence[Place]) -> tuple[bool, Gap | None]:
    """Whether figures rise along places: no step falls by more than its deviation, and the last is
    clearly ahead of the first."""
    steps = [evidence.gap(b, a) for a, b in pairwise(points)]
    whole = evidence.gap(points[-1], points[0]) if len(points) > 1 else None
    if whole is None or any(s is None for s in steps):
        return False, None
    held = all(s is not None and s.mean >= -(s.deviation or 0) for s in steps)
    return held and whole.mean > 0 and (whole.clear or whole.deviation is None), whole


def batches(evidence: Evidence) -> Finding:
    good, said = [], []
    for data in SETS:
        ok, whole = rises(evidence, [p for _, p in curve(evidence, f"fastap/{data}/batch")])
        if whole is not None:
            good.append(ok)
            said.append(f"{data} {signed(whole.mean)}")
    if not good:
        return Finding(NONE)
    text = f"R@1 of the largest batch minus the smallest: {', '.join(said)}."
    return Finding(YES if all(good) else NO, text, curves(evidence, "batch"))


def convergence(evidence: Evidence) -> Finding:
    good = []
    for data in SETS:
        points = curve(evidence, f"fastap/{data}/convergence")
        for steps in sorted({v["steps"] for v, _ in points if "steps" in v}):
            along = sorted((v["batch_size"], p.vary) for v, p in points if v["steps"] == steps)
            places = [Place(f"fastap/{data}/convergence", None, None, vary) for _, vary in along]
            ok, whole = rises(evidence, places)
            good += [ok] if whole is not None else []
    if not good:
        return Finding(NONE)
    said = f"A larger batch is ahead at {sum(good)} of {len(good)} numbers of steps."
    return Finding(YES if all(good) else NO, said, curves(evidence, "convergence"))


def categories(evidence: Evidence) -> Finding:
    """One category in a batch is behind two, and more than two are not ahead of them."""
    behind: list[bool] = []
    beaten, said = [], []
    for data in SETS:
        points = {v["together"]: p for v, p in curve(evidence, f"fastap/supplement-a/{data}")}
        two = points.get(2)
        gaps = {n: evidence.gap(p, two) for n, p in points.items() if two is not None and n != 2}
        known = {n: gap for n, gap in gaps.items() if gap is not None}
        behind += [known[1].mean < 0] if 1 in known else []
        above = {
            n: gap.mean for n, gap in known.items() if n > 2 and gap.mean > (gap.deviation or 0)
        }
        beaten += [f"{n} on {data} ({signed(gain)})" for n, gain in above.items()]
        told = ", ".join(f"{n}: {signed(gap.mean)}" for n, gap in sorted(known.items()))
        said += [f"{data}, {told}"] if told else []
    if not said:
        return Finding(NONE)
    text = f"R@1 minus that of two categories, by their number: {'; '.join(said)}."
    shown = curves(evidence, "", "fastap/supplement-a/{data}")
    instead = (
        f"More categories in a batch than two are better: {', '.join(beaten)}." if beaten else ""
    )
    verdict = YES if behind and all(behind) and not beaten else NO
    return Finding(verdict, text, shown, instead=instead)


def peers(evidence: Evidence) -> Finding:
    lines = []
    own: list[Part] = []
    beyond: list[Part] = []
    for data in SETS:
        under = f"fastap/{data}-peers"
        ours = ("FastAP", Place(f"{under}/fastap"))
        for names, parts in ((OWN, own), (MORE, beyond)):
            pairs = [(ours, (name, Place(f"{under}/{name}"))) for name in names]
            parts.append(compare(evidence, data, pairs, [None]))
        for name in ("fastap", *OWN, *MORE):
            place = Place(f"{under}/{name}")
            lines.append([data, name, evidence.cell(place), evidence.cell(place, "mAP")])
    judged, apart = conclude(own), conclude(beyond)
    shown = table(["", "loss", "R@1", "AP_T"], [line for line in lines if line[2]])
    behind = [g for part in own + beyond for g in part.gaps if g.mean < 0 and g.clear]
    told = ", ".join(f"{g.theirs.name.split('/')[-1]} on {g.theirs.name.split('/')[1][:-6]} "
                     f"({signed(g.mean)})" for g in behind)  # fmt: skip
    instead = f"FastAP is clearly behind {told} in R@1." if told else ""
    return Finding(
        judged.verdict, judged.sentence, shown if judged.sentence else "", apart, instead
    )


def both(*names: str) -> tuple[str, ...]:
    return tuple(f"fastap/{data}/{name}" for data in SETS for name in names)


CLAIMS = (
    Claim(
        "FastAP",
        "Hard sampling ahead of random",
        "Supplement, Table 2: batches of two categories are better than batches of random classes.",
        "ahead in R@1 in the mean over seeds on both sets",
        both("sampling-hard", "sampling-random"),
        hard,
    ),
    Claim(
        "FastAP",
        "Two categories in a batch are best",
        "Supplement A: batches of one category are worse than batches of two, and more than two "
        "bring no gain.",
        "one category is behind two in R@1, and no larger number is ahead of two by more than the "
        "deviation of the gap",
        tuple(f"fastap/supplement-a/{data}" for data in SETS),
        categories,
    ),
    Claim(
        "FastAP",
        "About 10 bins are best",
        "Figure 4: R@1 by the number of bins of the histogram; 10 is the paper's choice.",
        "no other number of bins is ahead of 10 by more than the deviation of the gap",
        both("bins"),
        bins,
    ),
    Claim(
        "FastAP",
        "Larger batches are better",
        "Figure 4: R@1 rises with the size of the batch.",
        "no step to a larger batch loses more than the deviation of the gap, and the largest is "
        "clearly ahead of the smallest (the same number of steps for all)",
        both("batch"),
        batches,
    ),
    Claim(
        "FastAP",
        "Larger batches converge faster",
        "Supplement, Figure 3: learning curves by the size of the batch.",
        "at every number of steps R@1 rises with the size of the batch, as above",
        both("convergence"),
        convergence,
    ),
    Claim(
        "FastAP",
        "FastAP ahead of other losses",
        "Tables 1 to 3: FastAP is ahead of margin, proxy-NCA, lifted structure and histogram "
        "losses. Here these come from pytorch-metric-learning, with the same network and budget. "
        "Triplet, contrastive and multi-similarity are not in the tables and are judged apart.",
        "ahead of every loss of the tables in R@1, in the mean over seeds, on both sets",
        tuple(f"fastap/{data}-peers" for data in SETS),
        peers,
    ),
    Claim(
        "FastAP",
        "Products, In-Shop, VehicleID",
        "Tables 1 to 3: state of the art in R@k on the three sets.",
        "the datasets",
        (),
        unavailable(
            "The images are not available; readers and protocols are ready for anyone who has "
            "them (`products`, `inshop`, `vehicleid-small`)."
        ),
    ),
)
