"""The lines of TALR's tables: each method, fine-tuned and frozen, in both settings."""

from __future__ import annotations

from generated.claims import Line
from generated.evidence import Evidence, Place, short

S1, S2, TUNED, T3 = "talr/table1-s1", "talr/table1-s2", "talr/tuned-s1", "talr/table3"
LONG, TUNED2, SHALLOW = "talr/tuned-s1-long", "talr/tuned-s2", "talr/table1-shallow"
CLASSICAL = {"BRE": "bre", "MACHash": "machash", "FastHash": "fasthash", "StructHash": "structhash"}
FORMS = ("simple", "relaxed", "exact")
FIXED, GROWN = "TALR-AP, alpha fixed", "TALR-AP, alpha growing"
HASHNET = "HashNet"
FOLDERS = {  # the name of each, and how its recipes of TALR-AP begin
    LONG: ("fine-tuned, chosen budget", "talr-ap"),
    TUNED: ("fine-tuned, 20 epochs", "talr-ap-simple"),
    S1: ("frozen", "talr-ap-simple"),
    TUNED2: ("fine-tuned, 6 epochs", "talr-ap"),
    S2: ("frozen", "talr-ap-simple"),
}
LENGTHS = {1: (12, 24, 32, 48), 2: (16, 24, 32, 48)}  # of the paper's Table 1


def methods(under: str) -> dict[str, Line]:
    """The methods below a folder, by name."""
    start = FOLDERS[under][1]
    names = {FIXED: f"{start}-fixed", GROWN: f"{start}-grow", "DPSH": "dpsh", "DTSH": "dtsh"}
    names |= {"MIHash": "mihash", HASHNET: "hashnet"}
    return {said: (said, Place(f"{under}/{name}")) for said, name in names.items()}


def shallow() -> list[Line]:
    return [(said, Place(f"{SHALLOW}/{name}")) for said, name in CLASSICAL.items()]


def rivals(under: str) -> list[Line]:
    """The paper's rivals that are trained like TALR-AP. MIHash fails when it is fine-tuned, so
    it does not count there."""
    names = ("DPSH", "DTSH", "MIHash") if under in (S1, S2) else ("DPSH", "DTSH")
    return [methods(under)[name] for name in names]


def name_leaders(evidence: Evidence, number: int, under: str) -> str:
    """A sentence on the best method at each length below a folder, and on the one after it."""
    leads: dict[str, list[str]] = {}
    seeds = set()
    for b in LENGTHS[number]:
        places = {said: place.at(b) for said, (_, place) in methods(under).items()}
        means = {said: mean for said, p in places.items() if (mean := evidence.mean(p)) is not None}
        if len(means) > 1:
            first, second = sorted(means, key=means.__getitem__, reverse=True)[:2]
            after = f"{short(means[first])}; {second} {short(means[second])}"
            leads.setdefault(first, []).append(f"{b} bits ({after})")
            seeds |= {len(evidence.at(places[said])) for said in (first, second)}
    told = [f"{said} at {', '.join(lengths)}" for said, lengths in leads.items()]
    if not told:
        return ""
    how = FOLDERS[under][0] + (", one seed" if min(seeds) == 1 else "")
    return (
        f"In setting {number} ({how}) the best, each with the one after it, are {', '.join(told)}."
    )
