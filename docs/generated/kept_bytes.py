"""The page on what bytes keep of embeddings, from the rows of its benchmark."""

from __future__ import annotations

import statistics
from pathlib import Path

from generated.drawing import Panel, lines
from generated.rows import RESULTS, Row, origin, read, table

NAMES = {"scifact": "SciFact, 5,183 abstracts", "clinc150": "CLINC150, 6,000 short texts"}
OURS = "Reconstruction, groups of 4"
DRAWN = {
    OURS: "Reconstruction",
    "Projection, float questions": "Projection, floats",
    "Projection, Hamming": "Projection, Hamming",
    "faiss OPQ": "faiss OPQ",
    "faiss RaBitQ of principal components": "faiss RaBitQ",
}
OPENING = """# What bytes keep

A vector of 384 floats has 1,536 bytes. How much of its neighbourhood do 8, 16, 32, 48 or 96 bytes
keep, and by which quantizer? Recall is the share of a query's 10 nearest items (by cosine of the
floats) that are among the 10 which the codes put first. Nothing but the code is stored for an
item; queries keep their floats unless the line says Hamming. Everything is fitted to the database
alone. "Scaled" peers are decoded and scaled to unit length: like ours, their lengths follow from
the codes, though their own indexes do not do it. RaBitQ's 8 bytes of factors and TurboQuant's 4
count.
"""
ADVICE = """
**Which to take.** `rb.Reconstruction(bits)` with float questions, where the queries' floats are
at hand and an index of ours searches: it is ahead at every number of bytes below.
`rb.Projection(bits)` where plain Hamming distance must do: its codes are signs of a linear map,
work in any engine, fold into a network, and gain from float questions, too.

```python
import rankbits as rb

quantizer = rb.Reconstruction(bits=256).fit(embeddings)
index = rb.HammingIndex(256).add(quantizer.encode(embeddings))
results = index.search(quantizer.ask(queries), k=10)      # float queries, bits of items
```

A `Reconstruction` learns vectors for every 4 bits; with few rows it also learns these rows by
heart. Codes of new items are therefore worth less than those of the rows it was fitted to, until
there are some ten rows for each of its `bits / 4 * 16` vectors; `group=1` has 4 times fewer.
"""


def mean_and_deviation(values: list[float]) -> str:
    """``.812 ± .004``; one value alone has no deviation."""
    mean = f"{statistics.mean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def select(rows: list[Row], name: str, method: str, size: int, figure: str) -> list[float]:
    return [
        row[figure]
        for row in rows
        if (row["set"], row["method"], row["bytes"]) == (name, method, size) and figure in row
    ]


def bytes_table(rows: list[Row], name: str, figure: str = "recall_10") -> str:
    """A line for each method, a column for each number of bytes: mean and deviation over seeds."""
    sizes = sorted({row["bytes"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows if row["set"] == name))
    body = []
    for method in methods:
        cells = [select(rows, name, method, size, figure) for size in sizes]
        if any(cells):
            body.append([method, *(mean_and_deviation(cell) if cell else "" for cell in cells)])
    return table(["", *(f"{size} bytes" for size in sizes)], body)


def draw(rows: list[Row]) -> str:
    panels = []
    for name, title in NAMES.items():
        curves = {}
        for method, said in DRAWN.items():
            points = [
                (float(size), statistics.mean(found))
                for size in sorted({row["bytes"] for row in rows})
                if (found := select(rows, name, method, size, "recall_10"))
            ]
            if points:
                curves[said] = points
        if curves:
            panels.append(Panel(title.split(",")[0], lines=curves))
    return lines(panels, "recall of the 10 nearest by bytes an item", "bytes", "recall")


def page(path: Path = RESULTS / "quality_bits.jsonl") -> str:
    """The whole page."""
    rows = read(path)
    text = OPENING + "\n" + draw(rows) + "\n" + ADVICE
    for name, title in NAMES.items():
        text += f"\n## {title}\n\nRecall at 10:\n\n{bytes_table(rows, name)}\n"
        text += (
            f"\nThe 10 nearest among the first 100:\n\n{bytes_table(rows, name, 'recall_100')}\n"
        )
        if any("ndcg_kept" in row for row in rows if row["set"] == name):
            kept = bytes_table(rows, name, "ndcg_kept")
            text += f"\nShare of the floats' nDCG@10 that is kept:\n\n{kept}\n"
        text += f"\nSeconds to fit:\n\n{bytes_table(rows, name, 'fit_s')}\n"
    return text + f"\n{origin(rows[0])}\n"
