"""How well ``rankbits train FOLDER`` ranks photographs of kinds it has seen and has not seen.

    python benchmarks/quality_birds.py BIRDS QUERIES UNSEEN --save

BIRDS, QUERIES and UNSEEN are folders of photographs with a folder for each kind: photographs to
learn from, new ones of the same kinds, and ones of other kinds. For the figures of the README they
come from CUB-200-2011: classes 1 to 20 with 30 photographs each (the first by file name), the rest
of those classes, and all of classes 21 to 40.

Codes of 64 bits are fitted to features of a frozen EfficientNet-lite0 (ImageNet weights), at 320
and 224 pixels as in ``rankbits train``, or at 224 alone. The figures are tie-aware mAP of QUERIES
against BIRDS, and of UNSEEN among themselves.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench
from rankbits.data.folders import read_examples
from rankbits.encoder.frozen import LARGER, SMALLER
from rankbits.train.body import make_body
from rankbits.train.embed import embed

NETWORK = "efficientnet-lite0"
LOOKS = {f"{LARGER} and {SMALLER}": (LARGER, SMALLER), str(SMALLER): (SMALLER, None)}
METHODS: dict[str, Callable[[int], Any]] = {
    "Projection": lambda seed: rb.Projection(64, seed=seed),
    "SupervisedRotation": lambda seed: rb.SupervisedRotation(64, seed=seed),
    "SupervisedProjection": lambda seed: rb.SupervisedProjection(64, seed=seed),
    "SupervisedProjection, share=1": lambda seed: rb.SupervisedProjection(64, share=1.0, seed=seed),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs=3, help="birds, queries, unseen")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    asked = parser.parse_args()
    bench = Bench("quality_birds", threads=asked.threads, seed=asked.seeds[0])
    parts = [read_examples(folder) for folder in asked.folders]
    labels = [part.labels for part in parts]
    for look, (side, smaller) in LOOKS.items():
        body = make_body(NETWORK, side, smaller=smaller)
        begin = time.perf_counter()
        birds, queries, unseen = (embed(body.network, p, body.view).embeddings for p in parts)
        embedding = time.perf_counter() - begin
        seen = rb.evaluate(queries, birds, labels[1], labels[0], k=1)["mAP"]
        new = rb.evaluate(unseen, unseen, labels[2], labels[2], k=1, exclude_self=True)["mAP"]
        bench.note(f"{look} pixels, floats by cosine", seen=seen, unseen=new, seconds=embedding)
        for name, make in METHODS.items():
            found, took = [], []
            for seed in asked.seeds:
                begin = time.perf_counter()
                encode = make(seed).fit(birds, labels[0]).encode
                took.append(time.perf_counter() - begin)
                codes = encode(unseen)
                found.append([
                    rb.evaluate(encode(queries), encode(birds), labels[1], labels[0], k=1)["mAP"],
                    rb.evaluate(codes, codes, labels[2], labels[2], k=1, exclude_self=True)["mAP"],
                ])  # fmt: skip
            mean, deviation = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
            bench.note(
                f"{look} pixels, {name}",
                seen=mean[0], unseen=mean[1], seen_deviation=deviation[0],
                unseen_deviation=deviation[1], seeds=len(found), seconds=float(np.median(took)),
            )  # fmt: skip
    if asked.save:
        bench.save()


if __name__ == "__main__":
    main()
