"""The table of docs/quantizers.md on photographs of birds, from the rows of its benchmark."""

from __future__ import annotations

from generated.rows import RESULTS, Row, read, table


def _cell(row: Row, part: str) -> str:
    deviation = row.get(f"{part}_deviation")
    return f"{row[part]:.3f}" if deviation is None else f"{row[part]:.3f} ± {deviation:.3f}"


def birds_table() -> str:
    """A line for each way of looking and each method: mAP for seen and for unseen kinds."""
    lines = []
    for row in read(RESULTS / "quality_birds.jsonl"):
        look, _, method = row["title"].partition(" pixels, ")
        lines.append([look, method, _cell(row, "seen"), _cell(row, "unseen")])
    return table(["pixels", "64 bits by", "kinds seen", "kinds not seen"], lines)
