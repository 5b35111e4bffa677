"""Groups: runs that differ only in their seed are one method, measured several times."""

from __future__ import annotations

import json
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
    """Entries that are one method: means over seeds, deviations, and each query's mean."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def bits(self) -> int | None:
        return self.first.report.bits

    @property
    def seen(self) -> Evidence | None:
        """Evidence with codes: that of the first entry which has it."""
        held = (e.evidence for e in self.entries)
        return next((x for x in held if x and x.codes and x.labels is not None), None)

    def figure(self, name: str) -> Figure | None:
        """The mean over seeds of a figure and of what ties could have made of it."""
        found = [e.report.figures.get(name) for e in self.entries]
        known = [f for f in found if f is not None]
        if len(known) < len(found):
            return None
        value, worst, best = (
            float(np.mean([getattr(f, part) for f in known])) for part in ("value", "worst", "best")
        )
        return Figure(name, value, worst, best, known[0].definition)

    def deviation(self, name: str) -> float | None:
        """The sample deviation over seeds, None for one seed."""
        if len(self.entries) < 2:
            return None
        return float(np.std([e.report[name] for e in self.entries], ddof=1))

    def per_query(self, name: str) -> np.ndarray | None:
        """(Q,) mean over seeds for each query, where all seeds answered the same queries."""
        values = [e.per_query(name) for e in self.entries]
        if any(v is None for v in values) or not all(
            same_queries(self.first, e, name) for e in self.entries[1:]
        ):
            return None
        return np.mean(values, axis=0)

    def __repr__(self) -> str:
        return f"Group({self.name}: {len(self.entries)})"


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """Entries as groups, in the order in which each first came.

    Entries given one name are a group, and so are runs whose settings differ only in the seed (and
    in what does not change the outcome). Any other two that share a name are numbered.

    >>> from rankbits.types import Report
    >>> report = Report({}, "By hand.", 3, 9, 16)
    >>> made = [Entry(f"run{i}", "", report, settings={"loss": "cel", "seed": i}) for i in (0, 1)]
    >>> grouped([*made, Entry("other", "", report)])
    [Group(run: 2), Group(other: 1)]
    """
    found: dict[str, list[Entry]] = {}
    for number, entry in enumerate(entries):
        key = f"name {entry.name}" if entry.named else _settings(entry) or f"entry {number}"
        found.setdefault(key, []).append(entry)
    taken: dict[str, int] = {}
    groups = []
    for held in found.values():
        bits = {e.report.bits for e in held}
        if len(bits) > 1:
            listed = " and ".join(str(b or "float") for b in bits)
            _check.refuse(
                f"'{held[0].name}' names codes of {listed} bits; give each its own NAME=."
            )
        name = held[0].name if held[0].named or len(held) == 1 else _shared(held)
        taken[name] = taken.get(name, 0) + 1
        groups.append(Group(name if taken[name] == 1 else f"{name} ({taken[name]})", tuple(held)))
    return groups


def _settings(entry: Entry) -> str | None:
    if entry.settings is None:
        return None
    left = {n: v for n, v in entry.settings.items() if n not in (*MAY_CHANGE, "seed")}
    return json.dumps([left, entry.quantizer, entry.report.bits, entry.report.protocol])


def _shared(entries: Sequence[Entry]) -> str:
    """What the names of a group have in common, or what was trained."""
    low, high = min(e.name for e in entries), max(e.name for e in entries)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    plain = re.sub(r"[-_. ]*(seed|s)?[-_. ]*$", "", low[:same])
    settings: Any = entries[0].settings or {}
    return plain or str(settings.get("loss", entries[0].name))


def same_queries(one: Entry, other: Entry, figure: str) -> bool:
    """Whether two entries answered the same queries, as far as can be known: as many, defined in
    the same places, with the same labels and from the same rows of the data."""
    first, second = one.per_query(figure), other.per_query(figure)
    if first is None or second is None or len(first) != len(second):
        return False
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        return False
    for name in ("labels", "rows"):
        ours, theirs = (getattr(e.evidence, name, None) for e in (one, other))
        if ours is not None and theirs is not None and not np.array_equal(ours[0], theirs[0]):
            return False
    return True
