"""Speed of search, counting and average precision over packed codes, compared with peers.

    python benchmarks/speed_hamming.py [--quick] [--save] [--bits 64 256 1024]

The yardstick is a *bare pass*: xor and popcount of every (query, code) pair, summed and nothing
else, in blocks for the first-level cache and with threads like our kernels. A kernel needs the time
beyond it for its answer. Every peer's answer is checked before anything is timed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
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
FLIPPED = 0.3  # of the bits of a code around its class: a retrieval task neither easy nor blind


def random_codes(rng: np.random.Generator, n: int, bits: int) -> Codes:
    return Codes(rng.integers(0, 256, (n, bits // 8), dtype=np.uint8), bits)


@njit(nogil=True)
def _sum(q, x):
    total = np.uint64(0)
    for j in range(x.shape[0]):
        total += popcount(q ^ x[j])
    return total


@njit(nogil=True)
def _pass(queries, x, first, last, totals):
    """totals[i] += distances of query i to x[:, first:last]; a block stays while queries go by."""
    size = SLICE // x.shape[0]
    for start in range(first, last, size):
        stop = min(start + size, last)
        for i in range(queries.shape[0]):
            for w in range(x.shape[0]):
                totals[i] += _sum(queries[i, w], x[w, start:stop])


_pool = ThreadPoolExecutor(THREADS)


def bare_pass(queries: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sums of distances, (Q,), of queries (Q, W) to x (W, n); threads share one query by rows."""
    n, alone = x.shape[1], len(queries) == 1
    bounds = np.linspace(0, n, THREADS + 1).astype(int) if alone else [0, n]
    tiles = np.array_split(queries, min(len(queries), 8 * THREADS))
    parts = [(q, x, a, b) for q in tiles for a, b in pairwise(bounds)]
    totals = [np.zeros(len(part[0]), np.uint64) for part in parts]
    list(_pool.map(lambda part, total: _pass(*part, total), parts, totals))
    return np.sum(totals, axis=0) if alone else np.concatenate(totals)


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
    sums = hamming(queries[:few], prepared).sum(axis=1, dtype=np.int64)
    agree({"rankbits": sums, "bare pass": bare_pass(bare[:few], prepared.words)})
    agree({"rankbits": sums[:1], "bare pass of one query": bare_pass(bare[:1], prepared.words)})
    agree({"rankbits": wanted[:few], "numpy": numpy_topk(bare[:few], rows, 10)})
    if faiss:
        index = faiss.IndexBinaryFlat(bits)
        index.add(database.packed)
        agree({"rankbits": wanted, "faiss": index.search(queries.packed, 10)[0]})

    for count in (many, 1):
        q, b = queries[:count], bare[:count]
        peers = {
            "rankbits": lambda q=q: hamming_topk(q, prepared, 10),
            "rankbits, layout included": lambda q=q: hamming_topk(q, database, 10),
            "bare pass": lambda b=b: bare_pass(b, prepared.words),
        }
        if faiss:
            peers["faiss IndexBinaryFlat"] = lambda q=q: index.search(q.packed, 10)
        work = dict.fromkeys(peers, count * n) | {"numpy argpartition": min(few, count) * n}
        peers["numpy argpartition"] = lambda b=b: numpy_topk(b[:few], rows, 10)
        title = f"top-10 of {n:,} codes of {bits} bits, queries: {count:,}"
        timings, against = compare(peers, work=work, unit="pairs"), ("rankbits", "bare pass")
        bench.report(title, timings, against, bits=bits, n=n, queries=count, k=10)


def counting(bench: Bench, bits: int, n: int, many: int) -> None:
    """Sections 2 and 4: a whole ranking as counts, against only summing its distances."""
    rng = np.random.default_rng(SEED)
    database, queries = words(random_codes(rng, n, bits)), random_codes(rng, many, bits)
    bare = queries.packed.view(np.uint64)
    classes = [rng.integers(0, CLASSES, rows) for rows in (many, n)]
    sets = [rng.random((rows, LABELS)) < 0.1 for rows in (many, n)]

    by_class = partial(hamming_counts, queries, database, *classes)
    by_shared = partial(hamming_counts, queries, database, *sets, relevance="count")
    sums, distances = bare_pass(bare, database.words), hamming(queries[:1], database)[0]
    same = (classes[1] == classes[0][0]).astype(int)
    shared = (sets[1] & sets[0][0]).sum(axis=1)
    for name, counts, grades in (("classes", by_class(), same), ("sets", by_shared(), shared)):
        agree({"bare pass": sums, name: counts.sum(axis=2) @ np.arange(bits + 1)})
        plain = np.zeros(counts.shape[1:], np.int64)
        np.add.at(plain, (distances, grades), 1)
        agree({"numpy": plain, name: counts[0]})
    peers = {
        "bare pass": lambda: bare_pass(bare, database.words),
        f"rankbits, {CLASSES} classes": by_class,
        f"rankbits, {LABELS} labels, shared ones counted": by_shared,
    }
    timings = compare(peers, work=many * n, unit="pairs")
    title = f"counts over {n:,} codes of {bits} bits, queries: {many:,}"
    bench.report(title, timings, ("bare pass",), bits=bits, n=n, queries=many)


