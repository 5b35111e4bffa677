"""Does training by the ranking metric raise the metric on images the network never saw?

A two-layer network learns from 400 of the digits that come with the package, once by each loss,
with the same first weights and the same order of batches. It is judged on the other 1,397 digits:
300 queries against 1,097 database images, by tie-aware mAP over the whole ranking (AP_T, the mean
over all orders of equal distances). The tie-aware losses train 16 bits. FastAP trains 16 floats,
which are judged by their squared distances, and again by their signs, as bits without a loss for
bits.

This does not show how the losses compare at their best: all have the same setting, and nothing was
tuned. Nor does it show retrieval of unseen classes: all ten digits are in every part.

    python examples/train_by_ranking.py                  # about a minute on one core
    python examples/train_by_ranking.py --seeds 1 --epochs 20 --out somewhere

It writes train_by_ranking.json and train_by_ranking.svg, and fails unless each loss raises AP_T on
the held-out images with every seed. The picture needs matplotlib: pip install matplotlib.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import rankbits as rb
from rankbits.data.digits import digits
from rankbits.losses import FastAP, TieAwareAP, TieAwareNDCG

SETTING = {"train": 400, "queries": 300, "bits": 16, "hidden": 128, "batch": 100, "adam_rate": 1e-3}
EVERY = 5  # epochs between judgements
FLOATS, SIGNS = "FastAP floats", "FastAP signs"
LOSSES = {
    "FastAP": FastAP(),
    **{f"AP {form}": TieAwareAP(form) for form in ("simple", "relaxed", "exact")},
    **{f"NDCG {form}": TieAwareNDCG(form) for form in ("simple", "exact")},
}
COLOURS = {"FastAP": "#444444", "AP": "#0b66c3", "NDCG": "#c8520a", "raw": "#888888"}
DASHES = {"simple": "-", "relaxed": ":", "exact": "--", "floats": "-", "signs": "--", "pixels": "-"}


class Split:
    """Three parts of the digits that share no image; the last two are only ever judged."""

    def __init__(self, seed: int) -> None:
        images, labels = digits()
        order = np.random.default_rng(seed).permutation(len(images))
        inputs = torch.from_numpy(images.reshape(len(images), -1)[order]).float() / 16
        cuts = SETTING["train"], SETTING["train"] + SETTING["queries"]
        self.train, self.queries, self.database = inputs.tensor_split(cuts)
        parts = torch.from_numpy(labels[order]).tensor_split(cuts)
        self.labels, self.query_labels, self.database_labels = parts

    def by_floats(self, queries: torch.Tensor, database: torch.Tensor) -> float:
        """AP_T by the squared distances of unit rows."""
        queries, database = (torch.nn.functional.normalize(rows) for rows in (queries, database))
        relevant = self.query_labels[:, None] == self.database_labels
        ranking = rb.rank(2 - 2 * queries @ database.T, relevant)
        return float(np.nanmean(rb.average_precision(ranking)))

    def by_signs(self, queries: torch.Tensor, database: torch.Tensor) -> float:
        """AP_T by the Hamming distances of the signs."""
        codes = rb.pack(queries), rb.pack(database)
        return rb.evaluate(*codes, self.query_labels, self.database_labels, k=())["mAP"]

    def judge(self, name: str, model: torch.nn.Module) -> dict[str, float]:
        with torch.no_grad():
            outputs = model(self.queries), model(self.database)
        if name == "FastAP":
            return {FLOATS: self.by_floats(*outputs), SIGNS: self.by_signs(*outputs)}
        return {name: self.by_signs(*outputs)}


def train(name: str, seed: int, marks: list[int]) -> tuple[list[dict[str, float]], list[float]]:
    """Held-out AP_T at the epochs ``marks``, and the milliseconds of every step."""
    split, loss, hidden = Split(seed), LOSSES[name], SETTING["hidden"]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, SETTING["bits"])
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=SETTING["adam_rate"])
    found, times = [split.judge(name, model)], []
    for epoch in range(1, marks[-1] + 1):
        for rows in torch.randperm(SETTING["train"]).split(SETTING["batch"]):
            begin = time.perf_counter()
            value = loss(model(split.train[rows]), split.labels[rows])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            times.append(1e3 * (time.perf_counter() - begin))
        if epoch in marks:
            found.append(split.judge(name, model))
    return found, times


def text(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def provenance(seeds: int, epochs: int) -> dict[str, object]:
    cpu, packages = Path("/proc/cpuinfo"), ("rankbits", "torch", "numpy", "numba", "matplotlib")
    named = re.search(r"model name\s*: (.*)", cpu.read_text() if cpu.exists() else "")
    return {
        "command": f"python examples/train_by_ranking.py --seeds {seeds} --epochs {epochs}",
        "seeds": list(range(seeds)),
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
        ).stdout.strip(),
        "cpu": named[1] if named else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def draw(result: dict, path: Path) -> None:
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "rankbits"  # the same figures give the same file
    figure = Figure(figsize=(8.6, 5), layout="constrained")
    axes, epochs, tables = figure.subplots(), result["epochs"], dict(result["held_out_ap"])
    tables["raw pixels"] = [[value] * len(epochs) for value in result["raw_pixels"]]
    ends = {name: [row[-1] for row in table] for name, table in tables.items()}
    after = {name: np.mean(end) for name, end in sorted(ends.items(), key=lambda e: np.mean(e[1]))}
    last, right, heights = epochs[-1], 1.06 * epochs[-1], [-1.0]
    for mean in after.values():
        heights.append(max(mean, heights[-1] + 0.036))  # labels keep a line's distance
    shift = np.mean(np.subtract(heights[1:], list(after.values())))
    for (name, mean), height in zip(after.items(), heights[1:] - shift, strict=True):
        family, form = name.split()
        line = {"color": COLOURS[family], "linestyle": DASHES[form]}
        axes.plot(epochs, np.mean(tables[name], axis=0), **line)
        axes.plot([last, right], [mean, height], linewidth=0.7, **line)
        axes.text(right, height, f" {name}  {text(ends[name])}", color=line["color"], va="center")
    bits = [mean for name, mean in after.items() if name.startswith(("AP", "NDCG"))]
    title = "16 bits trained by tie-aware losses rank unseen images at mAP {:.2f} to {:.2f};\n"
    title += "FastAP's 16 floats at {:.2f}, the signs of those floats at {:.2f}"
    axes.set_title(title.format(min(bits), max(bits), after[FLOATS], after[SIGNS]), loc="left")
    axes.set(xlim=(0, 1.4 * last), ylim=(0.2, 1), xlabel="epochs over 400 training images")
    axes.set_ylabel(f"held-out tie-aware mAP, mean over seeds ({len(result['seeds'])})")
    axes.set_xticks(epochs[:: max(1, len(epochs) // 4)])
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, last)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many (3)")
    parser.add_argument("--epochs", type=int, default=80, help="passes over the 400 images (80)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="a folder")
    given = parser.parse_args()
    torch.set_num_threads(1)  # small batches gain nothing from more
    if min(given.seeds, given.epochs) < 1:
        sys.exit("--seeds and --epochs must be at least 1.")
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("The picture needs matplotlib: pip install matplotlib.")

    seeds, curves, steps = range(given.seeds), {}, {}
    marks = [*range(0, given.epochs, EVERY), given.epochs]
    for name in LOSSES:
        runs, times = zip(*(train(name, seed, marks) for seed in seeds), strict=True)
        shares = np.percentile(np.concatenate(times), (20, 50, 80)).round(2).tolist()
        steps[name] = dict(zip(("p20", "median", "p80"), shares, strict=True))
        for curve in runs[0][0]:
            curves[curve] = table = [[round(found[curve], 4) for found in run] for run in runs]
            ends = " -> ".join(text([row[at] for row in table]) for at in (0, -1))
            print(f"{curve:14s} {ends}   {shares[1]:.1f} ms a step", flush=True)
    result = {
        "what": "tie-aware mAP of held-out digits (whole ranking), a row a seed, an entry a mark",
        **provenance(given.seeds, given.epochs),
        "setting": SETTING,
        "raw_pixels": [round(s.by_floats(s.queries, s.database), 4) for s in map(Split, seeds)],
        "epochs": marks,
        "held_out_ap": curves,
        "after": {name: text([row[-1] for row in table]) for name, table in curves.items()},
        "milliseconds_a_step": steps,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "train_by_ranking.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, given.out / "train_by_ranking.svg")
    fallen = [name for name, table in curves.items() if not all(row[-1] > row[0] for row in table)]
    if fallen:
        sys.exit(f"Training did not raise held-out AP_T with every seed: {', '.join(fallen)}.")
    print(f"Each raised held-out AP_T with every seed; raw pixels {text(result['raw_pixels'])}.")


if __name__ == "__main__":
    main()
