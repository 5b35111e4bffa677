"""The ten nearest by a scan, by tables and by graphs, compared with faiss and usearch, by size.

    python benchmarks/speed_tables.py FEATURES.npy ... [--save] [--millions 1 10 100]
        [--bits 64 256] [--only clustered] [--graphs 1] [--queries 100]

``FEATURES.npy`` (n, dim) are real embeddings. Each is repeated with Gaussian noise of half the
spread of a dimension, so that codes keep the clusters of real ones. Uniform codes are the worst
case. "index" is ``HammingIndex.search`` with tables, which chooses between a scan and tables;
"scan" and "tables only" are the two, and ``beside_better`` is its time divided by that of the
better one.

A row has the time of one query and of a batch (median and least), the seconds to build, by the
clock and of a core, the megabytes held beyond the codes, and the recall: the share of results that
are no farther than the true tenth. Graphs are built up to ``--graphs`` millions, and faiss's hashes
up to 30 million entries; beyond that a row has an estimate of the time to build. Each size is saved
once it is measured.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit

import rankbits as rb
from _bench import Bench, compare
from rankbits.indexes import HammingIndex, scan
from rankbits.indexes.segments import Segment
from rankbits.kernels import Tables
from rankbits.kernels.backend import run_tasks

THREADS = 2
SEED = 0
K = 10
NOISE = 0.5  # of the spread of a dimension
LARGE = 5_000_000  # codes from which on fewer queries are asked
HASHED = 30_000_000  # entries of all hashes of IndexBinaryMultiHash: some gigabytes
LEARNT = 8  # calls before the index is timed, in which it learns which way is quicker
PATIENCE = 5.0  # seconds: what takes longer for a batch is not timed


def flip_chances(features: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The bits of each feature, and the chance of each to flip under the noise."""
    rotated = rb.Projection(bits).fit(features).transform(features)
    spread = NOISE * rotated.std(axis=0)
    certain = torch.erf(torch.from_numpy(np.abs(rotated) / spread / math.sqrt(2))).numpy()
    return rotated > 0, (1 - certain) / 2


