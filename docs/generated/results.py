"""The page of results: every claim with its verdict, from the committed rows.

    python docs/generated/results.py

writes ``docs/results.md`` and its pictures; nothing in them is typed by hand.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Container
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from generated import (  # noqa: E402
    claims_best,
    claims_fastap,
    claims_h2q,
    claims_new_sets,
    claims_talr,
)
from generated.claims import CANNOT, NONE, Claim, Finding  # noqa: E402
from generated.evidence import Evidence, load, origins  # noqa: E402
from generated.figures import FIGURES  # noqa: E402
from generated.rows import table  # noqa: E402
from rankbits.papers import read_recipes  # noqa: E402

PAGE = HERE.parent / "results.md"
SHORT = 130  # letters of a sentence that a table can hold
PICTURES = HERE.parent / "pictures"
RECIPES = HERE.parents[1] / "reproduce"
CLAIMS = (
    *claims_talr.CLAIMS, *claims_fastap.CLAIMS, *claims_h2q.CLAIMS, *claims_best.CLAIMS,
    *claims_new_sets.CLAIMS,
)  # fmt: skip
PAPERS = {
    "TALR": "TALR: Hashing as tie-aware learning to rank",
    "FastAP": "FastAP: Deep metric learning to rank",
    "H2Q": "H2Q: Deep hashing via Householder quantization",
    "Best": "The best that can be had",
}
HEAD = """# Results

Made by `python docs/generated/results.py` from the rows in `reproduce/results`; nothing is typed by
hand. A row is one run of a recipe (`reproduce/*/*.toml`) for a code length and a seed, with its
command, machine and commit in it. `rankbits reproduce NAME --bits B --seed S` runs it again: the
data root must hold the dataset.

In the tables: mean over seeds ± standard deviation over seeds, and in brackets the paper's own
figure, of the paper's own network. Networks, weights and budgets here differ from the papers', and
the end of each part says how; so a claim is about who is ahead of whom, all else alike, not about
equal figures. A seed decides the split, the start and the batches for all methods alike, so gaps
are taken seed by seed; *clearly* is a mean gap of more than twice their standard deviation. A claim
is **reproduced** or **not reproduced** by the rule it states (*so far*, where rows are missing), or
**not testable here**; a goal of our own is **reached** or **not reached**.
"""


@functools.cache
def expected(folder: str) -> int:
    """The rows that the recipes of a folder make when all of them are run."""
    return sum(len(one.cells()) * len(one.quantizers) for one in read_recipes(RECIPES, [folder]))


def lacking(evidence: Evidence, claim: Claim) -> int:
    """The rows that a claim rests on and that are not there."""
    return sum(max(0, expected(f) - len(evidence.named(f))) for f in claim.of)


def verdict(finding: Finding, lacking: int = 0) -> str:
    said = f"**{finding.verdict}**" if finding.verdict else "measured"
    return f"{said} so far" if lacking and finding.verdict != NONE else said


def differences(evidence: Evidence, claim: Claim) -> str:
    """What differs from the paper, said once where several methods share it."""
    found: dict[str, list[str]] = {}
    for row in (r for name in claim.of for r in evidence.named(name)):
        found.setdefault(row["differs"], [])
        if row["method"] not in found[row["differs"]]:
            found[row["differs"]].append(row["method"])
    lines = [f"- {', '.join(methods)}: {text}." for text, methods in found.items()]
    return "What differs from the paper:\n\n" + "\n".join(lines) + "\n" if lines else ""


def section(evidence: Evidence, claim: Claim, finding: Finding, drawn: Container[str]) -> str:
    """A claim, what became of it, and those of its pictures that are drawn."""
    missing = lacking(evidence, claim)
    said = verdict(finding, missing)
    first = 2 if said.startswith("**") else 0
    said = said[:first] + said[first].upper() + said[first + 1 :]
    text = f"\n### {claim.title}\n\n{claim.says}\n\n{said}"
    text += f". Rule: {claim.rule}." if finding.verdict not in ("", NONE, CANNOT) else "."
    text += f" {missing:,} rows are missing." if missing and finding.verdict != NONE else ""
    text += f" {finding.sentence}\n" if finding.sentence else "\n"
    for figure in FIGURES:
        name = picture(figure.name)
        if figure.claim == claim.title and name in drawn:
            text += f"\n![{figure.shows}](pictures/{name})\n"
    if finding.table:
        text += f"\n{finding.table}"
    return text


def picture(name: str) -> str:
    return f"results-{name}.svg"


def pictures(evidence: Evidence) -> dict[str, str]:
    """The papers' figures that there are rows for, by the names of their files."""
    drawn = {picture(f.name): f.draw(evidence, f.shows) for f in FIGURES}
    return {name: text for name, text in drawn.items() if text}


def sources(evidence: Evidence, paper: str) -> str:
    """Commands, machines and differences of a paper's rows, a line for each folder."""
    text = ""
    named = (f for claim in CLAIMS if claim.paper == paper for f in claim.of)
    folders = dict.fromkeys("/".join(name.split("/")[:2]) for name in named)
    for folder in folders:
        rows = evidence.named(folder)
        if rows:
            one = Claim(paper, "", "", "", (folder,), lambda e: Finding(NONE))
            there = f"{len(rows):,} of {expected(folder):,} rows"
            text += (
                f"\n#### {folder}\n\n`rankbits reproduce {folder}`: {there}, {origins(rows)}\n\n"
            )
            text += differences(evidence, one)
    return f"\n### Where the rows of {paper} come from\n{text}" if text else ""


def page(evidence: Evidence, drawn: Container[str]) -> str:
    found = [(claim, claim.find(evidence)) for claim in CLAIMS]
    lines = [
        [c.paper, f"[{c.title}](#{anchor(c.title)})", verdict(f, lacking(evidence, c)), short(f)]
        for c, f in found
    ]
    text = f"{HEAD}\n{table(['', 'claim', 'verdict', 'in short'], lines)}"
    for paper, title in PAPERS.items():
        text += f"\n## {title}\n"
        text += "".join(section(evidence, c, f, drawn) for c, f in found if c.paper == paper)
        text += sources(evidence, paper)
    return text


def short(finding: Finding) -> str:
    """The first sentence of what was found, where it is one for a table and not a reason."""
    first = finding.sentence.split(". ")[0].rstrip(".")
    return first if finding.verdict != CANNOT and len(first) <= SHORT else ""


def anchor(title: str) -> str:
    """As Python-Markdown's table of contents makes it."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return "-".join(kept.split())


if __name__ == "__main__":
    rows = load()
    drawn = pictures(rows)
    PAGE.write_text(page(rows, drawn), "utf-8")
    for name, text in drawn.items():
        (PICTURES / name).write_text(text, "utf-8")
    counts = f"{len(rows.rows):,} rows, {len(CLAIMS)} claims, {len(drawn)} pictures"
    print(f"{PAGE.name}: {counts}")
