"""Are tables cheaper to search if correlated bits are dealt to different parts?

    python benchmarks/deal_bits.py FEATURES.npy ... [--save] [--rows 100000] [--bits 64]

Codes are made of real embeddings, repeated with noise, as in ``speed_tables.py``. Three orders of
their bits are compared: as the quantizer made them, shuffled (three seeds), and dealt. Dealing
takes the most correlated bits first and gives each to the part where the squares of its
correlations sum to least. The cost is what ``Tables`` estimates for a query (about nanoseconds); no
clock is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import rankbits as rb
from _bench import Bench
from rankbits.kernels import backend, cut_parts, make_tables, words
from speed_tables import SEED, THREADS, K, draw, flip_chances

QUERIES = 200
SAMPLE = 20_000  # codes by which bits are correlated


def deal(bits: np.ndarray, lengths: list[int]) -> np.ndarray:
    """The order in which the bits (n, b) fill parts of these lengths."""
    correlations = np.nan_to_num(np.corrcoef(bits.T)) ** 2
    np.fill_diagonal(correlations, 0)
    parts: list[list[int]] = [[] for _ in lengths]
    for bit in np.argsort(-correlations.max(axis=1)).tolist():
        open_parts = [p for p, length in zip(parts, lengths, strict=True) if len(p) < length]
        min(open_parts, key=lambda part: correlations[bit, part].sum()).append(bit)
    return np.concatenate([np.array(part) for part in parts])


def places_of_parts(parts: np.ndarray) -> np.ndarray:
    """Where in an unpacked code the bits of each part stand: words hold bytes from the lowest."""
    places = []
    for word, low, length, _ in parts.astype(int).tolist():
        places += [64 * word + 8 * (bit // 8) + 7 - bit % 8 for bit in range(low, low + length)]
    return np.array(places)


def cost_of(database: rb.Codes, queries: rb.Codes, order: np.ndarray) -> np.ndarray:
    """What each query costs when the bits stand in this order."""

    def reorder(codes: rb.Codes) -> rb.Codes:
        bits = np.unpackbits(codes.packed, axis=1, count=codes.bits)
        return rb.Codes(np.packbits(bits[:, order], axis=1), codes.bits)

    tables = make_tables(words(reorder(database)), timed=False)
    rows, anything = np.ascontiguousarray(words(reorder(queries)).words.T), np.empty(0, bool)
    anything.flags.writeable = False
    search = backend.load("cpu", "tables").tables_topk
    return search(rows, tables.arrays, anything, K, tables.bits, np.inf, tables.prices)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--save", action="store_true", help="add to benchmarks/results")
    a = parser.parse_args()
    bench = Bench("deal_bits", threads=THREADS, seed=SEED)
    features = np.concatenate([np.load(path) for path in a.features]).astype(np.float32)
    source = flip_chances(features, a.bits)
    database, queries = draw(0, source, a.rows, a.bits), draw(1, source, QUERIES, a.bits)
    parts = cut_parts(a.bits, a.rows)
    dealt = np.empty(a.bits, np.int64)
    sample = np.unpackbits(database.packed[:SAMPLE], axis=1, count=a.bits)
    dealt[places_of_parts(parts)] = deal(sample, parts[:, 2].astype(int).tolist())
    orders = {"as made": np.arange(a.bits), "dealt": dealt}
    for seed in range(3):
        orders[f"shuffled {seed}"] = np.random.default_rng(seed).permutation(a.bits)
    costs = {name: cost_of(database, queries, order) for name, order in orders.items()}
    title = f"cost of the ten nearest of {a.rows:,} codes of {a.bits} bits"
    for name, cost in costs.items():
        mean, ratio = float(cost.mean()), float(cost.mean() / costs["as made"].mean())
        facts = {"n": a.rows, "bits": a.bits, "features": [path.name for path in a.features]}
        bench.note(f"{title}, {name}", mean=round(mean), beside_as_made=round(ratio, 3), **facts)
    if a.save:
        bench.add()


if __name__ == "__main__":
    main()
