"""Float questions on a GPU: checked against the CPU's kernels, then timed.

The yardstick is the bare product: +-1 codes in half precision times the weights, with the (queries
x database) matrix written and not used. The peer is what a user of plain torch would write: that
product, then torch.topk.

    python benchmarks/speed_questions_cuda.py --save
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch

from _bench import Bench, compare
from rankbits.kernels import hamming_topk, inverse_lengths, question_topk, words
from rankbits.types import Codes, Questions
from speed_questions import DIM, ask_decoder, make_decoder

K = 10
SPLIT = 1000  # queries whose products are in memory at a time


def multiply(queries: torch.Tensor, database: torch.Tensor, out: torch.Tensor) -> None:
    for part in queries.split(SPLIT):
        torch.matmul(part, database.T, out=out[: len(part)])


def multiply_topk(queries: torch.Tensor, database: torch.Tensor, out: torch.Tensor) -> np.ndarray:
    parts = []
    for part in queries.split(SPLIT):
        torch.matmul(part, database.T, out=out[: len(part)])
        parts.append(out[: len(part)].topk(K).indices)
    return torch.cat(parts).cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    bench = Bench("speed_questions_cuda", threads=torch.get_num_threads(), seed=0)
    draw = np.random.default_rng(0)
    rows = options.rows
    for bits in (256, 1024):
        database = Codes(draw.integers(0, 256, (rows, bits // 8), np.uint8), bits)
        here, there = words(database), words(database).on("cuda")
        signs = torch.from_numpy(database.signs()).to("cuda", torch.float16)
        decoder = make_decoder(bits)
        inverses = inverse_lengths(decoder, there)
        lengths_here = inverses.cpu().numpy()  # type: ignore[attr-defined]
        for count in (1, 100, 1000, 10_000):
            floats = draw.standard_normal((count, bits), np.float32)
            plain = Questions(floats)
            decoded = ask_decoder(decoder, draw.standard_normal((count, DIM), np.float32))
            few = slice(0, 100)
            for asked, near in ((plain, None), (decoded, lengths_here)):
                wanted = question_topk(asked[few], here, K, inverses=near)
                found = question_topk(
                    asked[few], there, K, inverses=None if near is None else inverses
                )
                assert np.array_equal(found.ids, wanted.ids)
                assert np.array_equal(found.distances, wanted.distances)
            weights = torch.from_numpy(floats).to("cuda", torch.float16)
            out = torch.empty((min(count, SPLIT), rows), dtype=torch.float16, device="cuda")
            peers = {
                "bare product": partial(multiply, weights, signs, out),
                "rankbits int4": partial(question_topk, plain, there, K),
                "rankbits int4, scan with lengths": partial(
                    question_topk, decoded, there, K, inverses=inverses
                ),
                "rankbits int8": partial(question_topk, plain, there, K, precision="int8"),
                "rankbits Hamming": partial(hamming_topk, plain.codes(), there, K),
                "torch product + topk": partial(multiply_topk, weights, signs, out),
            }
            timings = compare(peers, work=count, unit="queries", repeats=5, cuda=True)
            title = f"top {K} of {rows:,} x {bits} bits, {count:,} questions"
            bench.report(title, timings, ("bare product",), bits=bits, queries=count)
            del out
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
