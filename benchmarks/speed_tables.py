"""The ten nearest by a scan, by tables and by graphs, beside faiss and usearch, at growing sizes.

    python benchmarks/speed_tables.py FEATURES.npy ... [--save] [--millions 1 10 100]
        [--bits 64 256] [--graphs 1] [--queries 100]

``FEATURES.npy`` (n, dim) are real embeddings. Each is repeated with Gaussian noise of half the
spread of a dimension, so that codes keep the clusters of real ones; uniform codes are the worst
case. A row has the time of one query and of a batch, the seconds to build and those of a core, the
megabytes held beyond the codes, and the recall: the share of what is found that is no farther than
the true tenth; and the least time of all samples, which is that of a quiet machine where others
run beside. Graphs are built up to ``--graphs`` millions.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench, compare
from rankbits.indexes import HammingIndex, scan
from rankbits.indexes.segments import Segment

THREADS = 2
SEED = 0
K = 10
NOISE = 0.5  # of the spread of a dimension
LARGE = 5_000_000  # codes from which on only what is fast enough is asked


def flip_chances(features: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The bits of each feature, and the chance of each to flip under the noise."""
    rotated = rb.Projection(bits).fit(features).transform(features)
    spread = NOISE * rotated.std(axis=0)
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return rotated > 0, (1 - erf(np.abs(rotated) / spread / math.sqrt(2))) / 2


def draw(rng: np.random.Generator, source: tuple | None, n: int, bits: int) -> rb.Codes:
    packed = np.empty((n, bits // 8), np.uint8)
    if source is None:
        return rb.Codes(rng.integers(0, 256, packed.shape, dtype=np.uint8), bits)
    ones, chances = source
    limits = (chances * 65536).astype(np.uint16)
    step = (1 << 24) // bits
    for start in range(0, n, step):
        size = min(step, n - start)
        which = rng.integers(0, len(ones), size)
        noise = np.frombuffer(rng.bytes(2 * size * bits), np.uint16).reshape(size, bits)
        packed[start : start + size] = np.packbits(ones[which] ^ (noise < limits[which]), axis=1)
    return rb.Codes(packed, bits)


def held() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def scanning(index: HammingIndex, queries: rb.Codes) -> Any:
    """A search without tables, whether they are there or not."""
    state = index.snapshot()
    return scan.topk(replace(state, segments=tuple(map(_bare, state.segments))), queries, K, [None])


def _bare(segment: Segment) -> Segment:
    return Segment(segment.words, segment.ids)


def build_faiss(faiss: Any, kind: str, packed: np.ndarray) -> Any:
    bits = 8 * packed.shape[1]
    if kind == "IndexBinaryFlat":
        index = faiss.IndexBinaryFlat(bits)
    elif kind == "IndexBinaryHNSW":
        index = faiss.IndexBinaryHNSW(bits, 16)
    else:
        length = max(8, min(24, round(math.log2(len(packed)))))
        index = faiss.IndexBinaryMultiHash(bits, bits // length, length)
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


def run(
    bench: Bench, peers: dict, name: str, source: tuple | None, n: int, bits: int, a: Any
) -> None:
    rng = np.random.default_rng(SEED)
    database, queries = draw(rng, source, n, bits), draw(rng, source, a.queries, bits)
    ask: dict[str, Callable[[rb.Codes], np.ndarray]] = {}
    build_s: dict[str, float] = {}
    build_cpu_s: dict[str, float] = {}
    megabytes: dict[str, float] = {}

    def keep(peer: str, build: Callable[[], Any], search: Callable[[Any, rb.Codes], Any]) -> None:
        before, begin, busy = held(), time.perf_counter(), time.process_time()
        index = build()
        seconds, grown = time.perf_counter() - begin, held() - before
        build_cpu_s[peer] = round(time.process_time() - busy, 3)
        ask[peer] = lambda q: search(index, q)
        build_s[peer], megabytes[peer] = round(seconds, 3), round(grown, 1)
        busy = build_cpu_s[peer]
        print(f"{peer}: built in {seconds:.1f} s ({busy} of a core), {grown:,.0f} MB", flush=True)

    index = HammingIndex(bits).add(database)
    keep("scan", lambda: None, lambda _, q: scanning(index, q).distances)
    keep("tables", index.build_tables, lambda _, q: index.search(q, K).distances)
    faiss, usearch = peers["faiss"], peers["usearch"]
    kinds = ["IndexBinaryFlat"] if n < LARGE else []
    if n <= a.graphs * 1_000_000:
        kinds += ["IndexBinaryHNSW", "IndexBinaryMultiHash"]
    for kind in kinds if faiss else []:
        build = lambda kind=kind: build_faiss(faiss, kind, database.packed)  # noqa: E731
        keep(f"faiss {kind}", build, lambda i, q: i.search(q.packed, K)[0])
    if usearch and n <= a.graphs * 1_000_000:
        keep("graph", lambda: build_graph(database), lambda i, q: i.search(q, K).distances)
        keep(
            "usearch",
            lambda: build_usearch(usearch, database.packed),
            lambda i, q: i.search(q.packed, K, threads=THREADS).distances.reshape(-1, K),
        )
    true = ask["scan"](queries)
    assert (ask["tables"](queries) == true).all(), "tables and the scan differ"
    title = f"top-{K} of {n:,} codes of {bits} bits, {name}"
    turn = iter(range(1 << 60))
    one = {
        peer: lambda f=f: f(queries[(at := next(turn) % len(queries)) : at + 1])
        for peer, f in ask.items()
    }
    alone = compare(one, unit="queries", repeats=50, seconds=0.0)  # a sample is one call
    together = compare(
        {peer: lambda f=f: f(queries) for peer, f in ask.items()},
        work=len(queries), unit="queries", repeats=3, seconds=0.05,
    )  # fmt: skip
    near = {peer: np.asarray(f(queries)).astype(np.int64) for peer, f in ask.items()}
    recall = {peer: float((found <= true[:, -1:]).mean()) for peer, found in near.items()}
    facts = {"n": n, "bits": bits, "data": name, "tenth": float(np.median(true[:, -1]))}
    facts |= {"build_s": build_s, "build_cpu_s": build_cpu_s, "recall": recall}
    for many, timings in ((1, alone), (len(queries), together)):
        named = f"{title}, queries: {many}"
        least = {timing.name: min(timing.samples) / many for timing in timings}
        facts["least"] = least
        bench.report(named, timings, ("scan",), megabytes=megabytes, queries=many, **facts)
        print("  least:", {peer: f"{1e3 * value:.4g} ms" for peer, value in least.items()})
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
    peers = {
        "faiss": bench.peer("faiss", "faiss-cpu"),
        "usearch": bench.peer("usearch.index", "usearch"),
    }
    if peers["faiss"]:
        peers["faiss"].omp_set_num_threads(THREADS)
    features = np.concatenate([np.load(path) for path in a.features]).astype(np.float32)
    for bits in a.bits:
        source = flip_chances(features, bits)
        for millions in a.millions:
            for name in [a.only] if a.only else ("clustered", "uniform"):
                own = source if name == "clustered" else None
                run(bench, peers, name, own, int(millions * 1_000_000), bits, a)
    if a.save:
        bench.add()


if __name__ == "__main__":
    main()