def argsort_ap(queries: Any, database: Any, query_labels: Any, labels: Any) -> np.ndarray:
    """AP as hashing scripts do it, from +-1 float matrices: ties fall as argsort lets them."""
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
    """Refuse an AP, of the first queries at least, that no order of the ties could give."""
    worst, best = (average_precision(ranking, ties=t)[: len(values)] for t in ("worst", "best"))
    if not np.all((worst - 1e-5 <= values) & (values <= best + 1e-5)):
        raise AssertionError("A peer's average precision lies outside what ties allow.")


def labelled(rng: np.random.Generator, centres: np.ndarray, n: int) -> tuple[Codes, np.ndarray]:
    """Codes that are their class's centre with some bits flipped."""
    labels = rng.integers(0, CLASSES, n)
    bits = centres[labels] ^ (rng.random((n, centres.shape[1])) < FLIPPED)
    return Codes(np.packbits(bits, axis=1), centres.shape[1]), labels


def precision(bench: Bench, n: int, many: int, few: int, fewest: int) -> None:
    """Section 3: average precision of whole rankings. The script computes its distances as we do,
    the other peers are given them."""
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
    if torchmetrics := bench.peer("torchmetrics.functional.retrieval", "torchmetrics"):
        one, truth = torchmetrics.retrieval_average_precision, torch.from_numpy(relevant)

        def each(values: torch.Tensor) -> list[float]:
            return [one(v, t).item() for v, t in zip(values, truth, strict=True)]

        negative, positive = torch.from_numpy(scores), torch.from_numpy(64 + scores)
        within_ties(ranking, each(positive))
        peers["torchmetrics, given distances"] = lambda: each(positive)
        bench.note(
            "mean of torchmetrics retrieval_average_precision", n=n, bits=64, queries=few,
            of_64_minus_distance=np.mean(each(positive)).item(),
            of_minus_distance=np.mean(each(negative)).item(), rankbits=ours(few).mean().item(),
        )  # fmt: skip
    if metrics := bench.peer("sklearn.metrics", "scikit-learn"):

        def step() -> list[float]:
            return list(map(metrics.average_precision_score, relevant, scores))

        agree({"definition": step_ap(ranking), "scikit-learn": step()}, tolerance=1e-9)
        peers["scikit-learn, given distances"] = step
    if pytrec_eval := bench.peer("pytrec_eval", "pytrec_eval-terrier"):
        names, grades = [str(j) for j in range(n)], relevant.astype(int)

        def tables() -> tuple[Any, dict[str, dict[str, float]]]:
            judged, run = (
                {names[i]: dict(zip(names, rows[i].tolist(), strict=True)) for i in range(fewest)}
                for rows in (grades, scores)
            )
            return pytrec_eval.RelevanceEvaluator(judged, {"map"}), run

        def judge(evaluator: Any, run: Any) -> list[float]:
            found = evaluator.evaluate(run)
            return [found[name]["map"] for name in names[:fewest]]

        prepared = tables()
        within_ties(ranking, judge(*prepared))
        peers["pytrec_eval, given tables"] = lambda: judge(*prepared)
        peers["pytrec_eval, tables included"] = lambda: judge(*tables())
    work = {name: fewest if "pytrec" in name else few for name in peers} | {"rankbits": many}
    timings = compare(peers, work=work, unit="queries")
    title = f"average precision over {n:,} codes of 64 bits"
    bench.report(title, timings, ("rankbits", "rankbits, few queries"), bits=64, n=n)

    blind, exact = [argsort_ap(*signs, own, labels).mean()], ours(many)
    for _ in range(5):
        order = rng.permutation(n)
        blind.append(argsort_ap(signs[0], signs[1][order], own, labels[order]).mean())
        shuffled = average_precision(rank_codes(queries, database[order], own, labels[order]))
        agree({"average precision": exact, "that of a shuffled database": shuffled})
    bench.note(
        "mAP as the database is given and after shuffling it 5 times", n=n, bits=64, queries=few,
        argsort_given=blind[0].item(), argsort_min=min(blind).item(),
        argsort_max=max(blind).item(), rankbits_always=exact[:few].mean().item(),
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
    if any(bits < 64 or bits % 64 for bits in arguments.bits):
        parser.error("--bits must be multiples of 64")
    scale = 10 if arguments.quick else 1

    bench = Bench("speed_hamming", threads=THREADS, seed=SEED)
    if faiss := bench.peer("faiss", "faiss-cpu"):
        faiss.omp_set_num_threads(THREADS)
    if pools := bench.peer("threadpoolctl", "threadpoolctl"):  # the BLAS behind numpy
        pools.threadpool_limits(THREADS)
    for bits in arguments.bits:
        many = 1000 if bits <= 64 else 200
        search(bench, faiss, bits, 1_000_000 // scale, many)
        counting(bench, bits, 59_000 // scale, many)
    if 64 in arguments.bits:
        precision(bench, 59_000 // scale, many=1000, few=20, fewest=5)
        n, many = 1_000_000 // scale, 10_000 // scale
        extra, value = peak_memory(_evaluation, _evaluate, n, many)
        bench.note(
            f"peak memory of evaluating {many:,} x {n:,} codes, beyond codes and labels",
            queries=many, n=n, bits=64, mib=round(extra / 2**20, 1), mean_ap=value,
            mib_of_a_byte_for_each_distance=round(many * n / 2**20),
        )  # fmt: skip
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
