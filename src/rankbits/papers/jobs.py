"""Run cells one after another or in parallel processes; each writes its rows when it is done."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from rankbits._check import Refusal
from rankbits._memory import give_back, is_full
from rankbits.papers import cell, examples, neighbours, shallow
from rankbits.papers.recipe import Cell, Recipe
from rankbits.papers.rows import Row, Settings, make_key, name_file, read_rows, write_rows

# one thread each, because the cells fill the cores, and no bars, which would overwrite each other
ALONE = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "TQDM_DISABLE": "1",
}  # fmt: skip

RUNS = {
    "train": cell.run_cell,
    "neighbours": neighbours.run_cell,
    "shallow": shallow.run_cell,
    "example": examples.run_cell,
}


@dataclass(frozen=True)
class Job:
    """One cell of one recipe."""

    recipe: Recipe
    cell: Cell

    def keys(self, settings: Settings) -> set[str]:
        """The keys of the rows that this job writes."""
        facts: Row = {"name": self.recipe.name, "bits": self.cell.bits}
        facts |= {"vary": self.cell.vary, "seed": self.cell.seed}
        return {make_key(facts | {"quantizer": q}) for q in settings.choose_quantizers(self.recipe)}

    def __str__(self) -> str:
        return f"{self.recipe.name}, {self.cell}"


@dataclass(frozen=True)
class Done:
    """A finished job: its rows, or the sentence that says why there are none."""

    job: Job
    rows: list[Row] = field(default_factory=list)
    failed: str = ""
    seconds: float = 0.0


def find_missing(jobs: Iterable[Job], settings: Settings, results: Path) -> list[Job]:
    """Find the jobs that still lack a row, such as those that a killed command did not do."""
    stored: dict[str, set[str]] = {}
    missing = []
    for job in jobs:
        paper = job.recipe.paper
        if paper not in stored:
            path = name_file(results, paper, settings.short)
            stored[paper] = {make_key(row) for row in read_rows(path)}
        if job.keys(settings) - stored[paper]:
            missing.append(job)
    return missing


def do_job(job: Job, settings: Settings, results: Path) -> Done:
    """Run a job and write its rows. A failure is reported and does not stop other jobs."""
    begin = time.monotonic()
    try:
        rows = RUNS[job.recipe.kind](job.recipe, job.cell, settings)
    except Refusal as sentence:
        return Done(job, failed=str(sentence))
    except Exception as error:  # memory, a disk, a bug: other cells may have hours of work to save
        full = "memory is full; run fewer cells at a time"
        return Done(job, failed=full if is_full(error) else f"{type(error).__name__}: {error}")
    finally:
        give_back()
    write_rows(name_file(results, job.recipe.paper, settings.short), rows)
    return Done(job, rows, seconds=time.monotonic() - begin)


def run_jobs(
    jobs: list[Job], settings: Settings, results: Path, processes: int = 1
) -> Iterator[Done]:
    """Run the jobs, ``processes`` at a time, and yield each when it is done."""
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield do_job(job, settings, results)
        return
    with _limit_threads():
        workers = min(processes, len(jobs))
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_process)
        try:
            futures = [pool.submit(do_job, job, settings, results) for job in jobs]
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _limit_threads() -> Iterator[None]:
    """Set the environment that the processes inherit, which libraries read when they are loaded."""
    before = {name: os.environ.get(name) for name in ALONE}
    os.environ.update(ALONE)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start_process() -> None:
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process with its parent, so that nothing writes rows after a command was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
