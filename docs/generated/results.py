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
    claims_birds,
    claims_budgets,
    claims_fastap,
    claims_graded,
    claims_h2q,
    claims_made_sets,
    claims_talr,
)
from generated.claims import CANNOT, NONE, Claim, Finding  # noqa: E402
from generated.evidence import Evidence, load, origins  # noqa: E402
from generated.figures import FIGURES  # noqa: E402
from generated.opening import list_claims, open_page, spell_verdict  # noqa: E402
from rankbits.papers import read_recipes  # noqa: E402

PAGE = HERE.parent / "results.md"
PICTURES = HERE.parent / "pictures"
RECIPES = HERE.parents[1] / "reproduce"
CLAIMS = (
    *claims_talr.CLAIMS, *claims_budgets.CLAIMS, *claims_fastap.CLAIMS, *claims_h2q.CLAIMS,
    *claims_best.CLAIMS, *claims_birds.CLAIMS, *claims_graded.CLAIMS, *claims_made_sets.CLAIMS,
)  # fmt: skip
PAPERS = {
    "TALR": "TALR: Hashing as tie-aware learning to rank",
    "FastAP": "FastAP: Deep metric learning to rank",
    "H2Q": "H2Q: Deep hashing via Householder quantization",
    "Best": "Our own goals",
}
OPENING = """# Results

We ran the methods of three papers (TALR, FastAP, H2Q) again and judged each claim of the papers by
a rule. Networks, budgets and some sets of data differ from those of the papers, so a verdict is
about which method is ahead when all else is equal.
"""
RULES = """
## How to read this page

**Claims.** A claim is judged first on the **paper's own set**: the rivals, code lengths and way of
counting of its table. It is judged again **beyond** that set: with rivals that are not in the
paper, with more lengths, or with ties averaged. Each section states the rule by which a claim is
*reproduced* or *not reproduced*. A claim that can no longer hold is not reproduced, however many
rows are missing; comparisons of one seed do not decide. A claim that can still hold is *unfinished*
until every rival of the table that can run here has rows for two seeds at every length. A goal of
our own is *reached* or *not reached*.

**Tables.** A cell has the mean over seeds ± the standard deviation over seeds, and in brackets the
figure of the paper, for the paper's network. Networks, weights and budgets here differ from those
of the papers; the end of each part says how. So a claim is about which method is ahead when all
else is equal, not about equal figures. A seed sets the split, the start and the batches for all
methods, so gaps are taken seed by seed. *Clearly* means that the mean gap is more than twice the
standard deviation of the gaps.

**Rows.** `python docs/generated/results.py` makes this page from the rows in `reproduce/results`;
nothing is typed by hand. A row is one run of a recipe (`reproduce/*/*.toml`) for a code length and
a seed, with its command, machine and commit. `rankbits reproduce NAME --bits B --seed S` runs it
again if the data root has the dataset.
"""


@functools.cache
def expected(folder: str) -> int:
    """How many rows the recipes of a folder make when all of them are run."""
    return sum(len(one.cells()) * len(one.quantizers) for one in read_recipes(RECIPES, [folder]))


def lacking(evidence: Evidence, claim: Claim) -> int:
    """How many rows that a claim rests on are missing."""
    return sum(max(0, expected(f) - len(evidence.named(f))) for f in claim.of)


@functools.cache
def recipe_texts(folder: str) -> dict[str, str]:
    """What differs from the paper, by recipe; a recipe may say more now than when it was run."""
    return {recipe.name: recipe.differs for recipe in read_recipes(RECIPES, [folder])}


def differences(evidence: Evidence, folder: str) -> str:
    """What differs from the paper: first what all methods share, then each method's own."""
    methods: dict[str, list[str]] = {}
    for row in evidence.named(folder):
        text = recipe_texts(folder).get(row["name"]) or row["differs"]
        clauses = methods.setdefault(row["method"], [])
        clauses += [clause for clause in text.split("; ") if clause not in clauses]
    if not methods:
        return ""
    first, *others = methods.values()
    shared = [clause for clause in first if all(clause in clauses for clauses in others)]
    groups: dict[str, list[str]] = {}
    for method, clauses in methods.items():
        own = "; ".join(clause for clause in clauses if clause not in shared)
        groups.setdefault(own, []).append(method)
    lines = [f"- All: {'; '.join(shared)}."] if shared else []
    lines += [f"- {', '.join(names)}: {own}." for own, names in groups.items() if own]
    return "What differs from the paper:\n\n" + "\n".join(lines) + "\n"


def section(evidence: Evidence, claim: Claim, finding: Finding, drawn: Container[str]) -> str:
    """The text of a claim: its verdict, its figures, and its pictures that are drawn."""
    missing = lacking(evidence, claim)
    said = finding.verdict or "measured"
    said = f"**{said[0].upper()}{said[1:]}**" if finding.verdict else "Measured"
    text = f"\n### {claim.title}\n\n{claim.says}\n\n{said}"
    text += f". Rule: {claim.rule}." if finding.verdict not in ("", NONE, CANNOT) else "."
    text += f" {missing:,} rows are missing." if missing and finding.verdict != NONE else ""
    text += f" {finding.sentence}\n" if finding.sentence else "\n"
    if finding.beyond is not None and finding.beyond.sentence:
        text += f"\nBeyond the paper's own set: {spell_verdict(finding.beyond)}. "
        text += f"{finding.beyond.sentence}\n"
    if finding.instead and finding.instead not in text:
        text += f"\nFound instead: {finding.instead}\n"
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
    """The papers' figures that have rows, by the names of their files."""
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
            there = f"{len(rows):,} of {expected(folder):,} rows"
            text += (
                f"\n#### {folder}\n\n`rankbits reproduce {folder}`: {there}, {origins(rows)}\n\n"
            )
            text += differences(evidence, folder)
    whose = "our own goals" if paper == "Best" else paper
    return f"\n### Where the rows of {whose} come from\n{text}" if text else ""


def page(evidence: Evidence, drawn: Container[str]) -> str:
    found = [(claim, claim.find(evidence)) for claim in CLAIMS]
    text = f"{OPENING}\n{open_page(found)}\n{list_claims(found)}{RULES}"
    for paper, title in PAPERS.items():
        text += f"\n## {title}\n"
        text += "".join(section(evidence, c, f, drawn) for c, f in found if c.paper == paper)
        text += sources(evidence, paper)
    return text


if __name__ == "__main__":
    rows = load()
    drawn = pictures(rows)
    PAGE.write_text(page(rows, drawn), "utf-8")
    for name, text in drawn.items():
        (PICTURES / name).write_text(text, "utf-8")
    counts = f"{len(rows.rows):,} rows, {len(CLAIMS)} claims, {len(drawn)} pictures"
    print(f"{PAGE.name}: {counts}")
