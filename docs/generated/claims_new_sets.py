"""The claims of the papers on two sets that are not in them: birds (CUB-200-2011) for FastAP, and
CIFAR-100 with graded relevance for TALR."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from generated.claims import MISSED, NO, NONE, OPEN, REACHED, SEEDS, YES, Claim, Finding, ahead
from generated.claims_fastap import curve, rises
from generated.evidence import Evidence, Gap, Place, counted, short, signed
from generated.rows import table

PEERS = {
    "multi-similarity": "multi-similarity", "proxy-anchor": "proxy anchor", "margin": "margin",
    "contrastive": "contrastive", "triplet": "triplet margin",
}  # fmt: skip
FIGURES = {"R@1": "value", "R@2": "hit@2", "R@4": "hit@4", "R@8": "hit@8", "MAP@R": "MAP@R"}
TUNED, FROZEN = "fastap/cub-peers", "fastap/cub-frozen"
PRINCIPAL, GENTLE = "fastap/cub-principal", "fastap/cub-principal-tuned"
BEST = {
    TUNED: "fastap/cub/best",
    FROZEN: f"{FROZEN}/fastap-40-bins",
    PRINCIPAL: f"{PRINCIPAL}/fastap-256",
}
GRADED = {"": "talr/cifar100", ", frozen network": "talr/cifar100-frozen"}
RIVALS = {"dpsh": "DPSH", "dtsh": "DTSH", "hashnet": "HashNet"}
Line = tuple[str, Place]


def show_birds(evidence: Evidence, lines: list[Line]) -> str:
    """A line for each method that has rows, a column for each figure."""
    cells = [[said, *(evidence.cell(p, f, False) for f in FIGURES.values())] for said, p in lines]
    return table(["", *FIGURES], [line for line in cells if line[1]])


def list_lines(folder: str) -> tuple[Line, list[Line]]:
    """FastAP with the settings of its peers, and those peers."""
    peers = [(said, Place(f"{folder}/{name}")) for name, said in PEERS.items()]
    return ("FastAP", Place(f"{folder}/fastap")), peers


def decide(holds: bool, gaps: Iterable[Gap]) -> str:
    """The verdict where a rule holds or fails; gaps of one seed leave it open."""
    if any(gap.seeds < SEEDS for gap in gaps):
        return OPEN
    return YES if holds else NO


def beat_all(folder: str) -> Callable[[Evidence], Finding]:
    """Whether FastAP is ahead of every other loss of a folder."""
    ours, peers = list_lines(folder)

    def judge(evidence: Evidence, figure: str) -> Finding:
        gaps = [gap for _, p in peers if (gap := evidence.gap(ours[1], p, figure)) is not None]
        if not gaps:
            return Finding(NONE)
        return Finding(decide(all(g.mean > 0 for g in gaps), gaps), counted(gaps))

    def find(evidence: Evidence) -> Finding:
        by_rank, by_map = judge(evidence, "value"), judge(evidence, "MAP@R")
        if by_rank.verdict == NONE:
            return by_rank
        shown = show_birds(evidence, [ours, *peers])
        told = by_map.sentence[:1].lower() + by_map.sentence[1:]
        beyond = Finding(by_map.verdict, f"In MAP@R: {told}")
        instead = ""
        if (by_rank.verdict, by_map.verdict) == (NO, YES):
            instead = "On new kinds of birds, with a frozen network, FastAP is ahead of every "
            instead += "other loss in MAP@R, which is close to what it optimises, but not in R@1."
        return Finding(by_rank.verdict, by_rank.sentence, shown, beyond, instead)

    return find


def beat_best(folder: str) -> Callable[[Evidence], Finding]:
    """Whether the best FastAP recipe is clearly ahead of the other loss with the highest mean."""
    ours, peers = list_lines(folder)
    best = Place(BEST[folder])

    def judge(evidence: Evidence, figure: str, said: str) -> Finding:
        gaps = {n: gap for n, p in peers if (gap := evidence.gap(best, p, figure)) is not None}
        if not gaps:
            return Finding(NONE)
        rival = min(gaps, key=lambda name: gaps[name].mean)
        gap = gaps[rival]
        spread = "one seed, so the deviation is unknown"
        if gap.deviation is not None:
            spread = f"deviation {short(gap.deviation)} over {gap.seeds} seeds"
        text = f"{said} minus that of {rival}, the best other loss: {signed(gap.mean)}; {spread}."
        return Finding(REACHED if gap.clear and gap.mean > 0 else MISSED, text)

    def find(evidence: Evidence) -> Finding:
        by_rank, by_map = judge(evidence, "value", "R@1"), judge(evidence, "MAP@R", "MAP@R")
        if by_rank.verdict == NONE:
            return by_rank
        shown = show_birds(evidence, [("FastAP, best recipe", best), ours, *peers])
        return Finding(by_rank.verdict, by_rank.sentence, shown, by_map)

    return find


def compare_starts(evidence: Evidence) -> Finding:
    """What each loss gains where its last layer starts at principal components."""
    lines, told = [], []
    kinds = (("frozen", "", FROZEN, PRINCIPAL), ("fine-tuned", " at a lower rate", TUNED, GENTLE))
    for how, rate, before, after in kinds:
        ours, peers = list_lines(after)
        pairs = [(said, Place(p.name.replace(after, before)), p) for said, p in [ours, *peers]]
        gains = []
        for said, old, new in pairs:
            rank, mean = evidence.gap(new, old), evidence.gap(new, old, "MAP@R")
            if rank is None or mean is None:
                continue
            gains.append(rank)
            line = [f"{said}, {how}"]
            for gap, figure in ((rank, "value"), (mean, "MAP@R")):
                line += [evidence.cell(p, figure, False) for p in (old, new)] + [signed(gap.mean)]
            lines.append(line)
        if gains:
            seeds = min(gap.seeds for gap in gains)
            least, most = (signed(pick(gap.mean for gap in gains)) for pick in (min, max))
            told.append(f"{how}{rate}, {least} to {most} ({seeds} seed{'s' if seeds > 1 else ''})")
    if not told:
        return Finding(NONE)
    untrained = Place(f"{PRINCIPAL}/untrained")
    means = {said: evidence.mean(untrained, f) for said, f in (("R@1", "value"), ("MAP@R",) * 2)}
    alone = " and ".join(f"{said} {short(mean)}" for said, mean in means.items() if mean)
    gained = f"R@1 gains, by loss: {'; '.join(told)}"
    heads = ["", "R@1, random", "principal", "gain", "MAP@R, random", "principal", "gain"]
    return Finding(
        "",
        f"{gained}. The components alone, without training, have {alone}.",
        table(heads, lines),
        instead="On new kinds of birds, where the last layer starts at principal components and "
        f"not at random weights, {gained}.",
    )


def compare_sampling(evidence: Evidence) -> Finding:
    places = [
        (f"{how} sampling", Place(f"fastap/cub/sampling-{how}")) for how in ("hard", "random")
    ]
    gap = evidence.gap(places[0][1], places[1][1])
    if gap is None:
        return Finding(NONE)
    said = f"R@1 of hard minus random sampling: {signed(gap.mean)}; seeds: {gap.seeds}."
    return Finding(decide(gap.mean > 0, [gap]), said, show_birds(evidence, places))


def compare_batches(evidence: Evidence) -> Finding:
    points = curve(evidence, "fastap/cub/batch")
    grown, whole = rises(evidence, [place for _, place in points])
    if whole is None:
        return Finding(NONE)
    gap = f"{signed(whole.mean)}; seeds: {whole.seeds}"
    said = f"R@1 of the largest batch minus the smallest: {gap}."
    lines = [(f"{vary['batch_size']} images", place) for vary, place in points]
    return Finding(decide(grown, [whole]), said, show_birds(evidence, lines))


def judge_graded(more: str, folder: str) -> tuple[Claim, Claim]:
    """The claims that the loss made for a figure has the best of that figure."""
    ndcg = ("TALR-NDCG, simple", Place(f"{folder}/talr-ndcg", "none"))
    ap = ("TALR-AP, simple", Place(f"{folder}/talr-ap", "none"))
    rivals = [(said, Place(f"{folder}/{name}", "none")) for name, said in RIVALS.items()]
    mihash = [("MIHash", Place(f"{folder}/mihash", "none"))]
    beside = [] if more else mihash  # it fails when fine-tuned, and does not count there
    rivals += mihash if more else []
    rule = "ahead in the mean over seeds in every comparison, paired by seed"
    return (
        Claim(
            "TALR",
            f"CIFAR-100, graded: TALR-NDCG ahead in NDCG{more}",
            "As in Table 3 for NUS-WIDE: codes trained for NDCG have the best NDCG. Here items of "
            "the same class have grade 2, and items of the same category of classes grade 1.",
            rule,
            (folder,),
            ahead([ndcg], [ap, *rivals], folder, beside=beside),
        ),
        Claim(
            "TALR",
            f"CIFAR-100, graded: TALR-AP ahead in AP_T{more}",
            "The same runs, judged by whether the category is shared.",
            rule,
            (folder,),
            ahead([ap], [ndcg, *rivals], folder, "mAP", beside),
        ),
    )


CLAIMS = (
    Claim(
        "FastAP",
        "Birds: FastAP ahead of other losses",
        "CUB-200-2011: kinds 1 to 100 are trained on, kinds 101 to 200 are judged. All losses have "
        "the same network, fine-tuned, the same budget and the same batches. The rate of each loss "
        "is the better of two on held-out kinds.",
        "ahead of every other loss in R@1, in the mean over seeds",
        (TUNED,),
        beat_all(TUNED),
    ),
    Claim(
        "FastAP",
        "Birds: FastAP ahead of other losses, frozen network",
        "The same kinds, with a last layer on a frozen network. The rate of each loss is the best "
        "of three on held-out kinds.",
        "ahead of every other loss in R@1, in the mean over seeds",
        (FROZEN,),
        beat_all(FROZEN),
    ),
    Claim(
        "FastAP",
        "Birds: the best FastAP recipe ahead of the best other loss",
        "A goal of ours: on the same network, fine-tuned, the best FastAP recipe (batches of 256 "
        "images, 20 bins) is ahead of pytorch-metric-learning's best loss.",
        "ahead in R@1 by more than twice the standard deviation of the gap",
        ("fastap/cub/best", TUNED),
        beat_best(TUNED),
    ),
    Claim(
        "FastAP",
        "Birds: the best FastAP recipe ahead of the best other loss, frozen network",
        "The same goal for a last layer on a frozen network; here the recipe has batches of "
        "256 images and 40 bins.",
        "ahead in R@1 by more than twice the standard deviation of the gap",
        (FROZEN,),
        beat_best(FROZEN),
    ),
    Claim(
        "FastAP",
        "Birds: FastAP ahead of other losses, from principal components",
        "The frozen network again, with a last layer that starts at the principal components of "
        "the training photographs. The rate and the epochs of each loss are the best of six trials "
        "on held-out kinds.",
        "ahead of every other loss in R@1, in the mean over seeds",
        (PRINCIPAL,),
        beat_all(PRINCIPAL),
    ),
    Claim(
        "FastAP",
        "Birds: the best FastAP recipe ahead of the best other loss, from principal components",
        "The same goal for these runs; here the recipe has batches of 256 images. This size was "
        "chosen after figures on the new kinds had been seen; the trials on held-out kinds prefer "
        "128, the line called FastAP. So what is reached here is not a fair test.",
        "ahead in R@1 by more than twice the standard deviation of the gap",
        (PRINCIPAL,),
        beat_best(PRINCIPAL),
    ),
    Claim(
        "FastAP",
        "Birds: FastAP ahead of other losses, fine-tuned from principal components",
        "The network is fine-tuned again, but its last layer starts at the principal components "
        "and learns no faster than the layers below it. All losses have the same rate and budget.",
        "ahead of every other loss in R@1, in the mean over seeds",
        (GENTLE,),
        beat_all(GENTLE),
    ),
    Claim(
        "FastAP",
        "Birds: where the last layer starts",
        "A last layer with random weights mixes the network's features at random, and training on "
        "some kinds does not bring back what that loses for others. Where the network is "
        "fine-tuned, the runs that start at principal components also have a lower rate, the same "
        "for the last layer as for the others, which would soon lose the components.",
        "measured",
        (PRINCIPAL, FROZEN, GENTLE, TUNED),
        compare_starts,
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
        "As in Figure 4. Every size uses the step in two passes and sees the same number of "
        "images, so a larger batch takes fewer steps.",
        "no step to a larger batch loses more than the deviation of the gap, and the largest is "
        "clearly ahead of the smallest",
        ("fastap/cub/batch",),
        compare_batches,
    ),
    *(claim for more, folder in GRADED.items() for claim in judge_graded(more, folder)),
)
