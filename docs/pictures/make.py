"""The pictures of the ideas, from computations with rankbits: ``python docs/pictures/make.py``.

Each function draws one picture and returns the numbers it shows; they stand in the file as its
description, where a test compares them with what is computed. One
thread and fixed seeds: the same picture every time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch

import rankbits as rb
from rankbits.data.digits import digits

HERE = Path(__file__).parent
# Okabe and Ito's colours, told apart by all eyes; grey prints lighter than either
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
STYLE = {
    "svg.hashsalt": "rankbits",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "hatch.linewidth": 0.6,
}
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def split(dim: int = 64) -> Data:
    """Digits as ``dim`` principal components: 300 queries and 1,497 others, with labels."""
    images, labels = digits()
    order = np.random.default_rng(0).permutation(len(images))
    x = images.reshape(len(images), 64).astype(np.float64)[order]
    centred = x - x[300:].mean(0)
    directions = np.linalg.svd(centred[300:], full_matrices=False)[2]
    # the sign of a direction is the solver's choice: its largest entry is made positive
    largest = directions[np.arange(64), np.abs(directions).argmax(1)]
    reduced = centred @ (directions * np.sign(largest)[:, None])[:dim].T
    y = labels[order]
    return reduced[:300], reduced[300:], y[:300], y[300:]


def ties() -> dict[str, Any]:
    """One ranking as levels, and what the order inside them can make of mAP."""
    queries, database, wanted, labels = split()
    counts = rb.rank_codes(
        rb.pack(queries[:1, :16]), rb.pack(database[:, :16]), wanted[:1], labels
    ).counts[0]
    lengths = (4, 8, 12, 16, 24, 32, 48)
    figures = []
    for bits in lengths:
        pair = rb.pack(queries[:, :bits]), rb.pack(database[:, :bits])
        figures.append(rb.evaluate(*pair, wanted, labels, k=10).figures["mAP"])
    left, right = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")[1]
    levels = np.arange(len(counts))
    left.bar(levels, counts[:, 1], color=BLUE, hatch="////", edgecolor="white", label="relevant")
    left.bar(
        levels, counts[:, 0], bottom=counts[:, 1], color=GREY, edgecolor="white", label="others"
    )
    left.set(
        xlabel="Hamming distance from the query",
        ylabel="digits at this distance",
        title="One query, 16 bits: a ranking of 17 levels",
    )
    left.set_xticks(levels[::2])
    left.legend(loc="upper left")
    places = np.arange(len(lengths))
    worst, mean, best = (
        np.array([getattr(f, n) for f in figures]) for n in ("worst", "value", "best")
    )
    right.bar(places, best - worst, 0.5, worst, color=ORANGE, alpha=0.45, label="worst to best")
    right.plot(places, mean, "o", color="black", label="mean over all orders")
    right.set_xticks(places, lengths)
    right.set(xlabel="bits", ylabel="mAP", ylim=(0, 1), title="What the order of ties can report")
    right.legend(loc="upper right")
    return {
        "lengths": lengths, "worst": worst.tolist(), "mean": mean.tolist(), "best": best.tolist()
    }  # fmt: skip


def _trained(loss: Callable[..., torch.Tensor], data: Data, steps: list[int]) -> list[float]:
    """Held-out tie-aware mAP of 16 bits of one linear layer, after each of ``steps``."""
    queries, database, wanted, labels = (torch.from_numpy(part) for part in data)
    scale = database.std()
    layer = torch.nn.Linear(64, 16, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(16, 64, generator=generator, dtype=torch.float64) / 8)
        layer.bias.zero_()
    optimiser = torch.optim.Adam(layer.parameters(), 0.01)
    found = []
    for step in range(max(steps) + 1):
        if step in steps:
            with torch.no_grad():
                pair = rb.pack(layer(queries / scale)), rb.pack(layer(database / scale))
            found.append(rb.evaluate(*pair, wanted.numpy(), labels.numpy(), k=10)["mAP"])
        rows = torch.randperm(len(database), generator=generator)[:200]
        optimiser.zero_grad()
        loss(layer(database[rows] / scale), labels[rows]).backward()
        optimiser.step()
    return found


def rank() -> dict[str, Any]:
    """What one exchange of neighbours costs by place, and four losses from one start."""
    relevance = np.zeros((31, 42), int)
    relevance[:, ::4] = 1
    for row in range(1, 31):
        first = row - 1
        relevance[row, [first, first + 1]] = relevance[0, [first, first + 1]][::-1]
    distances = np.tile(np.arange(42), (31, 1))
    precision = rb.average_precision(rb.rank(distances, relevance))
    changed = np.flatnonzero((relevance != relevance[0]).any(1))
    change = np.abs(precision[changed] - precision[0])
    steps = [0, 5, 10, 20, 40, 60, 80, 120, 160, 200]
    data = split()
    kinds = {
        "tie-aware AP": (rb.losses.TieAwareAP(), BLUE, "o-"),
        "MIHash (histograms)": (rb.losses.MIHash(), GREEN, "s-"),
        "CEL (pairs)": (rb.losses.CEL(bits=16, classes=10), ORANGE, "^--"),
        "DPSH (pairs)": (rb.losses.DPSH(), GREY, "d:"),
    }
    curves = {name: _trained(loss, data, steps) for name, (loss, _, _) in kinds.items()}
    left, right = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")[1]
    left.bar(changed, change, color=BLUE, width=0.7)
    left.set(
        xlabel="place of the exchange (with the next item)",
        ylabel="change of average precision",
        title="One exchange: what the place is worth",
    )
    for name, (_, colour, line) in kinds.items():
        right.plot(steps, curves[name], line, color=colour, label=name, markersize=5)
    right.set(
        xlabel="steps, batches of 200",
        ylabel="mAP of held-out queries",
        title="One start, four losses: digits, 16 bits",
    )
    right.legend(loc="lower right")
    return {"change": dict(zip(changed.tolist(), change.tolist(), strict=True)), "curves": curves}


def rotate() -> dict[str, Any]:
    """Four clusters that signs cut in two until they are turned, and digits by each rotation."""
    drawn = np.random.default_rng(1)
    angles = np.repeat(np.arange(4) * np.pi / 2, 40) + drawn.normal(0, 0.22, 160)
    points = np.stack([np.cos(angles), np.sin(angles)], 1)
    groups = np.repeat(np.arange(4), 40)
    turned = rb.H2Q().fit(points).transform(points)
    turned = turned / np.linalg.norm(turned, axis=1, keepdims=True)
    judged = [
        rb.evaluate(rb.pack(p), rb.pack(p), groups, groups, k=10, exclude_self=True)["mAP"]
        for p in (points, turned)
    ]
    queries, database, wanted, labels = split(16)
    quantizers = {
        "Sign": rb.Sign(),
        "RandomRotation": rb.RandomRotation(),
        "ITQ": rb.ITQ(),
        "H2Q": rb.H2Q(),
        "SupervisedRotation": rb.SupervisedRotation(),
    }
    values = {}
    for name, quantizer in quantizers.items():
        quantizer.fit(database, labels)
        pair = quantizer.encode(queries), quantizer.encode(database)
        values[name] = rb.evaluate(*pair, wanted, labels, k=10)["mAP"]
    floats = rb.evaluate(queries, database, wanted, labels, k=10)["mAP"]
    axes = plt.subplots(
        1, 3, figsize=(10, 3.5), layout="constrained", width_ratios=(1, 1, 1.5)
    )[1]  # fmt: skip
    titles = "signs as they are", "signs after a rotation"
    for axis, shown, title, value in zip(axes, (points, turned), titles, judged, strict=False):
        for group, (colour, mark) in enumerate(
            zip((BLUE, ORANGE, GREEN, "black"), "os^x", strict=True)
        ):
            part = shown[groups == group]
            axis.plot(*part.T, mark, color=colour, markersize=4, alpha=0.8)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set(aspect="equal", xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), xticks=[], yticks=[])
        axis.set_title(f"{title}: mAP {value:.2f}")
        axis.spines[:].set_visible(False)
    names = list(values)
    axes[2].barh(names, list(values.values()), color=BLUE, height=0.6)
    axes[2].axvline(floats, color=ORANGE, linestyle="--", label=f"floats {floats:.3f}")
    for place, value in enumerate(values.values()):
        axes[2].text(0.01, place, f"{value:.3f}", va="center", color="white")
    axes[2].invert_yaxis()
    axes[2].set(xlabel="mAP", xlim=(0, 0.8), title="Digits, 16 dimensions to 16 bits")
    axes[2].legend(loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return {"toy": judged, "floats": floats, **values}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _rounded(part) for name, part in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, (list, tuple)) else round(value, 4)


PICTURES = {"ties": ties, "rank": rank, "rotate": rotate}


def draw(name: str, folder: Path = HERE) -> dict[str, Any]:
    """Write ``folder/name.svg`` and return its numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with matplotlib.rc_context(STYLE):
            numbers = PICTURES[name]()
            said = {"Date": None, "Description": json.dumps(_rounded(numbers))}
            plt.savefig(folder / f"{name}.svg", metadata=said)
            plt.close()
    finally:
        torch.set_num_threads(threads)
    return numbers


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PICTURES:
        print(chosen, draw(chosen))
