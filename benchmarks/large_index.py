"""Build a large file of codes in parts, and search it from the disk.

    python benchmarks/large_index.py [--save] [--rows 100000000] [--bits 64] [--folder FOLDER]

Codes are added a million at a time. Memory is what the process holds beyond mapped files. A cold
search starts after the file was dropped from the page cache, a warm one with the file in it. Then
tables are made, written beside the file and read again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import rankbits as rb
from _bench import Bench, measure

THREADS = 2
SEED = 0
PART = 1_000_000


def held() -> float:
    """Megabytes that are not pages of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon"))


def drop(path: Path) -> None:
    """Let the page cache forget a file."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def run(bench: Bench, path: Path, rows: int, bits: int) -> None:
    rng = np.random.default_rng(SEED)
    before, most, begin = held(), 0.0, time.perf_counter()
    with rb.open_index(path, bits=bits) as index:
        for start in tqdm(range(0, rows, PART), unit=" parts", disable=None):
            size = min(PART, rows - start)
            index.add(rb.Codes(rng.integers(0, 256, (size, bits // 8), dtype=np.uint8), bits))
            most = max(most, held() - before)
        index.compact()
    facts = {"n": rows, "bits": bits, "file_mb": round(path.stat().st_size / 1e6, 1)}
    seconds = round(time.perf_counter() - begin, 1)
    bench.note(
        f"build {rows:,} codes of {bits} bits", seconds=seconds, held_mb=round(most), **facts
    )
    queries = rb.Codes(rng.integers(0, 256, (100, bits // 8), dtype=np.uint8), bits)
    for name, many in (("compile", 100), ("one query", 1), ("a batch of 100", 100)):
        drop(path)  # while nobody has it mapped: mapped pages stay
        with rb.open_index(path, mode="r", verify=False) as index:
            begin = time.perf_counter()
            index.search(queries[:many], 10)
            seconds = time.perf_counter() - begin
        del index
        rate = round(path.stat().st_size / 1e6 / seconds)
        if name != "compile":
            bench.note(f"cold: {name}", seconds=round(seconds, 3), mb_a_second=rate, **facts)
    with rb.open_index(path, mode="r", verify=False) as index:
        index.search(queries[:1], 10)
        before = held()
        timing = measure("warm: one query", lambda: index.search(queries[:1], 10), repeats=5)
        extra = round(held() - before, 1)
        bench.report(f"top-10 of {rows:,} codes, mapped", [timing], held_mb=extra, **facts)
    keep_tables(bench, path, queries, facts)


def keep_tables(bench: Bench, path: Path, queries: rb.Codes, facts: dict[str, Any]) -> None:
    """Make tables, write them, read them again, and search by them."""
    beside = Path(f"{path}.tables")
    with rb.open_index(path, verify=False) as index:
        begin = time.perf_counter()
        (segment,) = index.snapshot().segments
        size = segment.tables.build()
        made = time.perf_counter() - begin
        index.build_tables()
        written = time.perf_counter() - begin - made
    seconds = {"made_s": round(made, 2), "written_s": round(written, 2)}
    for name in ("cold_s", "warm_s"):
        if name == "cold_s":
            drop(beside)
        with rb.open_index(path, mode="r", verify=False) as index:
            begin = time.perf_counter()
            index.build_tables()
            seconds[f"read_{name}"] = round(time.perf_counter() - begin, 2)
    bench.note("tables made, written and read", tables_mb=round(size / 1e6), **seconds, **facts)
    with rb.open_index(path, mode="r", verify=False) as index:
        index.build_tables()
        timing = measure("warm: one query", lambda: index.search(queries[:1], 10), repeats=5)
        bench.report(f"top-10 of {facts['n']:,} codes by tables", [timing], **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where the file is written and deleted")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    bench = Bench("large_index", threads=THREADS, seed=SEED)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run(bench, Path(folder) / "large.index", arguments.rows, arguments.bits)
    if arguments.save:
        bench.save()


if __name__ == "__main__":
    main()