@njit(nogil=True)
def _flip_bits(seed, first, chosen, ones, limits, packed):
    """Fill ``packed`` with the codes ``ones[chosen]``, each bit flipped with its chance / 65536;
    the noise is splitmix64 of the place of a bit."""
    width = np.uint64(packed.shape[1])
    for i in range(packed.shape[0]):
        source = chosen[i]
        for j in range(packed.shape[1]):
            place = (np.uint64(first + i) * width + np.uint64(j)) * np.uint64(2)
            value = np.uint8(0)
            for bit in range(8):
                if bit % 4 == 0:
                    noise = (np.uint64(seed) << np.uint64(56)) + place + np.uint64(bit // 4)
                    noise *= np.uint64(0x9E3779B97F4A7C15)
                    noise = (noise ^ (noise >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    noise = (noise ^ (noise >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    noise ^= noise >> np.uint64(31)
                flipped = (noise & np.uint64(0xFFFF)) < limits[source, 8 * j + bit]
                noise >>= np.uint64(16)
                value = np.uint8(2 * value + (ones[source, 8 * j + bit] != flipped))
            packed[i, j] = value


def draw(seed: int, source: tuple | None, n: int, bits: int) -> rb.Codes:
    rng = np.random.default_rng([SEED, seed])
    packed = np.empty((n, bits // 8), np.uint8)
    if source is None:
        return rb.Codes(rng.integers(0, 256, packed.shape, dtype=np.uint8), bits)
    ones, chances = source
    limits = (chances * 65536).astype(np.uint64)
    chosen = rng.integers(0, len(ones), n, dtype=np.int32)

    def fill(first: int) -> None:
        part = slice(first, first + (1 << 20))
        _flip_bits(seed, first, chosen[part], ones, limits, packed[part])

    run_tasks(fill, range(0, n, 1 << 20))
    return rb.Codes(packed, bits)


def held() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Only:
    """Tables of a segment that never leave a query to a scan."""

    def __init__(self, tables: Tables) -> None:
        self._tables = replace(tables, scan=math.inf, scan_batch=math.inf)

    def answer(self, case: Any, queries: int, look_up: Callable, scan: Callable) -> Any:
        return look_up(self._tables)


def search_one_way(index: HammingIndex, queries: rb.Codes, *, by_tables: bool) -> np.ndarray:
    """Distances found by a scan alone or by tables alone."""
    state = index.snapshot()
    (segment,) = state.segments
    tables: Any = Only(segment.tables.ask(1)) if by_tables else None
    alone = replace(state, segments=(Segment(segment.words, segment.ids, tables=tables),))
    return scan.topk(alone, queries, K, [None]).distances


def count_hashes(bits: int, n: int) -> int:
    """Hashes of about log2(n) bits, at most 24."""
    return bits // max(8, min(24, round(math.log2(n))))


def build_faiss(faiss: Any, kind: str, packed: np.ndarray) -> Any:
    bits = 8 * packed.shape[1]
    if kind == "IndexBinaryFlat":
        index = faiss.IndexBinaryFlat(bits)
    elif kind == "IndexBinaryHNSW":
        index = faiss.IndexBinaryHNSW(bits, 16)
    else:
        hashes = count_hashes(bits, len(packed))
        index = faiss.IndexBinaryMultiHash(bits, hashes, bits // hashes)
        index.nflip = 2
    index.add(packed)
    return index


def build_graph(database: rb.Codes) -> Any:
    from rankbits.indexes.engines.graph import GraphIndex

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    index = GraphIndex(Path(folder) / "codes.index", database.bits).add(database)
    print(f"graph: recall by its own measure {index.recall:.4f}")
    return index


def build_usearch(usearch: Any, packed: np.ndarray) -> Any:
    bits = 8 * packed.shape[1]
    index = usearch.Index(ndim=bits, metric=usearch.MetricKind.Hamming, dtype="b1")
    index.add(np.arange(len(packed)), packed, threads=THREADS)
    return index


class Peers:
    """Indexes over the same codes: how each is asked, and what it took to build."""

    def __init__(self) -> None:
        self.ask: dict[str, Callable[[rb.Codes], np.ndarray]] = {}
        self.build_s: dict[str, float] = {}
        self.build_cpu_s: dict[str, float] = {}
        self.megabytes: dict[str, float] = {}

    def keep(
        self, peer: str, build: Callable[[], Any], search: Callable[[Any, rb.Codes], Any]
    ) -> None:
        ctypes.CDLL(None).malloc_trim(0)  # or what was freed before would be used without a trace
        before, begin, busy = held(), time.perf_counter(), time.process_time()
        index = build()
        self.build_s[peer] = round(time.perf_counter() - begin, 3)
        self.megabytes[peer] = round(held() - before, 1)
        self.build_cpu_s[peer] = round(time.process_time() - busy, 3)
        self.ask[peer] = lambda q: np.asarray(search(index, q))
        print(f"{peer}: built in {self.build_s[peer]} s, {self.megabytes[peer]} MB", flush=True)


def build_peers(
    bench: Bench, libraries: dict, database: rb.Codes, title: str, graphs: float, estimates: dict
) -> Peers:
    """All that can be built in minutes; of the rest a row says what it is estimated to take."""
    peers, n, bits = Peers(), len(database), database.bits
    faiss, usearch = libraries["faiss"], libraries["usearch"]
    index = HammingIndex(bits).add(database)
    peers.keep("scan", lambda: None, lambda _, q: search_one_way(index, q, by_tables=False))
    peers.keep("index", index.build_tables, lambda _, q: index.search(q, K).distances)
    if index.snapshot().segments[0].tables.size:  # not of so few codes that a scan is always better
        peers.ask["tables only"] = lambda q: search_one_way(index, q, by_tables=True)
        peers.megabytes["tables only"] = peers.megabytes["index"]

    def search_faiss(built: Any, queries: rb.Codes) -> Any:
        return built.search(queries.packed, K)[0]

    def search_usearch(built: Any, queries: rb.Codes) -> Any:
        return built.search(queries.packed, K, threads=THREADS).distances.reshape(-1, K)

    small = n <= graphs * 1_000_000
    plans: list[tuple[str, bool, Any, Callable, Callable]] = [
        (f"faiss {kind}", fits, faiss, lambda k=kind: build_faiss(faiss, k, database.packed),
         search_faiss)
        for kind, fits in (
            ("IndexBinaryFlat", True),
            ("IndexBinaryHNSW", small),
            ("IndexBinaryMultiHash", n * count_hashes(bits, n) <= HASHED),
        )
    ]  # fmt: skip
    plans += [
        ("graph", small, usearch, lambda: build_graph(database),
         lambda built, q: built.search(q, K).distances),
        ("usearch", small, usearch, lambda: build_usearch(usearch, database.packed),
         search_usearch),
    ]  # fmt: skip
    for peer, fits, library, build, search in plans:
        if fits and library:
            peers.keep(peer, build, search)
            estimates[peer] = peers.build_s[peer] / (n * math.log(n))
        elif peer in estimates:
            hours = round(estimates[peer] * n * math.log(n) / 3600, 2)
            bench.note(f"{title}, not run: {peer}", estimated_build_hours=hours, n=n, bits=bits)
    return peers


def ask_in_turn(search: Callable, queries: rb.Codes, seed: int) -> Callable[[], np.ndarray]:
    """Each call asks another query: all peers are asked the same ones, each in an order of its own,
    for what one peer reads for a query would be in the cache when the next one is asked it."""
    places = cycle(np.random.default_rng([SEED, seed]).permutation(len(queries)).tolist())
    return lambda: search(queries[(at := next(places)) : at + 1])


def run(bench: Bench, peers: Peers, queries: rb.Codes, title: str, facts: dict) -> None:
    ask, recall = dict(peers.ask), {}
    true = ask["scan"](queries)
    for _ in range(LEARNT):
        assert (ask["index"](queries) == true).all(), "the index and the scan differ"
        ask["index"](queries[:1])
    for peer, search in peers.ask.items():
        begin = time.perf_counter()
        near = search(queries[:1])
        if len(queries) * (time.perf_counter() - begin) > PATIENCE and peer != "scan":
            ask.pop(peer)  # asked alone, and not in a batch
        else:
            near = search(queries)
        recall[peer] = float((near.astype(np.int64) <= true[: len(near), -1:]).mean())
    one = {p: ask_in_turn(f, queries, i) for i, (p, f) in enumerate(peers.ask.items())}
    rounds = -(-60 // len(queries)) * len(queries)  # so that each is asked all of them as often
    alone = compare(one, unit="queries", repeats=rounds, seconds=0.0)  # a sample is one call
    together = compare(
        {peer: lambda f=f: f(queries) for peer, f in ask.items()},
        work=len(queries), unit="queries", repeats=7, seconds=0.05,
    )  # fmt: skip
    facts |= {"tenth": float(np.median(true[:, -1])), "recall": recall}
    facts |= {"build_s": peers.build_s, "build_cpu_s": peers.build_cpu_s}
    for many, timings in ((1, alone), (len(queries), together)):
        least = {timing.name: min(timing.samples) / many for timing in timings}
        median = {timing.name: float(np.median(timing.samples)) for timing in timings}
        better = min(median["scan"], median.get("tables only", math.inf))
        facts |= {"least": least, "beside_better": round(median["index"] / better, 3)}
        named = f"{title}, queries: {many}"
        bench.report(named, timings, ("scan",), megabytes=peers.megabytes, queries=many, **facts)
        print("  index beside the better of scan and tables only:", facts["beside_better"])
    print("  recall:", {peer: round(value, 4) for peer, value in recall.items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="+", type=Path)
    parser.add_argument("--millions", nargs="+", type=float, default=[1, 10])
    parser.add_argument("--bits", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--graphs", type=float, default=1)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    parser.add_argument("--only", choices=("clustered", "uniform"))
    a = parser.parse_args()
    bench = Bench("speed_tables", threads=THREADS, seed=SEED)
    libraries = {
        "faiss": bench.peer("faiss", "faiss-cpu"),
        "usearch": bench.peer("usearch.index", "usearch"),
    }
    if libraries["faiss"]:
        libraries["faiss"].omp_set_num_threads(THREADS)
    features = np.concatenate([np.load(path) for path in a.features]).astype(np.float32)
    for bits in a.bits:
        source = flip_chances(features, bits)
        for name in [a.only] if a.only else ("clustered", "uniform"):
            own = source if name == "clustered" else None
            estimates: dict[str, float] = {}
            for n in (int(millions * 1_000_000) for millions in a.millions):
                database = draw(0, own, n, bits)
                queries = draw(1, own, a.queries if n < LARGE else a.queries // 5, bits)
                title = f"top-{K} of {n:,} codes of {bits} bits, {name}"
                peers = build_peers(bench, libraries, database, title, a.graphs, estimates)
                run(bench, peers, queries, title, {"n": n, "bits": bits, "data": name})
                del database, peers
                if a.save:
                    bench.add()
                    bench.rows.clear()


if __name__ == "__main__":
    main()
