"""Test a real Milvus server through ``MilvusIndex``: fill it, search it, and kill it.

    pip install --no-deps milvus==2.3.5
    python benchmarks/milvus_server.py [--save] [--rows 1000000]

It is searched alone and while four processes write, and killed while one process writes. Every
answer is compared with that of ``HammingIndex``. The server runs on this machine, in a folder that
is deleted afterwards.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

import rankbits as rb
from _bench import Bench, compare
from rankbits.indexes import HammingIndex
from rankbits.indexes.addresses import open_index

ADDING = """
import sys
import numpy as np
import rankbits as rb
from rankbits.indexes.addresses import open_index

place, table, seed, steps = sys.argv[1:]
with open_index(place, 64, table=table) as index:
    for step in range(int(steps)):
        rng = np.random.default_rng([int(seed), step])
        index.add(rb.Codes(rng.integers(0, 256, (1000, 8), dtype=np.uint8), 64))
        print(step, flush=True)
"""


def begin_adding(place: str, table: str, seed: int, steps: int) -> subprocess.Popen[str]:
    """A process that adds 1,000 codes a step without ids, and prints each step once it is
    acknowledged."""
    command = [sys.executable, "-c", ADDING, place, table, str(seed), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def start(milvus: Any, folder: str) -> tuple[Any, float]:
    begin = time.perf_counter()
    server = milvus.MilvusServer()
    server.set_base_dir(folder)
    server.start()
    return server, time.perf_counter() - begin


def kill(server: Any) -> None:
    server.server_proc.kill()
    server.server_proc.wait(30)
    server.server_proc = None


def run(bench: Bench, milvus: Any, folder: str, rows: int) -> None:
    server, seconds = start(milvus, folder)
    place = f"milvus:http://127.0.0.1:{server.listen_port}"
    try:
        bench.note("start of the server", seconds=round(seconds, 1))
        rng = np.random.default_rng(0)
        codes = rb.Codes(rng.integers(0, 256, (rows, 8), dtype=np.uint8), 64)
        queries = rb.Codes(rng.integers(0, 256, (100, 8), dtype=np.uint8), 64)
        exact = HammingIndex(64).add(codes)
        true = exact.search(queries, 10).distances
        begin = time.perf_counter()
        with open_index(place, 64) as index:
            index.add(codes, range(rows))
            bench.note(f"add {rows:,} codes", seconds=round(time.perf_counter() - begin, 1))
            assert (index.search(queries, 10).distances == true).all() and index.count() == rows
            for many in (1, 100):
                asked = queries[:many]
                timings = compare(
                    {"milvus server": lambda q=asked: index.search(q, 10)},
                    work=many, unit="queries", repeats=5,
                )  # fmt: skip
                bench.report(f"top-10 of {rows:,} codes, queries: {many}", timings, n=rows)
        begin = time.perf_counter()
        writers = [begin_adding(place, "many", i, 10) for i in range(4)]
        waits = []
        with open_index(place) as index:
            while any(writer.poll() is None for writer in writers):
                at = len(waits) % len(queries)
                asked = time.perf_counter()
                near = index.search(queries[at : at + 1], 10).distances
                waits.append(time.perf_counter() - asked)
                assert (near == true[at : at + 1]).all(), "a search beside writers is wrong"
                assert asked - begin < 600, "the writers do not end"
        assert [writer.wait(10) for writer in writers] == [0] * 4
        seconds = time.perf_counter() - begin
        low, median, high = (round(float(x), 3) for x in np.percentile(waits, (20, 50, 80)))
        bench.note(
            f"top-10 of {rows:,} codes while four processes add",
            searches=len(waits), p20_s=low, median_s=median, p80_s=high,
        )  # fmt: skip
        with open_index(place, table="many") as index:
            assert index.count() == 40_000, "rows of concurrent writers are lost"
        bench.note("four processes add 40,000 codes without ids", seconds=round(seconds, 1), lost=0)
        begin = time.perf_counter()
        with open_index(place, table="many") as index:
            index.add(codes[:1000])
        bench.note("add 1,000 codes without ids", seconds=round(time.perf_counter() - begin, 2))
        writer = begin_adding(place, "killed", 9, 1000)
        assert writer.stdout is not None
        kept = [int(writer.stdout.readline()) for _ in range(5)][-1]
        kill(server)
        writer.kill()
        kept = max([kept, *(int(line) for line in writer.communicate(timeout=30)[0].split())])
        server, seconds = start(milvus, folder)
        place = f"milvus:http://127.0.0.1:{server.listen_port}"
        begin = time.perf_counter()
        with open_index(place) as index, open_index(place, table="many") as other:
            assert (index.count(), other.count()) == (rows, 41_000), "acknowledged rows are lost"
            assert (index.search(queries, 10).distances == true).all()
        with open_index(place, table="killed") as index:
            for step in range(kept + 1):
                rng = np.random.default_rng([9, step])
                sent = rb.Codes(rng.integers(0, 256, (1000, 8), dtype=np.uint8), 64)
                assert not index.search(sent, 1).distances.any(), "acknowledged rows are lost"
            unfinished = index.count() - 1000 * (kept + 1)
        ready = time.perf_counter() - begin
        times = {"start_s": round(seconds, 1), "open_s": round(ready, 1)}
        times |= {"acknowledged": 1000 * (kept + 1), "not_acknowledged_but_there": unfinished}
        bench.note("kill -9 while a process adds, start, all rows there", lost=0, **times)
    finally:
        kill(server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    bench = Bench("milvus_server", threads=2, seed=0)
    milvus, _ = bench.peer("milvus", "milvus"), bench.peer("pymilvus", "pymilvus")
    if milvus:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run(bench, milvus, folder, arguments.rows)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
