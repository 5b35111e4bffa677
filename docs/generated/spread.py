"""The table of docs/quantizers.md that says how far a supervised rotation moves, from its rows."""

from __future__ import annotations

from generated.rows import RESULTS, Row, read, table

SOURCES = {
    "seed": "other seeds",
    "machine": "other machines",
    "rows": "1 % of the rows left out",
}
NAMES = {"digits": "digits", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def spread(rows: list[Row]) -> str:
    """Mean of the mAP values of some fits, and how far apart the highest and the lowest are."""
    values = [row["mAP"] for row in rows]
    return f"{sum(values) / len(values):.3f}, {max(values) - min(values):.4f}"


def spread_table() -> str:
    """A line for each set of rows and each source of variation, before and now."""
    rows = read(RESULTS / "spread_rotation.jsonl")
    lines = []
    for data, name in NAMES.items():
        for many in sorted({row["rows"] for row in rows if row["data"] == data}):
            for source, title in SOURCES.items():
                cells = [f"{name}, {many:,} rows", title]
                for label in ("before", "after"):
                    fits = [
                        row
                        for row in rows
                        if (row["data"], row["rows"], row["source"], row["label"])
                        == (data, many, source, label)
                    ]
                    cells += [str(len(fits)), spread(fits)]
                lines.append(cells)
    return table(["fitted to", "what varies", "fits", "before", "fits", "now"], lines)
