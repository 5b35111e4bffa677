"""Speed of float questions over packed codes, compared with Hamming search and faiss.

    python benchmarks/speed_questions.py [--quick] [--save] [--bits 256]

The yardstick is our own search by Hamming distance over the same codes (a Hamming pass). faiss
stores as many bytes for an item as we do: RaBitQ one bit a dimension beside its two factors, PQ
four bits a subspace. RaBitQ's queries have four bits too. Ours are checked against their definition
first.

Questions with a decoder are timed twice: the scan alone, and a whole search of an index, which also
decodes the items that the scan lists. For them the index keeps 4 more bytes a code in memory, the
inverse length.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from _bench import Bench, agree, compare
from rankbits import HammingIndex
from rankbits.kernels import hamming_topk, inverse_lengths, lay_out, question_topk, words
from rankbits.kernels.reference.questions import sum_planes
from rankbits.types import Codes, Decoder, Questions

SEED = 0
K = 10
FACTORS = 8  # bytes beside the bits of a RaBitQ code
TRAINED = 20_000  # rows that PQ learns from: its speed does not depend on them
DIM = 384  # of the embeddings that codes stand for
GROUP = 4  # bits that choose one vector of a decoder
SIGNS = 2.0 * (np.arange(1 << GROUP)[:, None] >> np.arange(GROUP)[::-1] & 1) - 1  # of each value
PASSES = "rankbits, Hamming distance of codes"
SCAN = "rankbits, int4, scan with lengths"
DECODED = "rankbits, int4, index with a decoder"


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
    sums = sum_planes(laid_out.planes[0], laid_out.signs[0], prepared.words)
    wanted = np.sort(sums)[:K].astype(np.float32) * laid_out.steps[0]
    agree({"definition": wanted, "rankbits": question_topk(asked[:1], prepared, K).distances[0]})


def make_decoder(bits: int) -> Decoder:
    """Vectors that are a linear map of their bits, and somewhat more."""
    draw = np.random.default_rng(SEED + 2)
    atoms = SIGNS @ draw.standard_normal((bits // GROUP, GROUP, DIM))
    atoms += 0.3 * draw.standard_normal(atoms.shape)
    return Decoder(atoms / np.sqrt(bits * DIM), 0.1 * draw.standard_normal(DIM))


def ask_decoder(decoder: Decoder, vectors: np.ndarray) -> Questions:
    """Questions of vectors (n, dim), with the weights of the decoder's linear part."""
    directions = (SIGNS.T @ decoder.atoms / len(SIGNS)).reshape(-1, decoder.dim)
    middle = decoder.centre + decoder.atoms.mean(axis=1).sum(axis=0)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return Questions(vectors @ directions.T, vectors @ middle, decoder, vectors)


def check_decoded(asked: Questions, database: Codes, index: HammingIndex) -> None:
    """The distances of what an index finds are the cosine distances to the decoded codes."""
    assert asked.decoder is not None and asked.vectors is not None
    found = index.search(asked[:1], K)
    embeddings = asked.decoder.decode(database[found.ids[0]])
    cosines = embeddings @ asked.vectors[0] / np.linalg.norm(embeddings, axis=1)
    agree({"definition": 1 - cosines, "rankbits": found.distances[0]}, 1e-5)


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
    decoder = make_decoder(bits)
    decoded = ask_decoder(decoder, draw.standard_normal((100, DIM), np.float32))
    own = HammingIndex(bits).add(database)
    check(plain, database)
    check_decoded(decoded, database, own)
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
                SCAN: partial(question_topk, decoded[:count], prepared, K, inverses=inverses),
                DECODED: partial(own.search, decoded[:count], K),
                "rankbits, int8": partial(
                    question_topk, plain[:count], prepared, K, precision="int8"
                ),
            }
            for name, (index, width) in peers.items():
                calls[name] = partial(index.search, floats[:count, :width].copy(), K)
            timings = compare(calls, work=count, unit="queries", repeats=options.repeats)
            title = f"top-{K} of {rows:,} x {bits} bits, queries: {count}, threads: {threads}"
            facts = {"bits": bits, "n": rows, "queries": count, "threads_used": threads}
            held = dict.fromkeys(calls, rows * bits / 8e6)
            held |= dict.fromkeys((SCAN, DECODED), rows * (bits + 32) / 8e6)
            held |= {n: peers[n][0].code_size * rows / 1e6 for n in peers}
            bench.report(title, timings, (PASSES, "rankbits, int4"), megabytes=held, **facts)
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
