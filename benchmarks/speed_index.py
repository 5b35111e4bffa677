"""Speed of the indexes compared with peers: search, filters, writes, opening, reranking.

    python benchmarks/speed_index.py [--quick] [--save] [--only PART ...] [--large]
        [--embeddings FILE.npz]

Every peer's answer is checked before anything is timed. ``--large`` adds 100,000,000 codes of 64
bits (800 MB on the disk) and the memory that a search of them needs. ``--embeddings`` names a file
with the arrays ``database`` and ``queries``, for reranking in addition to made clusters.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankbits as rb
from _bench import Bench, Timing, agree, compare, measure, peak_memory
from rankbits.indexes import FileIndex, HammingIndex, Rerank, quantize_int8
from rankbits.kernels import hamming_topk, hamming_within, words

THREADS = 2
SEED = 0
K = 10
PEERS = ("rankbits HammingIndex", "kernel alone")


def random_codes(rng: np.random.Generator, n: int, bits: int = 64) -> rb.Codes:
    return rb.Codes(rng.integers(0, 256, (n, bits // 8), dtype=np.uint8), bits)


def near_codes(rng: np.random.Generator, codes: rb.Codes, flips: int) -> rb.Codes:
    """Codes with ``flips`` bits of each changed: what a search for near duplicates asks."""
    bits = codes.signs() > 0
    for _ in range(flips):
        rows = np.arange(len(bits))
        bits[rows, rng.integers(0, codes.bits, len(bits))] ^= True
    return rb.pack(bits)


def search(bench: Bench, faiss: Any, usearch: Any, n: int, many: int) -> None:
    """The ten nearest, for a batch and for one query."""
    rng = np.random.default_rng(SEED)
    database, queries = random_codes(rng, n), random_codes(rng, many)
    index, laid_out = HammingIndex(64).add(database), words(database)
    wanted = index.search(queries, K).distances
    few = 20
    if faiss:
        flat = faiss.IndexBinaryFlat(64)
        flat.add(database.packed)
        agree({"rankbits": wanted, "faiss": flat.search(queries.packed, K)[0]})

    def exact(packed: np.ndarray) -> Any:
        kind = usearch.MetricKind.Hamming
        return usearch.search(database.packed, packed, K, kind, exact=True, threads=THREADS)

    for rows in (many, 1):
        q = queries[:rows]
        peers: dict[str, Any] = {
            "rankbits HammingIndex": lambda q=q: index.search(q, K),
            "kernel alone": lambda q=q: hamming_topk(q, laid_out, K),
        }
        work = dict.fromkeys([*peers, "faiss IndexBinaryFlat"], rows)
        if faiss:
            peers["faiss IndexBinaryFlat"] = lambda q=q: flat.search(q.packed, K)
        if usearch:
            part = q.packed[:few]
            got = exact(part).distances.reshape(-1, K)
            agree({"rankbits": wanted[: len(part)], "usearch": got})
            work["usearch exact"] = len(part)
            peers["usearch exact"] = lambda part=part: exact(part)
        timings = compare(peers, work=work, unit="queries")
        title = f"top-{K} of {n:,} codes of 64 bits, queries: {rows:,}"
        bench.report(title, timings, PEERS, n=n, bits=64, queries=rows)


def filters(bench: Bench, n: int) -> None:
    """One query among a share of the rows, given as ids and as a mask; and with rows removed."""
    rng = np.random.default_rng(SEED)
    index, query = HammingIndex(64).add(random_codes(rng, n)), random_codes(rng, 1)
    worn = HammingIndex(64).add(index.codes())
    worn.remove(rng.permutation(n)[: n // 5])
    peers = {
        "all rows": lambda: index.search(query, K),
        "a fifth removed": lambda: worn.search(query, K),
    }
    for share in (0.001, 0.1, 0.5):
        mask = rng.random(n) < share
        ids = rng.permutation(np.flatnonzero(mask))
        agree({
            "mask": index.search(query, K, among=mask).distances,
            "ids": index.search(query, K, among=ids).distances,
        })  # fmt: skip
        peers[f"among {share:.1%} by mask"] = lambda m=mask: index.search(query, K, among=m)
        peers[f"among {share:.1%} by ids"] = lambda i=ids: index.search(query, K, among=i)
    title = f"one query, filtered, {n:,} codes of 64 bits"
    bench.report(title, compare(peers, unit="queries"), ("all rows",), n=n, bits=64)


def near_duplicates(bench: Bench, faiss: Any, n: int, many: int) -> None:
    """Everything within a small radius: batches and one query, uniform codes."""
    rng = np.random.default_rng(SEED)
    database = random_codes(rng, n)
    queries = near_codes(rng, database[rng.integers(0, n, many)], 2)
    index, laid_out = HammingIndex(64).add(database), words(database)
    for radius in (0, 3, 7):
        agree({
            "rankbits": index.within(queries, radius).ids,
            "kernel": hamming_within(queries, laid_out, radius).ids,
        })  # fmt: skip
    flat = None
    if faiss:
        flat = faiss.IndexBinaryFlat(64)
        flat.add(database.packed)
    for radius in (0, 3, 7):
        for rows in (many, 1):
            q = queries[:rows]
            peers: dict[str, Any] = {
                "rankbits HammingIndex": lambda q=q, r=radius: index.within(q, r),
                "kernel alone": lambda q=q, r=radius: hamming_within(q, laid_out, r),
            }
            if flat is not None:
                peers["faiss range_search"] = lambda q=q, r=radius: flat.range_search(
                    q.packed, r + 1
                )
            timings = compare(peers, work=rows, unit="queries", repeats=5)
            title = f"within {radius} of {n:,} codes of 64 bits, queries: {rows:,}"
            bench.report(title, timings, PEERS, n=n, bits=64, queries=rows, radius=radius)


def _once(name: str, function: Any, work: float, unit: str) -> Timing:
    """Something that cannot be repeated in place: one call, three times from the start."""
    samples = []
    for _ in range(3):
        begin = time.perf_counter()
        function()
        samples.append(time.perf_counter() - begin)
    return Timing(name, samples, work, unit, 0.0)


def writes(bench: Bench, n: int, folder: Path) -> None:
    """Rows a second: in memory by a thousand, durable by a thousand and one by one."""
    rng = np.random.default_rng(SEED)
    codes, order = random_codes(rng, n), rng.permutation(n)
    names = np.array([f"item-{i}" for i in order], object)
    starts, fresh = range(0, n, 1000), count()

    def added(index: HammingIndex, ids: Any = None) -> HammingIndex:
        for s in starts:
            index.add(codes[s : s + 1000], None if ids is None else ids[s : s + 1000])
        return index

    def removed() -> None:
        index = HammingIndex(64).add(codes)
        for s in starts[: len(starts) // 2]:
            index.remove(order[s : s + 1000])

    def durable(step: int, rows: int) -> None:
        with FileIndex(folder / f"{next(fresh)}.index", 64) as index:
            for s in range(0, rows, step):
                index.add(codes[s : s + step])

    timings = [
        _once("add, ids numbered on", lambda: added(HammingIndex(64)), n, "rows"),
        _once("add, whole numbers in any order", lambda: added(HammingIndex(64), order), n, "rows"),
        _once("add, strings", lambda: added(HammingIndex(64), names), n, "rows"),
        _once("remove half, a thousand at a time", removed, n // 2, "rows"),
        _once("FileIndex, a thousand at a time", lambda: durable(1000, n), n, "rows"),
        _once("FileIndex, one by one", lambda: durable(1, n // 500), n // 500, "rows"),
    ]
    bench.report(f"writes, {n:,} codes of 64 bits", timings, n=n, bits=64)


def opening(bench: Bench, n: int, folder: Path) -> None:
    path = folder / "open.index"
    HammingIndex(64).add(random_codes(np.random.default_rng(SEED), n)).save(path)
    peers = {
        "open": lambda: HammingIndex.open(path),
        "open, verify=False": lambda: HammingIndex.open(path, verify=False),
    }
    timings = compare(peers, work=path.stat().st_size / 1e6, unit="MB")
    bench.report(f"opening a file of {n:,} codes of 64 bits", timings, n=n, bits=64)


def _opened(path: str) -> tuple[HammingIndex, rb.Codes]:
    torch.set_num_threads(THREADS)
    index = HammingIndex.open(path, verify=False)
    queries = random_codes(np.random.default_rng(1), 100)
    HammingIndex(64).add(queries).search(queries, K)  # compiled before memory is counted
    return index, queries


def _searched(state: tuple[HammingIndex, rb.Codes]) -> int:
    index, queries = state
    return int(index.search(queries, K).distances.sum())


def large(bench: Bench, n: int, folder: Path) -> None:
    """A file larger than one would like in memory: time, and what a search needs beyond it."""
    path, rng = folder / "large.index", np.random.default_rng(SEED)
    HammingIndex(64).add(random_codes(rng, n)).save(path)
    megabytes = path.stat().st_size / 1e6
    for verify in (True, False):
        name = f"open, verify={verify}"
        timing = measure(
            name, lambda v=verify: HammingIndex.open(path, verify=v), work=megabytes, unit="MB"
        )
        bench.report(f"opening {n:,} codes of 64 bits", [timing], n=n, bits=64)
    index, queries = _opened(str(path))
    for rows in (100, 1):
        q = queries[:rows]
        timing = measure("rankbits", lambda q=q: index.search(q, K), work=rows, unit="queries")
        title = f"top-{K} of {n:,} codes of 64 bits, mapped, queries: {rows}"
        bench.report(title, [timing], n=n, bits=64, queries=rows)
    extra, _ = peak_memory(_opened, _searched, str(path))
    bench.note(
        f"peak memory of 100 queries against {n:,} codes in a mapped file",
        n=n, bits=64, mib=round(extra / 2**20, 1), file_mib=round(megabytes * 1e6 / 2**20, 1),
    )  # fmt: skip


def clusters(n: int, dim: int = 128, groups: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Rows around random centres, the spread of a group in a third of the directions larger."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(size=(groups, dim)).astype(np.float32)
    spread = np.where(np.arange(dim) % 3 == 0, 0.9, 0.35).astype(np.float32)
    which = rng.integers(0, groups, n + 500)
    rows = centres[which] + spread * rng.normal(size=(n + 500, dim)).astype(np.float32)
    return rows[:n], rows[n:]


def reranking(
    bench: Bench, name: str, database: np.ndarray, queries: np.ndarray, bits: int, folder: Path
) -> None:
    """Recall at 10 of the exact float neighbours against milliseconds a query."""
    database, queries = (
        np.ascontiguousarray(x / np.linalg.norm(x, axis=1, keepdims=True), np.float32)
        for x in (database, queries)
    )
    true = np.argsort(-(queries @ database.T), axis=1, kind="stable")[:, :K]
    dim = database.shape[1]
    quantizer = rb.ITQ() if bits == dim else rb.Projection(bits)
    quantizer.fit(database[:20_000])
    codes = quantizer.encode(queries)
    index = HammingIndex(bits).add(quantizer.encode(database))
    np.save(folder / "f32.npy", database)
    np.save(folder / "f16.npy", database.astype(np.float16))
    quantize_int8(database, folder / "i8.safetensors")

    def recall(ids: np.ndarray) -> float:
        return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(ids, true, strict=True)]))

    facts = {"n": len(database), "dim": dim, "bits": bits, "data": name}
    timing = measure("bits alone", lambda: index.search(codes, K), work=len(codes), unit="queries")
    got = recall(index.search(codes, K).ids)
    title = f"{name}: {len(database):,} x {dim} in {bits} bits"
    bench.report(f"{title}, bits alone: recall@10 {got:.3f}", [timing], recall=got, **facts)
    for file in ("f32.npy", "f16.npy", "i8.safetensors"):
        rerank = Rerank(index, folder / file, quantizer)
        for factor in (2, 5, 10, 30, 100):
            got = recall(rerank.search(queries, K, factor=factor).ids)
            timing = measure(
                f"{file}, factor {factor}",
                lambda r=rerank, f=factor: r.search(queries, K, factor=f),
                work=len(queries), unit="queries", repeats=3,
            )  # fmt: skip
            told = f"{title}, {file}, factor {factor}: recall@10 {got:.3f}"
            bench.report(told, [timing], recall=got, factor=factor, form=file, **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the database")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    sections = ("search", "filters", "within", "writes", "open", "rerank")
    parser.add_argument("--only", nargs="+", choices=sections, help="some sections")
    parser.add_argument("--large", action="store_true", help="add 100,000,000 codes")
    parser.add_argument("--embeddings", type=Path, help="an .npz with database and queries")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    n = 1_000_000 // scale

    bench = Bench("speed_index", threads=THREADS, seed=SEED)
    if faiss := bench.peer("faiss", "faiss-cpu"):
        faiss.omp_set_num_threads(THREADS)
    usearch = bench.peer("usearch.index", "usearch")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        parts = {
            "search": lambda: search(bench, faiss, usearch, n, 1000),
            "filters": lambda: filters(bench, n),
            "within": lambda: near_duplicates(bench, faiss, n, 1000),
            "writes": lambda: writes(bench, n, folder),
            "open": lambda: opening(bench, n, folder),
            "rerank": lambda: reranking(
                bench, "clusters", *clusters(100_000 // scale), 128, folder
            ),
        }
        for part in arguments.only or parts:
            parts[part]()
        if arguments.embeddings:
            with np.load(arguments.embeddings) as found:
                both = found["database"], found["queries"]
            reranking(bench, arguments.embeddings.stem, *both, 256, folder)
        if arguments.large:
            large(bench, 100_000_000 // scale, folder)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
