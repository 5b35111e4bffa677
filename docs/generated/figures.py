"""The papers' figures, drawn again from the rows; each stands below the claim it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from generated.claims_best import OURS, TAUGHT, tuned
from generated.claims_fastap import SETS, curve
from generated.claims_mihash import SHOWN, share_pairs
from generated.drawing import Dot, Panel, dots, lines
from generated.evidence import Evidence, Place
from generated.h2q_lines import (
    LOSSES,
    T1,
    TUNED,
    gains,
    penalties,
    table1,
    table2,
)
from generated.talr_lines import FIXED, S1, methods

Line = tuple[str, Place]


@dataclass(frozen=True)
class Figure:
    """A file's name, the claim it stands below, what it shows, and its drawing ("": no rows)."""

    name: str
    claim: str
    shows: str
    draw: Callable[[Evidence, str], str]


def ranges(evidence: Evidence, shows: str) -> str:
    """TALR, Fig. 3: from the worst order of ties to the best, and their mean."""
    panels = []
    for bits in evidence.bits(S1):
        found = []
        for said, place in methods(S1).values():
            if said == FIXED:
                continue
            ends = [evidence.mean(place.at(bits), f) for f in ("value", "worst", "best")]
            if ends[0] is not None:
                found.append(Dot(said.partition(",")[0], *ends))  # type: ignore[arg-type]
        panels += [Panel(f"{bits} bits", {"": found})] if found else []
    return dots(panels, shows, "mAP") if panels else ""


def swept(kind: str, setting: str) -> Callable[[Evidence, str], str]:
    """FastAP, Fig. 4: R@1 by one setting, a panel for each set."""

    def draw(evidence: Evidence, shows: str) -> str:
        panels = []
        for data in SETS:
            points = [
                (vary[setting], mean)
                for vary, place in curve(evidence, f"fastap/{data}/{kind}")
                if (mean := evidence.mean(place)) is not None
            ]
            panels += [Panel(data, lines={"R@1": sorted(points)})] if points else []
        across = {"options.bins": "bins", "batch_size": "batch"}[setting]
        return lines(panels, shows, across, "R@1") if panels else ""

    return draw


def convergence(evidence: Evidence, shows: str) -> str:
    """FastAP's supplement, Fig. 3: R@1 by steps, a line for each size of batch."""
    panels = []
    for data in SETS:
        found: dict[int, list[tuple[float, float]]] = {}
        for vary, place in curve(evidence, f"fastap/{data}/convergence"):
            mean = evidence.mean(place)
            if mean is not None:
                found.setdefault(vary["batch_size"], []).append((vary["steps"], mean))
        named = {f"batches of {size}": sorted(points) for size, points in sorted(found.items())}
        panels += [Panel(data, lines=named)] if named else []
    return lines(panels, shows, "steps", "R@1") if panels else ""


def gained(
    evidence: Evidence, bits: int, ours: Mapping[str, Sequence[Line]], plain: Sequence[Line]
) -> dict[str, list[Dot]]:
    """Points gained over ``plain``, loss by loss, by each strategy."""
    found: dict[str, list[Dot]] = {}
    for strategy, places in ours.items():
        for loss, one, other in zip(LOSSES, places, plain, strict=True):
            for gap in gains(evidence, [one], [other]):
                if gap.ours.bits == bits:
                    spread = 100 * (gap.deviation or 0)
                    mean = 100 * gap.mean
                    found.setdefault(strategy, []).append(
                        Dot(loss, mean, mean - spread, mean + spread)
                    )
    return found


def strategies(evidence: Evidence, shows: str) -> str:
    """H2Q, Fig. 2, frozen and fine-tuned."""
    frozen = {
        "ITQ": table1("itq"), "its penalty": table2("penalty"), "HSWD": table2("hswd"),
        "H2Q": table1("h2q"),
    }  # fmt: skip
    whole = {
        "ITQ": table1("itq", TUNED), "its penalty": penalties(), "H2Q": table1("h2q", TUNED),
    }  # fmt: skip
    both = [
        Panel("frozen, 16 bits", gained(evidence, 16, frozen, table1("none"))),
        Panel("fine-tuned, 16 bits", gained(evidence, 16, whole, table1("none", TUNED))),
    ]
    return _gains([panel for panel in both if panel.series], shows)


