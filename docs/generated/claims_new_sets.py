"""What two sets that the papers do not have say of their claims: birds (CUB-200-2011) for FastAP,
and CIFAR-100 with graded relevance for TALR."""

from __future__ import annotations

from generated.claims import MISSED, NO, NONE, REACHED, YES, Claim, Finding, ahead
from generated.claims_fastap import curve, rises
from generated.evidence import Evidence, Place, counted, short, signed
from generated.rows import table

PEERS = {
    "multi-similarity": "multi-similarity", "proxy-anchor": "proxy anchor", "margin": "margin",
    "contrastive": "contrastive", "triplet": "triplet margin",
}  # fmt: skip
FIGURES = {"R@1": "value", "R@2": "hit@2", "R@4": "hit@4", "R@8": "hit@8", "MAP@R": "MAP@R"}
BEST = ("FastAP, best recipe", Place("fastap/cub/best"))
OURS = ("FastAP", Place("fastap/cub-peers/fastap"))
THEIRS = [(said, Place(f"fastap/cub-peers/{name}")) for name, said in PEERS.items()]
GRADED = "talr/cifar100"
RIVALS = [
    (said, Place(f"{GRADED}/{name}", "none"))
    for name, said in (
        ("dpsh", "DPSH"), ("dtsh", "DTSH"), ("hashnet", "HashNet"), ("mihash", "MIHash"),
    )
]  # fmt: skip
NDCG = ("TALR-NDCG, simple", Place(f"{GRADED}/talr-ndcg", "none"))
AP = ("TALR-AP, simple", Place(f"{GRADED}/talr-ap", "none"))
Line = tuple[str, Place]


def show_birds(evidence: Evidence, lines: list[Line]) -> str:
    """A line for each method that has rows, a column for each figure."""
    cells = [[said, *(evidence.cell(p, f, False) for f in FIGURES.values())] for said, p in lines]
    return table(["", *FIGURES], [line for line in cells if line[1]])


def beats_all(evidence: Evidence) -> Finding:
    gaps = [gap for _, p in THEIRS if (gap := evidence.gap(OURS[1], p)) is not None]
    if not gaps:
        return Finding(NONE)
    shown = show_birds(evidence, [OURS, *THEIRS])
    return Finding(YES if all(g.mean > 0 for g in gaps) else NO, counted(gaps), shown)


def beats_best(evidence: Evidence) -> Finding:
    """The best FastAP recipe against the loss of the library that has the highest mean."""
    means = {said: evidence.mean(place) for said, place in THEIRS}
    known = {said: mean for said, mean in means.items() if mean is not None}
    if not known or evidence.mean(BEST[1]) is None:
        return Finding(NONE)
    rival = max(known, key=lambda said: known[said])
    gap = evidence.gap(BEST[1], dict(THEIRS)[rival])
    if gap is None:
        return Finding(NONE)
    spread = "one seed says nothing of the deviation"
    if gap.deviation is not None:
        spread = f"deviation {short(gap.deviation)} over {gap.seeds} seeds"
    said = f"Less {rival}, the best of the others, in R@1: {signed(gap.mean)}, {spread}."
    reached = gap.clear and gap.mean > 0
    lines = [BEST, OURS, *THEIRS]
    return Finding(REACHED if reached else MISSED, said, show_birds(evidence, lines))


def compare_sampling(evidence: Evidence) -> Finding:
    places = [
        (f"{how} sampling", Place(f"fastap/cub/sampling-{how}")) for how in ("hard", "random")
    ]
    gap = evidence.gap(places[0][1], places[1][1])
    if gap is None:
        return Finding(NONE)
    said = f"Hard less random in R@1: {signed(gap.mean)} over {gap.seeds} seeds."
    return Finding(YES if gap.mean > 0 else NO, said, show_birds(evidence, places))


def compare_batches(evidence: Evidence) -> Finding:
    points = curve(evidence, "fastap/cub/batch")
    grown, whole = rises(evidence, [place for _, place in points])
    if whole is None:
        return Finding(NONE)
    said = f"The largest batch is {signed(whole.mean)} from the smallest in R@1."
    lines = [(f"{vary['batch_size']} images", place) for vary, place in points]
    return Finding(YES if grown else NO, said, show_birds(evidence, lines))


def measure_bins(evidence: Evidence) -> Finding:
    points = curve(evidence, "fastap/cub/bins")
    lines = [(f"{vary['options.bins']} bins", place) for vary, place in points]
    return Finding("", "", show_birds(evidence, lines)) if points else Finding(NONE)


CLAIMS = (
    Claim(
        "FastAP",
        "Birds: FastAP ahead of other losses",
        "CUB-200-2011, kinds 1 to 100 train and 101 to 200 are judged; one network, one budget, "
        "the same batches; the rate of each loss is the better of two on kinds held out.",
        "ahead in R@1 in the mean over seeds of every other loss",
        ("fastap/cub-peers",),
        beats_all,
    ),
    Claim(
        "FastAP",
        "Birds: the best FastAP recipe ahead of the best other loss",
        "A goal of ours: on the same network, the best FastAP recipe is ahead of "
        "pytorch-metric-learning's best loss.",
        "ahead in R@1 by more than twice the standard deviation of the gap",
        ("fastap/cub/best", "fastap/cub-peers"),
        beats_best,
    ),
    Claim(
        "FastAP",
        "Birds: hard sampling ahead of random",
        "As in the supplement, Table 2, with families of birds as categories.",
        "ahead in R@1 in the mean over seeds",
        ("fastap/cub/sampling-hard", "fastap/cub/sampling-random"),
        compare_sampling,
    ),
    Claim(
        "FastAP",
        "Birds: larger batches are better",
        "As in Figure 4, every size by the step in two passes and with the same number of images, "
        "so that a larger batch takes fewer steps.",
        "no step to a larger batch loses more than the deviation of the gap, and the largest is "
        "clearly ahead of the smallest",
        ("fastap/cub/batch",),
        compare_batches,
    ),
    Claim(
        "FastAP",
        "Birds: the number of bins",
        "As in Figure 4, by the number of bins of the histogram.",
        "a measurement",
        ("fastap/cub/bins",),
        measure_bins,
    ),
    Claim(
        "TALR",
        "CIFAR-100, graded: TALR-NDCG ahead in NDCG",
        "As Table 2 has it for NUS-WIDE: trained for NDCG, the codes have the best NDCG. Here the "
        "same class is relevant 2 and the same category of classes 1, all methods fine-tuned.",
        "ahead in the mean over seeds in every comparison, paired by seed",
        (GRADED,),
        ahead([NDCG], [AP, *RIVALS], GRADED),
    ),
    Claim(
        "TALR",
        "CIFAR-100, graded: TALR-AP ahead in AP_T",
        "The same runs, judged by whether the category is shared.",
        "ahead in the mean over seeds in every comparison, paired by seed",
        (GRADED,),
        ahead([AP], [NDCG, *RIVALS], GRADED, "mAP"),
    ),
)
