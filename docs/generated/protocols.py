"""The reference of protocols: what each draws when it runs on stand-ins for its data."""

from __future__ import annotations

import inspect

import numpy as np

from rankbits.data.examples import Examples
from rankbits.papers import protocols
from rankbits.papers.publishers import inshop
from rankbits.papers.publishers.published import Dataset

PARTS = ("train", "queries", "validation", "database")


def stand_in(name: str, rows: int) -> Dataset:
    """Rows with labels and the publisher's parts, no images: a protocol draws rows only."""
    classes = 21 if name.startswith("nuswide") else 100 if "100" in name else 10
    classes = 150 if name.startswith("clinc150") else classes
    labels = np.arange(rows) % classes
    shown = np.eye(classes, dtype=bool)[labels] if classes == 21 else labels
    half, third = np.split(np.arange(rows), 2), np.array_split(np.arange(rows), 3)
    parts = dict(zip(inshop.PARTS, third, strict=True)) if name == "inshop" else {
        "train": half[0], "test": half[1], "val": half[1],
        "background": half[0], "evaluation": half[1],
        "all": np.arange(rows), "once": np.arange(rows),
    }  # fmt: skip
    grouped = labels // 15 if classes in (100, 150) else None
    return Dataset(Examples(np.zeros((rows, 1), np.float32), shown, grouped), parts)


def row(name: str) -> str:
    published = stand_in(name, 42_000)
    few, many = (protocols.draw_protocol(name, stand_in(name, n), 0) for n in (42_000, 84_000))
    cells = []
    for part in PARTS:
        a, b = getattr(few, part), getattr(many, part)
        if a is None:
            cells.append("-")
        elif len(a) == len(b):  # drawn: the same however large the set is
            cells.append(f"{len(a):,}")
        elif part == "database" and few.exclude_self:
            cells.append("the queries, each without itself")
        elif part == "database" and np.array_equal(a, few.train):
            cells.append("the training rows")
        elif part == "database":
            held = [p for p in ("train", "validation") if getattr(few, p) is not None]
            inside = [p for p in held if np.isin(getattr(few, p), a).all()]
            cells.append("the rest" + (f", {' and '.join(inside)} in it" if inside else ""))
        elif few.exclude_self and few.validation is not None:  # drawn class by class
            cells.append(f"{len(np.unique(few.examples.labels[a])):,} classes")
        else:
            whole = any(np.array_equal(a, rows) for rows in published.parts.values())
            cells.append("the publisher's" + ("" if whole else ", without validation"))
    judged = f"`{few.metric}`" + (", ties by floats" if few.tie_break else "")
    judged += ", graded by shared labels" if few.relevance == "count" else ""
    return f"| `{name}` | {' | '.join(cells)} | {judged} | {','.join(map(str, few.k))} |"


def page() -> str:
    rows = "\n".join(map(row, protocols.PROTOCOLS))
    notes = {
        name: protocols.draw_protocol(name, stand_in(name, 42_000), 0).note
        for name in protocols.PROTOCOLS
    }
    said = "\n".join(f"- `{name}`: {note}" for name, note in notes.items() if note)
    first = (inspect.getdoc(protocols) or "").split("\n\n")[0]
    return (
        f"# Protocols\n\n{first}\n\n`rankbits train --data NAME`, "
        "`rankbits data check NAME` and `rankbits.papers.protocol(name, root, seed)` take a "
        "protocol by name. Fetch the files yourself and put them under `RANKBITS_DATA`; `data "
        "check` counts them and looks for rows that are in two parts. A protocol is refused if a "
        "query is in the database or among the training rows.\n\n"
        "The table is made by running each protocol. A number is drawn by the seed, *the rest* is "
        "what was not drawn, *the publisher's* is a part as published.\n\n"
        "| name | train | queries | validation | database | judged by | cutoffs |\n"
        f"|---|---|---|---|---|---|---|\n{rows}\n\n{said}\n\n"
        "Hyper-parameters are chosen on validation rows, never on queries. "
        "[What is wrong with some published lists](../notes/errors.md).\n"
    )
