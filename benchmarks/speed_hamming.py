"""Speed of search, counting and average precision over packed codes, beside their peers.

    python benchmarks/speed_hamming.py [--quick] [--save] [--bits 64 256 1024]

The yardstick is a *bare pass*: xor and popcount of every (query, code) pair, summed and nothing
else, blocked for the first-level cache and threaded like our kernels. What a kernel takes beyond it
is the price of the answer. Every peer's answer is checked before anything is timed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit

from _bench import Bench, agree, compare, peak_memory
from rankbits.kernels import hamming, hamming_counts, hamming_topk, words
from rankbits.kernels.cpu.popcount import popcount
from rankbits.metrics import average_precision, rank_codes
from rankbits.types import Codes

THREADS = 2
SEED = 0
SLICE = 4096  # 64-bit words in a block: 32 KiB
CLASSES = 10
LABELS = 21  # of the multi-hot case, as in NUS-WIDE
FLIPPED = 0.4  # of the bits of a code around its class: a retrieval task neither easy nor blind


def random_codes(rng: np.random.Generator, n: int, bits: int) -> Codes:
    return Codes(rng.integers(0, 256, (n, bits // 8), dtype=np.uint8), bits)


@njit(nogil=True)
def _sum(q, x):
    total = np.uint64(0)
    for j in range(x.shape[0]):
        total += popcount(q ^ x[j])
    return total


@njit(nogil=True)
def _pass(queries, x, totals):
    """totals[i] += the sum of all distances of query i; the block stays while queries go by."""
    size = SLICE // x.shape[0]
    for start in range(0, x.shape[1], size):
        stop = min(start + size, x.shape[1])
        for i in range(queries.shape[0]):
            for w in range(x.shape[0]):
                totals[i] += _sum(queries[i, w], x[w, start:stop])


_pool = ThreadPoolExecutor(THREADS)


def bare_pass(queries: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sums of distances, (Q,), of queries (Q, W) to x (W, n); one query is shared by splitting x."""
    if len(queries) == 1:
        parts = [(queries, p) for p in np.array_split(x, THREADS, axis=1)]
    else:
        parts = [(p, x) for p in np.array_split(queries, min(len(queries), 8 * THREADS))]
    totals = [np.zeros(len(q), np.uint64) for q, _ in parts]
    list(_pool.map(lambda part, total: _pass(*part, total), parts, totals))
    return np.sum(totals, axis=0) if len(queries) == 1 else np.concatenate(totals)


