"""How well the classical methods rank: 5,000 labelled rows of Fashion-MNIST's pixels.

    python benchmarks/quality_classical.py [--save]

The figures are tie-aware mAP of 1,000 test images against 10,000 training images that no method has
seen, by codes of 16 bits and by float questions, with three seeds. All options have their defaults.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np

import rankbits as rb
from _bench import Bench
from rankbits.papers.neighbours import fit_encoder

ROOT = Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")
THREADS, SEEDS, BITS = 2, (0, 1, 2), 16
ROWS, QUERIES, DATABASE = 5000, 1000, 10_000
METHODS = (rb.SupervisedProjection, rb.BRE, rb.MACHash, rb.FastHash, rb.StructHash)


def read(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels float32 (n, 784) from 0 to 1, and labels, of "train" or "t10k"."""
    folder = ROOT / "fashion-mnist"
    files = (f"{kind}-images-idx3-ubyte.gz", f"{kind}-labels-idx1-ubyte.gz")
    pixels, labels = (gzip.decompress((folder / name).read_bytes()) for name in files)
    rows = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255
    return rows, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="keep the rows in benchmarks/results")
    options = parser.parse_args()
    bench = Bench("quality_classical", threads=THREADS, seed=SEEDS[0])
    (train, labels), (queries, wanted) = read("train"), read("t10k")
    known, marks = train[:ROWS], labels[:ROWS]
    database, others = train[ROWS : ROWS + DATABASE], labels[ROWS : ROWS + DATABASE]
    queries, wanted = queries[:QUERIES], wanted[:QUERIES]

    def judge(asked: rb.Codes | rb.Questions, codes: rb.Codes) -> float:
        return rb.evaluate(asked, codes, wanted, others, only=["mAP"])["mAP"]

    def note(method: str, figures: list[dict[str, float]]) -> None:
        values = {}
        for name in figures[0]:
            column = [figure[name] for figure in figures]
            values[f"{name} mean"] = round(float(np.mean(column)), 4)
            values[f"{name} deviation"] = round(float(np.std(column, ddof=1)), 4)
        bench.note(f"Fashion-MNIST pixels, {BITS} bits", method=method, **values)

    for name in ("lsh", "pca-sign"):
        plain = [fit_encoder(name, known, BITS, seed) for seed in SEEDS]
        note(name, [{"mAP": judge(encode(queries), encode(database))} for encode in plain])
    for method in METHODS:
        figures = []
        for seed in SEEDS:
            begin = time.process_time()
            quantizer = method(BITS, seed=seed).fit(known, marks)
            spent, codes = time.process_time() - begin, quantizer.encode(database)
            asked = {"mAP": quantizer.encode(queries), "mAP by questions": quantizer.ask(queries)}
            values = {name: judge(question, codes) for name, question in asked.items()}
            figures.append(values | {"CPU seconds of a fit": spent})
        note(method.__name__, figures)
        if options.save:  # after each, for all of them take long
            bench.save()


if __name__ == "__main__":
    main()
