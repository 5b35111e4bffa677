"""Why MIHash fails where the whole network is trained: what its loss cannot see, and where the
distances of its codes lie."""

from __future__ import annotations

import math
from typing import Any

import torch

from generated.claims import NONE, Claim, Finding
from generated.evidence import Evidence, Place, short
from generated.rows import table
from rankbits.losses import mihash_loss, tie_aware_ap_loss

LONG, BITS = "talr/tuned-s1-long", 32
SHOWN = {"MIHash": "mihash", "MIHash, its authors' settings": "mihash-authors",
         "TALR-AP, alpha fixed": "talr-ap-fixed"}  # fmt: skip
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


def share_by_distance(counts: list[int], step: int = 4) -> list[str]:
    """Shares of pairs at distances 0 to 3, 4 to 7, ..."""
    total = sum(counts) or 1
    return [short(sum(counts[i : i + step]) / total) for i in range(0, len(counts), step)]


def explain(evidence: Evidence) -> Finding:
    lines = []
    for said, name in SHOWN.items():
        rows = evidence.at(Place(f"{LONG}/{name}", None, BITS)).values()
        for row in list(rows)[:1]:
            for kind in ("same", "other"):
                if "distances" in row:
                    lines.append([f"{said} ({short(row['value'])}), {kind} class",
                                  *share_by_distance(row["distances"][kind])])  # fmt: skip
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
            falls.append(f"{short(tuned)} for {short(frozen)} at {b} bits")
    text = f"AP_T fine-tuned for frozen: {', '.join(falls)}. " if falls else ""
    text += (
        f"A tenth of neighbours leaves {short(entropy)} nats to be known. The loss counts them as "
        "known as soon as neighbours and others lie at different distances, whichever is nearer "
        "and however near they are."
    )
    shown = compare_losses()
    if lines:
        head = [
            "share of pairs at distance",
            *(f"{d} to {min(d + 3, BITS)}" for d in range(0, BITS + 1, 4)),
        ]
        shown += "\n" + table(head, lines)
    return Finding("", text, shown)


MIHASH = Claim(
    "TALR",
    "Why MIHash fails when the network is fine-tuned",
    "MIHash maximises the mutual information between being a neighbour and the Hamming distance. "
    "Its AP_T falls when the whole network is trained, and not when a last layer is.",
    "a measurement",
    (LONG,),
    explain,
)