def numpy_topk(queries: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Distances of the k nearest, (Q, k), the short way to write it; rows (n, W)."""
    found = []
    for query in queries:
        distances = np.bitwise_count(rows ^ query).sum(axis=1, dtype=np.uint16)
        found.append(np.sort(distances[np.argpartition(distances, k)[:k]]))
    return np.array(found)


def search(bench: Bench, faiss: Any, bits: int, n: int, many: int) -> None:
    """Sections 1 and 4: the ten nearest of n codes, for many queries and for one."""
    rng = np.random.default_rng(SEED)
    database, queries = random_codes(rng, n, bits), random_codes(rng, many, bits)
    prepared, rows = words(database), database.packed.view(np.uint64)
    bare, wanted = queries.packed.view(np.uint64), hamming_topk(queries, prepared, 10).distances
    few = 3
    agree(
        {
            "rankbits.hamming": hamming(queries[:few], prepared).sum(axis=1, dtype=np.int64),
            "bare pass": bare_pass(bare[:few], prepared.words),
            "bare pass, one query": [bare_pass(q[None], prepared.words)[0] for q in bare[:few]],
        }
    )
    agree({"rankbits": wanted[:few], "numpy": numpy_topk(bare[:few], rows, 10)})
    if faiss:
        index = faiss.IndexBinaryFlat(bits)
        index.add(database.packed)
        agree({"rankbits": wanted, "faiss": index.search(queries.packed, 10)[0]})

    for count in (many, 1):
        q, b = queries[:count], np.ascontiguousarray(bare[:count])
        peers = {
            "rankbits": lambda q=q: hamming_topk(q, prepared, 10),
            "rankbits, layout included": lambda q=q: hamming_topk(q, database, 10),
            "bare pass": lambda b=b: bare_pass(b, prepared.words),
        }
        if faiss:
            peers["faiss IndexBinaryFlat"] = lambda q=q: index.search(q.packed, 10)
        work = dict.fromkeys(peers, count * n)
        if bits == 64:
            peers["numpy argpartition"] = lambda b=b: numpy_topk(b[:few], rows, 10)
            work["numpy argpartition"] = min(few, count) * n
        bench.report(
            f"top-10 of {n:,} codes of {bits} bits, {count:,} quer{'y' if count == 1 else 'ies'}",
            compare(peers, work=work, unit="pairs"),
            against=("rankbits", "bare pass"),
            bits=bits, n=n, queries=count, k=10,
        )  # fmt: skip


def counting(bench: Bench, bits: int, n: int, many: int) -> None:
    """Sections 2 and 4: a whole ranking as counts, against only summing its distances."""
    rng = np.random.default_rng(SEED)
    database, queries = words(random_codes(rng, n, bits)), random_codes(rng, many, bits)
    bare = queries.packed.view(np.uint64)
    classes = [rng.integers(0, CLASSES, rows) for rows in (many, n)]
    sets = [rng.random((rows, LABELS)) < 0.1 for rows in (many, n)]

    def by_class() -> np.ndarray:
        return hamming_counts(queries, database, *classes)

    def by_shared() -> np.ndarray:
        return hamming_counts(queries, database, *sets, relevance="count")

    level = np.arange(bits + 1)
    agree(
        {
            "bare pass": bare_pass(bare, database.words),
            "classes": by_class().sum(axis=2) @ level,
            "shared labels": by_shared().sum(axis=2) @ level,
        }
    )
    distances = hamming(queries[:1], database)[0]
    own = classes[1] == classes[0][0]
    common = (sets[1] & sets[0][0]).sum(axis=1)
    for name, counts, grades in (("classes", by_class(), own), ("sets", by_shared(), common)):
        plain = np.zeros(counts.shape[1:], np.int64)
        np.add.at(plain, (distances, grades.astype(np.int64)), 1)
        agree({"numpy": plain, name: counts[0]})
    timings = compare(
        {
            "bare pass": lambda: bare_pass(bare, database.words),
            f"rankbits, {CLASSES} classes": by_class,
            f"rankbits, {LABELS} labels, shared ones counted": by_shared,
        },
        work=many * n,
        unit="pairs",
    )
    title = f"counts over {n:,} codes of {bits} bits, {many:,} queries"
    bench.report(title, timings, against=("bare pass",), bits=bits, n=n, queries=many)


def argsort_ap(queries: Any, database: Any, query_labels: Any, labels: Any) -> np.ndarray:
    """AP as hashing scripts compute it, from +-1 float matrices: the order of ties is whatever
    argsort makes of the order of the database."""
    found = np.zeros(len(queries))
    for i in range(len(queries)):
        relevant = (labels == query_labels[i]).astype(np.float32)
        distances = 0.5 * (database.shape[1] - np.dot(queries[i], database.T))
        relevant = relevant[np.argsort(distances)]
        count = np.linspace(1, relevant.sum(), int(relevant.sum()))
        tindex = np.asarray(np.where(relevant == 1)) + 1.0
        found[i] = np.mean(count / tindex)
    return found


def step_ap(ranking: Any) -> np.ndarray:
    """AP as scikit-learn defines it, from our counts: each tie at the precision of its end."""
    n, p = np.cumsum(ranking.items, axis=1), np.cumsum(ranking.positives, axis=1)
    return (ranking.positives * p / np.maximum(n, 1)).sum(axis=1) / p[:, -1]


def within_ties(ranking: Any, values: Any) -> None:
    """Refuse an AP that no order of the ties could give."""
    worst, best = (average_precision(ranking, ties=ties) for ties in ("worst", "best"))
    if not np.all((worst - 1e-5 <= values) & (values <= best + 1e-5)):
        raise AssertionError("A peer's average precision lies outside what ties allow.")


def labelled(rng: np.random.Generator, centres: np.ndarray, n: int) -> tuple[Codes, np.ndarray]:
    """Codes that are their class's centre with some bits flipped."""
    labels = rng.integers(0, CLASSES, n)
    bits = centres[labels] ^ (rng.random((n, centres.shape[1])) < FLIPPED)
    return Codes(np.packbits(bits, axis=1), centres.shape[1]), labels


def precision(bench: Bench, n: int, many: int, few: int) -> None:
    """Section 3: average precision of whole rankings; peers other than the script are *given* their
    distances."""
    rng = np.random.default_rng(SEED)
    centres = rng.random((CLASSES, 64)) < 0.5
    (queries, own), (database, labels) = (labelled(rng, centres, rows) for rows in (many, n))
    signs = [codes.signs().astype(np.float32) for codes in (queries[:few], database)]
    scores = -hamming(queries[:few], database).astype(np.float32)
    relevant = own[:few, None] == labels
    ranking = rank_codes(queries[:few], database, own[:few], labels)
    within_ties(ranking, argsort_ap(*signs, own, labels))

    def ours(count: int) -> np.ndarray:
        return average_precision(rank_codes(queries[:count], database, own[:count], labels))

    peers: dict[str, Any] = {
        "rankbits": lambda: ours(many).mean(),
        "rankbits, few queries": lambda: ours(few).mean(),
        "argsort, as in hashing scripts": lambda: argsort_ap(*signs, own, labels).mean(),
    }
    work = {"rankbits": many}
    if torchmetrics := bench.peer("torchmetrics.functional.retrieval", "torchmetrics"):
        truth = torch.from_numpy(relevant)

        def their_ap(values: torch.Tensor) -> list[float]:
            one = torchmetrics.retrieval_average_precision
            return [one(v, t).item() for v, t in zip(values, truth, strict=True)]

        negative, positive = torch.from_numpy(scores), torch.from_numpy(64 + scores)
        within_ties(ranking, their_ap(positive))
        peers["torchmetrics, given distances"] = lambda: their_ap(positive)
        bench.note(
            "torchmetrics retrieval_average_precision, mean of the same queries",
            queries=few, n=n, bits=64,
            of_64_minus_distance=float(np.mean(their_ap(positive))),
            of_minus_distance=float(np.mean(their_ap(negative))),
            rankbits=float(ours(few).mean()),
        )  # fmt: skip
    if metrics := bench.peer("sklearn.metrics", "scikit-learn"):

        def step() -> list[float]:
            pairs = zip(relevant, scores, strict=True)
            return [metrics.average_precision_score(t, s) for t, s in pairs]

        agree({"definition": step_ap(ranking), "scikit-learn": step()}, tolerance=1e-9)
        peers["scikit-learn, given distances"] = step
    if pytrec_eval := bench.peer("pytrec_eval", "pytrec-eval-terrier"):
        names = [str(j) for j in range(n)]

        def tables() -> tuple[Any, Any]:
            qrel = [dict(zip(names, r.tolist(), strict=True)) for r in relevant.astype(int)]
            run = [dict(zip(names, s.tolist(), strict=True)) for s in scores]
            by_name = [dict(zip(names, rows, strict=False)) for rows in (qrel, run)]
            return pytrec_eval.RelevanceEvaluator(by_name[0], {"map"}), by_name[1]

        evaluator, run = tables()
        found = evaluator.evaluate(run)
        within_ties(ranking, [found[name]["map"] for name in names[:few]])
        peers["pytrec_eval, given tables"] = lambda: evaluator.evaluate(run)
        peers["pytrec_eval, tables included"] = lambda: (lambda e, r: e.evaluate(r))(*tables())
    timings = compare(peers, work=dict.fromkeys(peers, few) | work, unit="queries", repeats=5)
    title = f"average precision over {n:,} codes of 64 bits, time for each query"
    bench.report(title, timings, against=("rankbits", "rankbits, few queries"), bits=64, n=n)

    blind, exact = [argsort_ap(*signs, own, labels).mean()], ours(many)
    for _ in range(5):
        order = rng.permutation(n)
        blind.append(argsort_ap(signs[0], signs[1][order], own, labels[order]).mean())
        shuffled = rank_codes(queries, database[order], own, labels[order])
        agree({"rankbits": exact, "rankbits, database shuffled": average_precision(shuffled)})
    bench.note(
        "mAP of the same codes after shuffling the database 5 times",
        queries=few, n=n, bits=64,
        argsort_as_given=float(blind[0]), argsort_min=float(min(blind)),
        argsort_max=float(max(blind)), rankbits_always=float(exact[:few].mean()),
    )  # fmt: skip


def _evaluation(n: int, many: int) -> tuple[Any, ...]:
    """The codes and labels whose evaluation is measured, with every kernel compiled."""
    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(SEED)
    sides = [random_codes(rng, rows, 64) for rows in (many, n)]
    labels = [rng.integers(0, CLASSES, rows) for rows in (many, n)]
    _evaluate((sides[0][:10], sides[1][:10_000], labels[0][:10], labels[1][:10_000]))
    return (*sides, *labels)


def _evaluate(state: tuple[Any, ...]) -> float:
    return float(average_precision(rank_codes(*state)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the database")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 256, 1024])
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1

    bench = Bench("speed_hamming", threads=THREADS, seed=SEED)
    faiss = bench.peer("faiss", "faiss-cpu")
    if faiss:
        faiss.omp_set_num_threads(THREADS)
    for bits in arguments.bits:
        many = 1000 if bits <= 64 else 200
        search(bench, faiss, bits, 1_000_000 // scale, many)
        counting(bench, bits, 59_000 // scale, many)
    if 64 in arguments.bits:
        precision(bench, 59_000 // scale, 1000, 20)
        n, many = 1_000_000 // scale, 10_000 // scale
        extra, value = peak_memory(_evaluation, _evaluate, n, many)
        bench.note(
            f"peak memory of evaluating {many:,} x {n:,} codes of 64 bits, beyond codes and labels",
            queries=many, n=n, bits=64, mebibytes=round(extra / 2**20, 1), mean_ap=value,
            distance_matrix_mebibytes=round(many * n / 2**20),
        )  # fmt: skip
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
