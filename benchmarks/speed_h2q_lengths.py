"""H2Q's Figure 4: times to fit and to encode by code length, with the paper's solver and with ours.

    python benchmarks/speed_h2q_lengths.py [--quick] [--save]

As in the paper, 2,000 rows are fitted and 100,000 encoded, and 20,000 fitted and 1,000,000 encoded.
The rows to fit are principal components of Fashion-MNIST. The paper's solver, 300 epochs of
gradient steps on Householder vectors in batches of 128, is timed once; our solver and encoding are
medians.
"""

from __future__ import annotations

import argparse
import time

import torch

import rankbits as rb
from _bench import Bench, Timing, compare
from speed_quantizers import components

THREADS, SEED = 2, 0
LENGTHS = (16, 32, 48, 64)
SIZES = ((2_000, 100_000), (20_000, 1_000_000))  # rows fitted, rows encoded
PAPER, FAST, ENCODE = "H2Q, the paper's solver", "H2Q", "encode"


def measured(bench: Bench, many: int, coded: int, bits: int, epochs: int, repeats: int) -> None:
    x = components(many, bits)
    begin = time.perf_counter()
    rb.H2Q(solver="sgd", epochs=epochs, seed=SEED).fit(x)
    once = time.perf_counter() - begin
    made = rb.H2Q(seed=SEED).fit(x)
    rows = torch.randn(coded, bits, generator=torch.Generator().manual_seed(SEED)).numpy()
    functions = {FAST: lambda: rb.H2Q(seed=SEED).fit(x), ENCODE: lambda: made.encode(rows)}
    timings = compare(
        functions, work={FAST: many, ENCODE: coded}, unit="rows", repeats=repeats
    )  # fmt: skip
    timings.append(Timing(PAPER, [once], many, "rows", timings[0].others))
    bench.report(
        f"{bits} bits, {many:,} rows fitted, {coded:,} encoded", timings,
        bits=bits, fitted=many, encoded=coded, epochs=epochs,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer epochs, lengths and repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    quick = arguments.quick
    bench = Bench("speed_h2q_lengths", threads=THREADS, seed=SEED)
    for many, coded in SIZES[: 1 if quick else None]:
        for bits in LENGTHS[: 1 if quick else None]:
            measured(bench, many, coded, bits, 3 if quick else 300, 3 if quick else 7)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
