"""Hamming search and counting on a GPU: checked against the CPU's kernels, then timed.

The peer is what a user of plain torch would write: products of +-1 in half precision on the tensor
cores, then torch.topk. It needs the (queries x database) matrix, a part at a time, and leaves ties
in any order.

    python benchmarks/speed_hamming_cuda.py --save --large
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch

import rankbits as rb
from _bench import Bench, compare, measure, peak_cuda
from rankbits.kernels import hamming_counts, hamming_topk, words


def plain(queries: torch.Tensor, database: torch.Tensor, k: int) -> torch.Tensor:
    """Distances of +-1 rows by half-precision products, and torch's topk, 100 queries at a time."""
    bits = database.shape[1]
    parts = []
    for part in queries.split(100):
        distances = (bits - part @ database.T) / 2
        parts.append(distances.topk(k, largest=False).values)
    return torch.cat(parts)


def fetched(queries: torch.Tensor, database: torch.Tensor, k: int) -> torch.Tensor:
    return plain(queries, database, k).cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--large", action="store_true", help="100,000,000 codes too")
    options = parser.parse_args()
    bench = Bench("speed_hamming_cuda", threads=torch.get_num_threads(), seed=0)
    draw = np.random.default_rng(0)

    def codes(rows: int, bits: int) -> rb.Codes:
        return rb.Codes(draw.integers(0, 256, (rows, bits // 8), np.uint8), bits)

    for bits in (64, 256):
        rows, k = 1_000_000, 10
        database = codes(rows, bits)
        here, there = words(database), words(database).on("cuda")
        signs = torch.from_numpy(database.signs()).to("cuda", torch.float16)
        labels = draw.integers(0, 10, rows)
        for queries in (1, 100, 1000, 10_000):
            asked = codes(queries, bits)
            theirs = torch.from_numpy(asked.signs()).to("cuda", torch.float16)
            found = hamming_topk(asked, there, k)
            wanted = hamming_topk(asked, here, k)
            assert np.array_equal(found.ids, wanted.ids)
            assert np.array_equal(found.distances, plain(theirs, signs, k).cpu().numpy())
            peers = {
                "rankbits cuda": partial(hamming_topk, asked, there, k),
                "torch half products + topk": partial(fetched, theirs, signs, k),
                "rankbits cpu": partial(hamming_topk, asked, here, k),
            }
            timings = compare(peers, work=queries, unit="queries", repeats=5)
            bench.report(
                f"top {k} of {rows:,} x {bits} bits, {queries:,} queries", timings,
                ("rankbits cuda",), bits=bits, queries=queries,
            )  # fmt: skip
        own = draw.integers(0, 10, 1000)
        asked = codes(1000, bits)
        one = hamming_counts(asked, there, own, labels)
        assert np.array_equal(one, hamming_counts(asked, here, own, labels))
        counts = {
            "rankbits cuda": partial(hamming_counts, asked, there, own, labels),
            "rankbits cpu": partial(hamming_counts, asked, here, own, labels),
        }
        timings = compare(counts, work=1000, unit="queries", repeats=5)
        title = f"counts by distance and class, 1,000 x {rows:,} x {bits} bits"
        bench.report(title, timings, ("rankbits cuda",), bits=bits)
    if options.large:
        rows = 100_000_000
        there = words(codes(rows, 64)).on("cuda")
        asked = codes(1000, 64)
        timing = measure(
            "rankbits cuda", lambda: hamming_topk(asked, there, 10), work=1000, unit="queries",
            repeats=3,
        )  # fmt: skip
        held = {"rankbits cuda": peak_cuda(lambda: hamming_topk(asked, there, 10)) / 1e6}
        bench.report(f"top 10 of {rows:,} x 64 bits", [timing], megabytes=held)
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
