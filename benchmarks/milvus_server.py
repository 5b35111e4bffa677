"""A real Milvus server through ``MilvusIndex``: fill, ask, write from four processes, kill.

    pip install --no-deps milvus==2.3.5
    python benchmarks/milvus_server.py [--save] [--rows 1000000]

Every answer is held against ``HammingIndex``. The server runs on this machine, in a folder that is
deleted afterwards.
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

with open_index(sys.argv[1], 64, table="many") as index:
    for step in range(10):
        rng = np.random.default_rng([int(sys.argv[2]), step])
        index.add(rb.Codes(rng.integers(0, 256, (1000, 8), dtype=np.uint8), 64))
"""


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
        writers = [
            subprocess.Popen([sys.executable, "-c", ADDING, place, str(i)]) for i in range(4)
        ]
        assert [writer.wait(300) for writer in writers] == [0] * 4
        seconds = time.perf_counter() - begin
        with open_index(place, table="many") as index:
            assert index.count() == 40_000, "rows of concurrent writers are lost"
        bench.note("four processes add 40,000 codes without ids", seconds=round(seconds, 1), lost=0)
        begin = time.perf_counter()
        with open_index(place, table="many") as index:
            index.add(codes[:1000])
        bench.note("add 1,000 codes without ids", seconds=round(time.perf_counter() - begin, 2))
        kill(server)
        server, seconds = start(milvus, folder)
        place = f"milvus:http://127.0.0.1:{server.listen_port}"
        begin = time.perf_counter()
        with open_index(place) as index, open_index(place, table="many") as other:
            assert (index.count(), other.count()) == (rows, 41_000), "acknowledged rows are lost"
            assert (index.search(queries, 10).distances == true).all()
        ready = time.perf_counter() - begin
        times = {"start_s": round(seconds, 1), "open_s": round(ready, 1)}
        bench.note("kill -9, start, all rows there", lost=0, **times)
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
