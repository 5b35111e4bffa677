"""The top of the page of results: what a reader learns in a minute, then a line for each claim."""

from __future__ import annotations

import re
from collections.abc import Sequence

from generated.claims import CANNOT, MISSED, NO, NONE, OPEN, REACHED, YES, Claim, Finding
from generated.rows import table

SHORT = 120  # letters of a sentence that fit into a table
FOUND = (  # the claims whose findings matter to most readers, the most important first
    "A rotation trained on the metric",
    "TALR-AP ahead of its rivals in setting 1",
    "TALR-AP ahead of its rivals in setting 2",
    "ITQ does not improve",
    "Why MIHash fails when the network is fine-tuned",
    "FastAP ahead of other losses",
    "Birds: FastAP ahead of other losses, from principal components",
    "Birds: where the last layer starts",
)
Found = Sequence[tuple[Claim, Finding]]


def open_page(found: Found) -> str:
    """What holds, what does not, and what was found instead, for readers with one minute."""
    papers = dict.fromkeys(claim.paper for claim, f in found if f.verdict in (YES, NO, OPEN))
    judged = [finding.verdict for _, finding in found if finding.verdict in (YES, NO, OPEN)]
    columns = {"holds": YES, "does not hold": NO, "unfinished": OPEN}
    used = {said: verdict for said, verdict in columns.items() if verdict in judged}
    parts = []
    if judged:
        counts = f"{judged.count(YES)} hold and {judged.count(NO)} do not"
        left = judged.count(OPEN)
        counts += f", {left} {'is' if left == 1 else 'are'} unfinished" if left else ""
        parts.append(f"Of {len(judged)} claims that can be judged here, {counts}:")
        lines = [[p, *(link_all(found, v, p) for v in used.values())] for p in papers]
        parts.append(table(["", *used], lines).rstrip())
    for said, verdict in (("Reached", REACHED), ("Not reached", MISSED)):
        links = link_all(found, verdict)
        parts += [f"{said}, of our own goals: {links}."] if links else []
    instead = {claim.title: finding.instead for claim, finding in found if finding.instead}
    told = "\n".join(f"- {instead[title]}" for title in FOUND if title in instead)
    parts += [f"What we found instead:\n\n{told}"] if told else []
    return "\n\n".join(parts)


def link_all(found: Found, verdict: str, paper: str = "") -> str:
    """The titles of all claims with a verdict, of one paper or of all, as links."""
    links = [
        link(claim) for claim, finding in found
        if finding.verdict == verdict and paper in ("", claim.paper)
    ]  # fmt: skip
    return "; ".join(links)


def list_claims(found: Found) -> str:
    """Every claim with its verdicts, by paper; measurements, and claims without rows, are listed
    below."""
    lines = []
    papers = list(dict.fromkeys(claim.paper for claim, _ in found))
    for claim, finding in sorted(found, key=lambda pair: papers.index(pair[0].paper)):
        if finding.verdict not in ("", NONE):
            apart = spell_verdict(finding.beyond) if finding.beyond is not None else ""
            lines.append([claim.paper, link(claim), tell(finding), apart])
    text = "\n## Every claim\n\n"
    text += table(["", "claim", "on the paper's own set", "beyond it"], lines) if lines else ""
    for said, verdict in (("Measured without a claim", ""), ("No rows yet", NONE)):
        links = link_all(found, verdict)
        text += f"\n{said}: {links}.\n" if links else ""
    return text


def tell(finding: Finding) -> str:
    """A verdict and its sentence in short, for a table."""
    said = short(finding)
    return f"{spell_verdict(finding)}{f': {said}' if said else ''}"


def spell_verdict(finding: Finding) -> str:
    return f"**{finding.verdict}**" if finding.verdict else "measured"


def link(claim: Claim) -> str:
    return f"[{claim.title}](#{anchor(claim.title)})"


def short(finding: Finding) -> str:
    """The first sentence of a finding without its brackets, cut to what fits into a table; empty
    where it is the reason why a claim cannot be tested."""
    first = re.sub(r" \([^()]*\)", "", finding.sentence).split(". ")[0].rstrip(".")
    if finding.verdict == CANNOT:
        return ""
    if len(first) <= SHORT:
        return first
    begun, cut, _ = first[:SHORT].rpartition("; ")
    return f"{begun}; and more" if cut else ""


def anchor(title: str) -> str:
    """The anchor that Python-Markdown makes for a title."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return "-".join(kept.split())
