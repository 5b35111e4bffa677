"""The page on what bytes keep of embeddings, from the rows of its benchmark."""

from __future__ import annotations

import re
import statistics
from itertools import product
from pathlib import Path

from generated.drawing import Panel, lines
from generated.rows import RESULTS, Row, origin, read, table

NAMES = {
    "scifact": "SciFact, 5,183 abstracts",
    "clinc150": "CLINC150, 6,000 short texts",
    "cifar10": "CIFAR-10, 5,000 images",
}
NEW = {
    "scifact, new items": "SciFact's new items: 2,592 abstracts, fitted to the others",
    "clinc150, new items": "CLINC150's new items: 3,000 short texts, fitted to the others",
}
OURS = "Reconstruction"  # groups of 8 bits in codes of at most 16 bytes, else of 4
OWN = ("Reconstruction", "Projection", "ITQ", "random rotation", "signs")
DRAWN = {
    OURS: "Reconstruction",
    "Projection, float questions": "Projection, floats",
    "Projection, Hamming": "Projection, Hamming",
    "faiss OPQ": "faiss OPQ",
    "faiss RaBitQ of principal components": "faiss RaBitQ",
}
OPENING = """# What bytes keep

A vector of 384 floats has 1,536 bytes. This page shows how many of its neighbours are still found
with 8 to 96 bytes, and by which quantizer.

Recall is the share of a query's 10 nearest items, by cosine of the floats, that are among the first
10 by codes. Only the code of an item is stored. Queries keep their floats unless the line says
Hamming. All quantizers are fitted to the database alone. "Scaled" peers are decoded and scaled to
unit length. Like the lengths of ours, theirs follow from the codes, but their own indexes do not
scale. RaBitQ's 8 bytes of factors and TurboQuant's 4 are counted.
"""
ADVICE = """
**Which to take.** Take `rb.Reconstruction(bits)` with float questions if queries have their floats
and an index of rankbits does the search; peers that keep as much are named below. Take
`rb.Projection(bits)` if only Hamming distance is possible: its codes are signs of a linear map,
work in any engine and fold into a network. They gain from float questions too.

```python
import rankbits as rb

quantizer = rb.Reconstruction(bits=256).fit(embeddings)
index = rb.HammingIndex(256).add(quantizer.encode(embeddings))
results = index.search(quantizer.ask(queries), k=10)      # float queries, bits of items
```

A `Reconstruction` learns 16 vectors for every 4 bits, or 256 for every 8 bits in codes of at most
16 bytes, if there are at least as many rows as vectors. From few rows it memorises these rows, so
codes of new items are worse than those of the rows it was fitted to (tables of new items below).
That is also why 16 bytes come near 32 here: 5,000 rows are enough for groups of 8 bits in 16 bytes,
and are memorised by them.
About ten rows for each vector are enough. `rankbits fit` shows what bytes keep of your own
embeddings, measured on rows that were not fitted.
"""
NESTED = """
## Codes within codes

`rb.Reconstruction(256, nested=(64, 128))` makes codes of 32 bytes whose first 8 and first 16 bytes
are codes of their own, with vectors of their own. One index then has both:
`index.search(questions, k=10, coarse=64)` scans the first 8 bytes of all items and sorts the best
200 by all 32 bytes.

The table has recall at 10 for the first bytes of such codes, for codes that were fitted for that
many bytes alone, for the first bits of a `Projection` of 256 bits (which were not made for this),
and for signs of the first dimensions, which is common practice:
"""
FIRST = {
    "Reconstruction of 32 bytes, first bytes": "nested in 32 bytes",
    OURS: "fitted alone",
    "Projection of 32 bytes, first bytes": "first bits of a Projection",
    "signs of the first dimensions, Hamming": "signs of the first dimensions",
}


def name_default(row: Row) -> Row:
    """The row, called as ours where its groups are those that a ``Reconstruction`` has unasked."""
    longest = 8 if row["set"].endswith("new items") else 16  # half of the rows, half of the bytes
    groups = "groups of 8" if row["bytes"] <= longest else "groups of 4"
    return row | {"method": OURS} if row["method"] == f"{OURS}, {groups}" else row


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
    sizes = sorted({row["bytes"] for row in rows if row["set"] == name})
    methods = [m for m in dict.fromkeys(row["method"] for row in rows) if "first" not in m]
    body = []
    for method in methods:
        cells = [select(rows, name, method, size, figure) for size in sizes]
        if any(cells):
            body.append([method, *(mean_and_deviation(cell) if cell else "" for cell in cells)])
    return table(["", *(f"{size} bytes" for size in sizes)], body)


def nested_table(rows: list[Row]) -> str:
    """A line for each set and way to make the first bytes."""
    body = []
    for name, title in NAMES.items():
        for method, said in FIRST.items():
            cells = [select(rows, name, method, size, "recall_10") for size in (8, 16, 32)]
            if any(cells):
                shown = [mean_and_deviation(cell) if cell else "" for cell in cells]
                body.append([title.split(",")[0], said, *shown])
    return table(["", "", "8 bytes", "16 bytes", "32 bytes"], body)


def find_rivals(rows: list[Row]) -> str:
    """A sentence on peers that are ahead of ours, or less than two deviations behind: twice the
    largest deviation over seeds that ours has on a set at any number of bytes."""
    near = []
    sizes = sorted({row["bytes"] for row in rows})
    peers = [m for m in dict.fromkeys(row["method"] for row in rows) if not m.startswith(OWN)]
    for (name, title), method in product((NAMES | NEW).items(), peers):
        ours = {size: select(rows, name, OURS, size, "recall_10") for size in sizes}
        room = 2 * max((statistics.stdev(v) for v in ours.values() if len(v) > 1), default=0.0)
        theirs = {size: select(rows, name, method, size, "recall_10") for size in sizes}
        ahead = [
            str(size)
            for size in sizes
            if ours[size] and theirs[size]
            if statistics.mean(theirs[size]) > statistics.mean(ours[size]) - room
        ]
        if ahead:
            near.append(f"{method} ({re.split('[,:]', title)[0]}, {', '.join(ahead)} bytes)")
    return (
        "Peers that are ahead of ours, or less than two deviations behind: "
        f"{'; '.join(near) or 'none'}. A residual quantizer has 256 vectors for every byte, and "
        "memorises the rows of a small set: at 32 bytes its vectors take 12.6 MB, where the floats "
        "of SciFact take 8.0 MB. Of new items it keeps as much as ours at 8 bytes, and less at 16 "
        "and 32.\n"
    )


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
    rows = [name_default(row) for row in read(path)]
    text = OPENING + "\n" + draw(rows) + "\n" + ADVICE + "\n" + find_rivals(rows)
    text += NESTED + "\n" + nested_table(rows)
    sets = {row["set"] for row in rows}
    for name, title in ((n, t) for n, t in (NAMES | NEW).items() if n in sets):
        text += f"\n## {title}\n\nRecall at 10:\n\n{bytes_table(rows, name)}\n"
        text += (
            f"\nThe 10 nearest among the first 100:\n\n{bytes_table(rows, name, 'recall_100')}\n"
        )
        if any("ndcg_kept" in row for row in rows if row["set"] == name):
            kept = bytes_table(rows, name, "ndcg_kept")
            text += f"\nShare of the floats' nDCG@10 that is kept:\n\n{kept}\n"
        text += f"\nSeconds to fit:\n\n{bytes_table(rows, name, 'fit_s')}\n"
    return text + f"\n{origin(rows[0])}\n"
