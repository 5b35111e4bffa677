"""Speed of float questions over packed codes, beside a Hamming search and faiss at equal bytes.

    python benchmarks/speed_questions.py [--quick] [--save] [--bits 256]

The yardstick is our own search by Hamming distance over the same codes (a Hamming pass). faiss
stores as many bytes for an item: RaBitQ one bit a dimension beside its two factors, PQ four bits a
subspace. RaBitQ's queries have four bits too. Ours are checked against their definition first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from _bench import Bench, agree, compare
from rankbits.kernels import hamming_topk, inverse_lengths, lay_out, question_topk, words
from rankbits.kernels.reference.questions import plane_sums
from rankbits.types import Codes, Decoder, Questions

SEED = 0
K = 10
FACTORS = 8  # bytes beside the bits of a RaBitQ code
TRAINED = 20_000  # rows that PQ learns from: its speed does not depend on them
PASSES = "rankbits, Hamming distance of codes"


def embeddings(rows: int, dim: int) -> Iterator[np.ndarray]:
    draw = np.random.default_rng(SEED)
    for start in range(0, rows, TRAINED):
        yield draw.standard_normal((min(TRAINED, rows - start), dim), np.float32)


def faiss_indexes(faiss: Any, rows: int, bits: int) -> dict[str, tuple[Any, int]]:
    """Name -> (index, dim), each with ``bits`` of storage for an item."""
    dim = bits - 8 * FACTORS
    makers: dict[str, tuple[Callable[[], Any], int]] = {
        "faiss IndexRaBitQ": (lambda: faiss.IndexRaBitQ(dim, faiss.METRIC_INNER_PRODUCT), dim),
        "faiss IndexRaBitQFastScan": (
            lambda: faiss.IndexRaBitQFastScan(dim, faiss.METRIC_INNER_PRODUCT),
            dim,
        ),
        "faiss IndexPQFastScan": (
            lambda: faiss.IndexPQFastScan(bits, bits // 4, 4, faiss.METRIC_INNER_PRODUCT),
            bits,
        ),
    }
    made = {}
    for name, (make, width) in makers.items():
        index = make()
        index.train(next(embeddings(TRAINED, width)))
        for part in embeddings(rows, width):
            index.add(part)
        if hasattr(index, "qb"):
            index.qb = 4
        made[name] = (index, width)
    return made


def check(asked: Questions, database: Codes) -> None:
    """Integer sums of ours equal the definition, for one question."""
    laid_out, prepared = lay_out(asked[:1]), words(database)
    assert laid_out.planes is not None and laid_out.signs is not None
    assert laid_out.steps is not None
    sums = plane_sums(laid_out.planes[0], laid_out.signs[0], prepared.words)
    wanted = np.sort(sums)[:K].astype(np.float32) * laid_out.steps[0]
    agree({"definition": wanted, "rankbits": question_topk(asked[:1], prepared, K).distances[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the database")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    parser.add_argument("--bits", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    bits, rows = options.bits, 100_000 if options.quick else 1_000_000

    bench = Bench("speed_questions", threads=2, seed=SEED)
    draw = np.random.default_rng(SEED + 1)
    database = Codes(
        np.concatenate([np.packbits(part > 0, axis=1) for part in embeddings(rows, bits)]), bits
    )
    prepared = words(database)
    floats = draw.standard_normal((100, bits), np.float32)
    plain = Questions(floats)
    decoder = Decoder(draw.standard_normal((bits, 2, bits)))
    directed = Questions(floats, decoder=decoder, vectors=floats)
    check(plain, database)
    inverses = inverse_lengths(decoder, prepared)
    timing = compare({"rankbits": lambda: inverse_lengths(decoder, prepared)}, repeats=3)
    bench.report(f"lengths of {rows:,} codes of {bits} bits, made once", timing, bits=bits, n=rows)
    faiss = bench.peer("faiss", "faiss-cpu")
    peers = faiss_indexes(faiss, rows, bits) if faiss else {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        if faiss:
            faiss.omp_set_num_threads(threads)
        for count in (1, 100):
            calls: dict[str, Callable[[], Any]] = {
                PASSES: partial(hamming_topk, plain[:count].codes(), prepared, K),
                "rankbits, int4": partial(question_topk, plain[:count], prepared, K),
                "rankbits, int4, with lengths": partial(
                    question_topk, directed[:count], prepared, K, inverses=inverses
                ),
                "rankbits, int8": partial(
                    question_topk, plain[:count], prepared, K, precision="int8"
                ),
            }
            for name, (index, width) in peers.items():
                calls[name] = partial(index.search, floats[:count, :width].copy(), K)
            timings = compare(calls, work=count, unit="queries", repeats=options.repeats)
            title = f"top-{K} of {rows:,} x {bits} bits, queries: {count}, threads: {threads}"
            facts = {"bits": bits, "n": rows, "queries": count, "threads_used": threads}
            held = dict.fromkeys(calls, rows * bits / 8000000.0)
            held |= {n: peers[n][0].code_size * rows / 1e6 for n in peers}
            bench.report(title, timings, (PASSES, "rankbits, int4"), megabytes=held, **facts)
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
