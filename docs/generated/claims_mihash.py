"""Why MIHash fails when the whole network is trained: what its loss cannot see, and the distances
between its codes."""

from __future__ import annotations

import math
from typing import Any

import torch

from generated.claims import NONE, Claim, Finding
from generated.evidence import Evidence, Place, short
from generated.rows import table
from rankbits.losses import mihash_loss, tie_aware_ap_loss

LONG, TWO, BITS = "talr/tuned-s1-long", "talr/two-layers", 32
SHOWN = {  # recipes that count pairs by distance
    "MIHash, two layers": f"{TWO}/mihash",
    "MIHash, its authors' bins and alpha, two layers": f"{TWO}/mihash-wide",
    "TALR-AP, two layers": f"{TWO}/talr-ap",
    "MIHash, fine-tuned": f"{LONG}/mihash",
    "MIHash, its authors' settings, fine-tuned": f"{LONG}/mihash-authors",
    "TALR-AP, fine-tuned": f"{LONG}/talr-ap-fixed",
}
ARRANGEMENTS = {  # distances of the neighbours of a query, and of the others
    "neighbours at 0, others at 16": (0, 16),
    "neighbours at 0, others at 2": (0, 2),
    "neighbours at 16, others at 0": (16, 0),
    "all at 16": (16, 16),
}


def place_rows(distances: list[int]) -> torch.Tensor:
    """Codes of 32 bits, saturated, at these distances from the code of ones."""
    codes = torch.full((len(distances), BITS), 9.0)
    for row, distance in enumerate(distances):
        codes[row, :distance] = -9.0
    return codes


def compare_losses() -> str:
    """Both losses of a query with 10 neighbours and 90 others, by where these lie."""
    lines = []
    for said, (near, far) in ARRANGEMENTS.items():
        database = place_rows([near] * 10 + [far] * 90)
        labels = torch.tensor([1] * 10 + [0] * 90)
        of: dict[str, Any] = {"database": database, "database_labels": labels}
        query, own = torch.full((1, BITS), 9.0), torch.tensor([1])
        shared = abs(float(mihash_loss(query, own, **of)))
        precision = 1 - float(tie_aware_ap_loss(query, own, form="exact", **of))
        lines.append([said, short(shared), short(precision)])
    return table(["10 neighbours, 90 others", "mutual information", "tie-aware AP"], lines)


def share_pairs(evidence: Evidence, name: str) -> dict[str, list[float]]:
    """The share of the pairs of the same class, and of others, at each distance, over all seeds."""
    rows = evidence.at(Place(name, None, BITS)).values()
    counted = [row["distances"] for row in rows if "distances" in row]
    shares = {}
    for kind in ("same", "other") if counted else ():
        sums = [sum(column) for column in zip(*(counts[kind] for counts in counted), strict=True)]
        shares[f"{kind} class"] = [count / (sum(sums) or 1) for count in sums]
    return shares


def explain(evidence: Evidence) -> Finding:
    lines = []
    for said, name in SHOWN.items():
        for kind, shares in share_pairs(evidence, name).items():
            cells = [short(sum(shares[d : d + 4])) for d in range(0, BITS + 1, 4)]
            figure = evidence.cell(Place(name, None, BITS), paper=False)
            lines.append([f"{said} ({figure}), {kind}", *cells])
    if not evidence.rows:
        return Finding(NONE)
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    falls = []
    for b in evidence.bits("talr/tuned-s1"):
        tuned, frozen = (
            evidence.mean(Place(f"talr/{under}/mihash", "none", b))
            for under in ("tuned-s1", "table1-s1")
        )
        if tuned is not None and frozen is not None:
            falls.append(f"{short(tuned)} and {short(frozen)} at {b} bits")
    text = f"AP_T fine-tuned and frozen: {', '.join(falls)}. " if falls else ""
    text += (
        f"If a tenth are neighbours, the mutual information is at most {short(entropy)} nats. The "
        "loss reaches this as soon as neighbours and others lie at different distances. It does "
        "not matter which are nearer, nor how near: codes of other classes stay where they are."
    )
    shown = compare_losses()
    if lines:
        head = [
            "share of pairs at distance",
            *(f"{d} to {min(d + 3, BITS)}" for d in range(0, BITS + 1, 4)),
        ]
        shown += "\n" + table(head, lines)
        text += (
            " Two layers on the frozen network, trained in a minute on a CPU, show it too. The "
            "second table has the distances of pairs of a query and an item of the database."
        )
    return Finding("", text, shown, instead=tell_difference(evidence))


def tell_difference(evidence: Evidence) -> str:
    """A sentence that compares MIHash with TALR-AP, two layers trained: AP_T, and the share of
    pairs of other classes that are as near as pairs of the same class."""
    told = []
    for said, name in SHOWN.items():
        shares, mean = share_pairs(evidence, name), evidence.mean(Place(name, None, BITS))
        if TWO in name and shares and mean is not None:
            near = short(sum(shares["other class"][:4]))
            told.append(f"{said.removesuffix(', two layers')} {short(mean)} and {near}")
    if len(told) < len([name for name in SHOWN.values() if TWO in name]):
        return ""
    return (
        "MIHash fails when more than a last layer is trained, and its authors' bins do not help. "
        f"AP_T and the share of pairs of other classes within 3 bits of 32: {'; '.join(told)}."
    )


MIHASH = Claim(
    "TALR",
    "Why MIHash fails when the network is fine-tuned",
    "MIHash maximises the mutual information between being a neighbour and the Hamming distance. "
    "Its AP_T falls when the whole network is trained, but not when only a last layer is.",
    "a measurement",
    (TWO,),
    explain,
)
