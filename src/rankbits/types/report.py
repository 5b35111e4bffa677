"""Report: figures about rankings, each with the range that the order of ties leaves open."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankbits import _check, _page
from rankbits._files import write_whole


@dataclass(frozen=True)
class Figure:
    """A number of a report: its mean over all orders of ties, its range over these orders, and its
    definition."""

    name: str
    value: float
    worst: float
    best: float
    definition: str

    @property
    def tied(self) -> bool:
        """Whether the order of ties could have changed it."""
        return self.best - self.worst > 1e-12

    @property
    def spelled(self) -> str:
        """The value with four digits, or "undefined" where no query has a relevant item."""
        return "undefined" if math.isnan(self.value) else f"{self.value:.4f}"

    @property
    def range_of_ties(self) -> str:
        """The range over all orders of ties, in words."""
        return f"{self.worst:.4f} to {self.best:.4f}" if self.tied else "no tie matters"


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What ``evaluate`` returns: figures, how they were computed, and what was left out.

    ``report["mAP"]`` is a figure's value, ``report.figures["mAP"]`` the whole figure,
    ``report.per_query["mAP"]`` its value for each query (nan where nothing is relevant).

    >>> print(Report({"mAP": Figure("mAP", 0.5, 0.25, 0.75, "...")}, "By hand.", 2, 9))
    2 queries x 9 database items
    By hand.
    <BLANKLINE>
    mAP  0.5000  (ties could make it 0.2500 to 0.7500)
    """

    figures: Mapping[str, Figure]
    protocol: str
    queries: int
    database: int
    bits: int | None = None
    without_relevant: int = 0
    notes: tuple[str, ...] = ()
    per_query: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.figures[name].value

    def __repr__(self) -> str:
        return f"Report({', '.join(f'{f.name} {f.spelled}' for f in self.figures.values())})"

    @property
    def title(self) -> str:
        size = f"{self.queries:,} queries x {self.database:,} database items"
        return size if self.bits is None else f"{size}, {self.bits} bits"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences that a reader of the figures must know."""
        if not self.without_relevant:
            return self.notes
        if self.without_relevant == self.queries:
            left_out = (
                f"No query has a relevant item in the database: all {self.queries:,} queries were "
                "left out, and no figure is defined. Are both sides labelled alike?"
            )
        else:
            left_out = (
                f"{self.without_relevant:,} of {self.queries:,} queries have nothing relevant in "
                "the database: undefined, and left out of every mean."
            )
        return (left_out, *self.notes)

    def __str__(self) -> str:
        width = max(len(name) for name in self.figures)
        lines = [self.title, self.protocol, ""]
        for figure in self.figures.values():
            line = f"{figure.name:<{width}}  {figure.spelled}"
            if figure.tied:
                line += f"  (ties could make it {figure.range_of_ties})"
            lines.append(line)
        return "\n".join([*lines, *(["", *self.remarks] if self.remarks else [])])

    def to_dict(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            "database": self.database,
            "bits": self.bits,
            "protocol": self.protocol,
            "without_relevant": self.without_relevant,
            "notes": list(self.notes),
            "figures": {
                f.name: {
                    "mean": _null_undefined(f.value),
                    "worst": _null_undefined(f.worst),
                    "best": _null_undefined(f.best),
                    "definition": f.definition,
                }
                for f in self.figures.values()
            },
        }

    def to_json(self) -> str:
        """The report as JSON; an undefined figure (no query has anything relevant) is null."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes, name: str = "the text") -> Report:
        """Read what ``to_json`` wrote; a refusal calls it ``name``.

        >>> report = Report({"mAP": Figure("mAP", 0.5, 0.4, 0.6, "AP")}, "By hand.", 3, 9, 16)
        >>> Report.from_json(report.to_json()).figures["mAP"].worst
        0.4
        """
        try:
            facts = json.loads(text)
            figures = {}
            for row, f in facts["figures"].items():
                mean, worst, best = (
                    math.nan if f[part] is None else float(f[part])
                    for part in ("mean", "worst", "best")
                )
                figures[str(row)] = Figure(str(row), mean, worst, best, str(f["definition"]))
            bits = facts["bits"]
            return Report(
                figures=figures,
                protocol=str(facts["protocol"]),
                queries=int(facts["queries"]),
                database=int(facts["database"]),
                bits=None if bits is None else int(bits),
                without_relevant=int(facts["without_relevant"]),
                notes=tuple(map(str, facts["notes"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            _check.refuse(f"{name} is not a report in JSON, as rankbits evaluate --json prints it.")

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with a row for each figure: name, value, worst, best. Needs the
        package pandas."""
        try:
            import pandas
        except ImportError:
            _check.refuse("to_frame needs the package pandas: pip install pandas.")
        rows = [(f.name, f.value, f.worst, f.best) for f in self.figures.values()]
        return pandas.DataFrame(rows, columns=["name", "value", "worst", "best"])

    def to_markdown(self) -> str:
        lines = [
            f"**{self.title}.** {self.protocol}",
            "",
            "| metric | value | ties could make it | definition |",
            "|---|---|---|---|",
        ]
        for f in self.figures.values():
            lines.append(f"| {f.name} | {f.spelled} | {f.range_of_ties} | {f.definition} |")
        return "\n".join([*lines, *(x for r in self.remarks for x in ("", r))])

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: a bar for each figure with the range of its ties."""
        text = _page.render_report(
            title=self.title, protocol=self.protocol, remarks=self.remarks, figures=self.figures
        )
        write_whole(path, lambda file: file.write(text.encode()))


def _null_undefined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
