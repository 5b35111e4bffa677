"""What is found on kinds of birds that nobody has learned from (CUB-200-2011)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from generated.claims import MISSED, NO, NONE, OPEN, REACHED, SEEDS, YES, Finding
from generated.claims_fastap import curve, rises
from generated.evidence import Evidence, Gap, Place, Row, counted, short, signed
from generated.rows import table

PEERS = {
    "multi-similarity": "multi-similarity", "proxy-anchor": "proxy anchor", "margin": "margin",
    "contrastive": "contrastive", "triplet": "triplet margin",
}  # fmt: skip
FIGURES = {"R@1": "value", "R@2": "hit@2", "R@4": "hit@4", "R@8": "hit@8", "MAP@R": "MAP@R"}
TUNED, FROZEN, PRINCIPAL = "fastap/cub-tuned", "fastap/cub-frozen", "fastap/cub-principal"
TRIALS, SMALL, LARGE = f"{TUNED}-trials", 128, 512
TRIED = {"R@1": "value", "MAP@R": "MAP@R", "held-out mAP": "validation"}
BEST = {
    TUNED: f"{TUNED}/fastap-best",
    FROZEN: f"{FROZEN}/fastap-40-bins",
    PRINCIPAL: f"{PRINCIPAL}/fastap-best",
}
COMPARED = {"fine-tuned": "fastap/cub", "frozen network": PRINCIPAL}  # batches and sampling
Line = tuple[str, Place]


def show_birds(evidence: Evidence, lines: list[Line]) -> str:
    """A line for each method that has rows, a column for each figure."""
    cells = [
        [said, *(evidence.cell(p, f, False) for f in FIGURES.values()), spell_choice(evidence, p)]
        for said, p in lines
    ]
    shown = [line for line in cells if line[1]]
    if any(line[-1] for line in shown):
        return table(["", *FIGURES, "chosen"], shown)
    return table(["", *FIGURES], [line[:-1] for line in shown])


def spell_choice(evidence: Evidence, place: Place) -> str:
    """``rate .0003, 512 images``: what the rows of a place chose by trials."""
    chosen: Row = next((row.get("chosen", {}) for row in evidence.at(place).values()), {})
    words = {"lr": "rate {}", "batch_size": "{} images", "epochs": "{} epochs"}
    words["options.bins"] = "{} bins"
    return ", ".join(words[name].format(value) for name, value in chosen.items() if name in words)


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
    ours, peers = list_lines(PRINCIPAL)
    gains, lines = [], []
    for said, new in [ours, *peers]:
        old = Place(new.name.replace(PRINCIPAL, FROZEN))
        rank, mean = evidence.gap(new, old), evidence.gap(new, old, "MAP@R")
        if rank is None or mean is None:
            continue
        gains.append(rank)
        line = [said]
        for gap, figure in ((rank, "value"), (mean, "MAP@R")):
            line += [evidence.cell(p, figure, False) for p in (old, new)] + [signed(gap.mean)]
        lines.append(line)
    if not gains:
        return Finding(NONE)
    least, most = (signed(pick(gap.mean for gap in gains)) for pick in (min, max))
    untrained = Place(f"{PRINCIPAL}/untrained")
    means = {said: evidence.mean(untrained, f) for said, f in (("R@1", "value"), ("MAP@R",) * 2)}
    alone = " and ".join(f"{said} {short(mean)}" for said, mean in means.items() if mean)
    gained = f"every loss gains {least} to {most} in R@1"
    if min(gap.mean for gap in gains) <= 0:
        gained = f"R@1 changes by {least} to {most}, by loss"
    heads = ["", "R@1, random", "principal", "gain", "MAP@R, random", "principal", "gain"]
    return Finding(
        "",
        f"{gained[0].upper()}{gained[1:]}. The components alone, without training, have {alone}.",
        table(heads, lines),
        instead="On new kinds of birds, with a last layer on a frozen network that starts at "
        "principal components and not at random weights, and settings chosen from more trials, "
        f"{gained}.",
    )


def compare_growth(evidence: Evidence) -> Finding:
    """What four times larger batches bring each loss in the trials, over the rates tried."""
    ours, peers = list_lines(TRIALS)
    lines, gains = [], {}
    for said, place in [ours, *peers]:
        found: dict[tuple[float, int], dict[str, float]] = {}
        for vary, at in curve(evidence, place.name):
            means = {name: evidence.mean(at, figure) for name, figure in TRIED.items()}
            known = {name: mean for name, mean in means.items() if mean is not None}
            found[vary["lr"], vary["batch_size"]] = known
        rises = []
        for rate in sorted({rate for rate, _ in found}):
            small, large = found[rate, SMALL], found[rate, LARGE]
            rises.append(large["R@1"] - small["R@1"])
            cells = [short(figures[name]) for name in TRIED for figures in (small, large)]
            lines.append([said, f"{rate:g}", *cells])
        if rises:
            gains[said] = signed(sum(rises) / len(rises))
    if ours[0] not in gains:
        return Finding(NONE)
    text = f"R@1 of batches of {LARGE} minus {SMALL}, mean over the rates, one seed: "
    text += ", ".join(f"{said} {gain}" for said, gain in gains.items())
    heads = [f"{name}, {size}" for name in TRIED for size in (SMALL, LARGE)]
    return Finding("", f"{text}.", table(["", "rate", *heads], lines))


def compare_sampling(folder: str) -> Callable[[Evidence], Finding]:
    places = [(f"{how} sampling", Place(f"{folder}/sampling-{how}")) for how in ("hard", "random")]

    def find(evidence: Evidence) -> Finding:
        gap = evidence.gap(places[0][1], places[1][1])
        if gap is None:
            return Finding(NONE)
        spread = "" if gap.deviation is None else f", deviation {short(gap.deviation)}"
        said = f"R@1 of hard minus random sampling: {signed(gap.mean)}{spread}; seeds: {gap.seeds}."
        return Finding(decide(gap.mean > 0, [gap]), said, show_birds(evidence, places))

    return find


def compare_batches(folder: str) -> Callable[[Evidence], Finding]:
    def find(evidence: Evidence) -> Finding:
        points = curve(evidence, f"{folder}/batch")
        grown, whole = rises(evidence, [place for _, place in points])
        if whole is None:
            return Finding(NONE)
        gap = f"{signed(whole.mean)}; seeds: {whole.seeds}"
        said = f"R@1 of the largest batch minus the smallest: {gap}."
        lines = [(f"{vary['batch_size']} images", place) for vary, place in points]
        return Finding(decide(grown, [whole]), said, show_birds(evidence, lines))

    return find
