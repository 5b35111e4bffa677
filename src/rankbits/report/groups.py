"""Group the entries of a comparison: runs that differ only in their seed are one method."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.report.entries import Entry
from rankbits.train.config import MAY_CHANGE
from rankbits.types import Evidence, Figure


@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """Entries of one method, with means and deviations over its seeds."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def bits(self) -> int | None:
        return self.first.report.bits

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the first entry that has codes and labels."""
        every = (e.evidence for e in self.entries)
        return next((x for x in every if x and x.codes and x.labels is not None), None)

    def figure(self, name: str) -> Figure | None:
        """The means over seeds of a figure and of its range of ties; None where a seed lacks it."""
        figures = [f for e in self.entries if (f := e.report.figures.get(name)) is not None]
        if len(figures) < len(self.entries):
            return None
        value, worst, best = (
            float(np.mean([getattr(f, end) for f in figures])) for end in ("value", "worst", "best")
        )
        return Figure(name, value, worst, best, figures[0].definition)

    def deviation(self, name: str) -> float | None:
        """The sample deviation over seeds, None for one seed."""
        if len(self.entries) < 2:
            return None
        return float(np.std([e.report[name] for e in self.entries], ddof=1))

    def per_query(self, name: str) -> np.ndarray | None:
        """The mean over seeds of each query (Q,); None where seeds answered different queries."""
        if not all(have_same_queries(self.first, e, name) for e in self.entries):
            return None
        return np.mean([e.per_query(name) for e in self.entries], axis=0)

    def __repr__(self) -> str:
        return f"Group({self.name}: {len(self.entries)})"


def group_entries(entries: Sequence[Entry]) -> list[Group]:
    """Group entries, in the order of each group's first entry.

    Entries given the same name are a group, and so are runs whose settings differ only in the seed
    (and in what does not change the outcome). Other entries that share a name are numbered.

    >>> from rankbits.types import Report
    >>> report = Report({}, "By hand.", 3, 9, 16)
    >>> runs = [Entry(f"run{i}", "", report, settings={"loss": "cel", "seed": i}) for i in (0, 1)]
    >>> group_entries([*runs, Entry("other", "", report)])
    [Group(run: 2), Group(other: 1)]
    """
    members: dict[str, list[Entry]] = {}
    for number, entry in enumerate(entries):
        key = f"name {entry.name}" if entry.named else _spell_settings(entry) or f"entry {number}"
        members.setdefault(key, []).append(entry)
    uses: dict[str, int] = {}
    groups = []
    for group in members.values():
        first = group[0]
        bits = {e.report.bits for e in group}
        if len(bits) > 1:
            lengths = " and ".join(str(b or "float") for b in bits)
            _check.refuse(f"'{first.name}' names codes of {lengths} bits; give each its own NAME=.")
        name = first.name if first.named or len(group) == 1 else _find_shared_name(group)
        uses[name] = uses.get(name, 0) + 1
        groups.append(Group(name if uses[name] == 1 else f"{name} ({uses[name]})", tuple(group)))
    return groups


def _spell_settings(entry: Entry) -> str | None:
    if entry.settings is None:
        return None
    settings = {n: v for n, v in entry.settings.items() if n not in (*MAY_CHANGE, "seed")}
    return json.dumps([settings, entry.quantizer, entry.report.bits, entry.report.protocol])


def _find_shared_name(entries: Sequence[Entry]) -> str:
    """Find what the names of a group begin with, or else the loss it was trained with."""
    shared = os.path.commonprefix([e.name for e in entries])  # noqa: RUF071 - letters are meant
    plain = re.sub(r"[-_. ]*(seed|s)?[-_. ]*$", "", shared)
    settings: Any = entries[0].settings or {}
    return plain or str(settings.get("loss", entries[0].name))


def have_same_queries(first: Entry, second: Entry, figure: str) -> bool:
    """Say whether two entries answered the same queries, as far as is known: as many, defined in
    the same places, with the same labels and from the same rows of the data."""
    values = [first.per_query(figure), second.per_query(figure)]
    if any(v is None for v in values) or not np.array_equal(*map(np.isnan, values)):
        return False
    for name in ("labels", "rows"):
        ours, theirs = (getattr(e.evidence, name, None) for e in (first, second))
        if ours is not None and theirs is not None and not np.array_equal(ours[0], theirs[0]):
            return False
    return True
