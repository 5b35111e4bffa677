"""How much a supervised rotation changes when nothing that matters has changed.

    python benchmarks/spread_rotation.py FOLDER --make fashion-mnist cifar10
    python benchmarks/spread_rotation.py FOLDER --save
    python tests/machines.py python benchmarks/spread_rotation.py FOLDER --save

The figure is mAP of unseen queries. Codes are fitted again and again: with other seeds, as if on
another machine (instruction set and threads, see ``tests/machines.py``), and with another hundredth
of the rows left out. The data are the digits of ``rankbits quickstart``, 16 bits, and Fashion-MNIST
and CIFAR-10 as 128 principal components of an ImageNet network's features (``--make``:
EfficientNet-lite0 at 128 x 128, minutes on a GPU), 32 bits. These are fitted on the first 1,000,
5,000 and 20,000 training images, and 1,000 test images are searched among the other 9,000. Each
machine adds its rows to those of the others; ``--label`` says which version is measured.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankbits as rb
from _bench import Bench
from quality_quantizers import SETTINGS, images
from rankbits.data.digits import digits
from rankbits.models import make_backbone

SIZES = (1000, 5000, 20_000)
SEEDS = range(5)
LEFT_OUT = 0.01
Job = tuple[str, Path, int, str, int]  # data, folder, rows, source of variation, its number


@torch.no_grad()
def make(folder: Path, name: str) -> None:
    """Write 128 principal components of the network's features, of training and test images."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = make_backbone("efficientnet-lite0", "imagenet").to(device).eval()

    def features(pixels: np.ndarray) -> torch.Tensor:
        parts = []
        for part in torch.tensor(pixels).split(500):
            part = part.to(device).float().expand(-1, 3, -1, -1) / 255
            large = torch.nn.functional.interpolate(part, size=128, mode="bilinear")
            parts.append(net(large.clamp(0, 1)).double().cpu())
        return torch.cat(parts)

    x, y, test, test_y = images(name)
    x, test = features(x[: max(SIZES)]), features(test)
    mean = x.mean(dim=0)
    directions = torch.linalg.eigh((x - mean).T @ (x - mean))[1].flip(1)[:, :128]
    scale = ((x - mean) @ directions).std()
    train, other = (((rows - mean) @ directions / scale).half().numpy() for rows in (x, test))
    labels = {"train_labels": y[: max(SIZES)], "test_labels": test_y}
    np.savez(folder / f"features-{name}.npz", train=train, test=other, **labels)


def read(folder: Path, name: str, many: int) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Rows to fit, queries and database, the labels of each, and the number of bits."""
    if name == "digits":
        pixels, labels = digits()
        order = np.random.default_rng(0).permutation(len(pixels))
        x = pixels.reshape(len(pixels), -1)[order] / 16
        x = x - x[300:].mean(axis=0)
        x = (x @ np.linalg.svd(x[300:], full_matrices=False)[2][:16].T).astype(np.float32)
        y = labels[order]
        return [x[300:], x[:300], x[300:]], [y[300:], y[:300], y[300:]], 16
    held = np.load(folder / f"features-{name}.npz")
    train, test = held["train"][:many].astype(np.float32), held["test"].astype(np.float32)
    y = held["test_labels"]
    labels = [held["train_labels"][:many], y[:1000], y[1000:]]
    return [train, test[:1000], test[1000:]], labels, 32


def fit(job: Job) -> dict[str, Any]:
    """mAP after one fit."""
    name, folder, many, source, number = job
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    (x, queries, database), (y, *marks), bits = read(folder, name, many)
    kept = np.arange(len(x))
    if source == "rows":
        left = np.random.default_rng(number).permutation(len(x))[: round(LEFT_OUT * len(x))]
        kept = np.delete(kept, left)
    seed = number if source == "seed" else 0
    made = rb.SupervisedRotation(bits, seed=seed).fit(x[kept], y[kept])
    ranking = rb.rank_codes(made.encode(queries), made.encode(database), *marks)
    value = float(np.nanmean(rb.average_precision(ranking)))
    return {"data": name, "rows": len(x), "bits": bits, "source": source, "number": number,
            "mAP": value, "chosen": made.chosen_}  # fmt: skip


def jobs(folder: Path, machine: str | None) -> Iterator[Job]:
    for name, many in [("digits", 0), *((n, many) for n in SETTINGS for many in SIZES)]:
        yield name, folder, many, "machine", 0
        if machine is None:  # once is enough for what does not depend on the machine
            yield from ((name, folder, many, "seed", seed) for seed in SEEDS)
            yield from ((name, folder, many, "rows", draw) for draw in SEEDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the features")
    parser.add_argument("--make", nargs="+", choices=tuple(SETTINGS), default=[])
    parser.add_argument("--label", default="this version", help="what is measured")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time")
    parser.add_argument("--save", action="store_true", help="add to benchmarks/results")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.make:
        make(asked.folder, name)
    if asked.make:
        return
    machine = os.environ.get("RANKBITS_MACHINE")
    threads = int(os.environ.get("OMP_NUM_THREADS", 1))
    bench = Bench("spread_rotation", threads=threads, seed=0)
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        for row in pool.map(fit, jobs(asked.folder, machine)):
            bench.rows.append({"label": asked.label, "machine": machine or "as it is", **row})
            print(json.dumps(bench.rows[-1]), flush=True)
    if asked.save:
        bench.add()


if __name__ == "__main__":
    main()