def objectives(evidence: Evidence, shows: str) -> str:
    """H2Q, Fig. 3: the gain of each objective."""
    four = {
        "L2": table1("h2q"), "L1": table1("h2q-l1"), "min entry": table1("h2q-min"),
        "bit variance": table1("h2q-variance"),
    }  # fmt: skip
    every = [
        Panel(f"{bits} bits", gained(evidence, bits, four, table1("none")))
        for bits in evidence.bits(T1)[:2]
    ]
    return _gains([panel for panel in every if panel.series], shows)


def _gains(panels: Sequence[Panel], shows: str) -> str:
    of = "points of mAP@5000, ties broken by floats"
    return dots(panels, shows, of, zero=True) if panels else ""


def same(evidence: Evidence, shows: str) -> str:
    """Every method on one network, best first: mean and deviation of AP_T over seeds."""
    panels = []
    for bits in (16, 32):
        found: dict[str, list[Dot]] = {}
        for said, place in [(OURS, TAUGHT), *tuned()]:
            values = list(evidence.values(place.at(bits), "mAP").values())
            if values:
                mean, spread = sum(values) / len(values), stdev(values) if len(values) > 1 else 0.0
                loss, how = _parted(said)
                dot = Dot(loss, mean, mean - spread, mean + spread)
                found.setdefault(how, []).append(dot)
        panels += [Panel(f"{bits} bits", found)] if found else []
    return dots(panels, shows, "AP_T") if panels else ""


def distances(evidence: Evidence, shows: str) -> str:
    """Where pairs of the same class and of others lie, by MIHash and by TALR-AP."""
    panels = []
    for said, name in SHOWN.items():
        shares = share_pairs(evidence, name)
        if shares and "authors" not in said:
            curves = {
                kind: [(float(at), share) for at, share in enumerate(values)]
                for kind, values in shares.items()
            }
            panels.append(Panel(said.partition(",")[0], lines=curves))
    return lines(panels[:2], shows, "Hamming distance", "share of pairs", 8) if panels else ""


def _parted(said: str) -> tuple[str, str]:
    """A method's loss and what was done to its codes."""
    if said.startswith("ours"):
        return said, "ours"
    loss, plus, quantizer = said.partition(" + ")
    if plus:
        return loss, {"itq": "ITQ", "h2q": "H2Q"}[quantizer]
    loss, penalised, penalty = said.partition(" with ")
    return loss, penalty if penalised else "own signs"


FIGURES = (
    Figure(
        "ties",
        "Breaking ties at will can reorder methods",
        "From the worst order of ties to the best, and their mean (setting 1, frozen network).",
        ranges,
    ),
    Figure(
        "distances",
        "Why MIHash fails when the network is fine-tuned",
        "Where pairs of the same class and of other classes lie, at 32 bits, two layers trained.",
        distances,
    ),
    Figure(
        "bins",
        "About 10 bins are best",
        "R@1 by the number of bins.",
        swept("bins", "options.bins"),
    ),
    Figure(
        "batches",
        "Larger batches are better",
        "R@1 by the size of the batch.",
        swept("batch", "batch_size"),
    ),
    Figure(
        "convergence",
        "Larger batches converge faster",
        "R@1 by steps, for sizes of the batch.",
        convergence,
    ),
    Figure(
        "strategies",
        "Penalties and HSWD sometimes hurt, H2Q never",
        "What each strategy gains over lambda = 0, with the deviation over seeds.",
        strategies,
    ),
    Figure(
        "objectives",
        "The choice of H2Q's objective matters little",
        "What each objective gains over no rotation, with the deviation over seeds.",
        objectives,
    ),
    Figure(
        "same",
        "Ahead of every method on the same backbone, fine-tuned",
        "Ours and every method on one network, fine-tuned: AP_T, with the deviation over seeds.",
        same,
    ),
)
