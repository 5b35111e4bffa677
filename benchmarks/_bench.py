"""The harness of every benchmark: time peers side by side, print a table, save rows and origins.

Peers are timed in rounds, one sample each, in another order each round, so that other work on the
machine slows all of them alike. A ratio is the median of the ratios within a round. A peer that
spins at barriers (OpenMP) suffers more than others, so each row also says which share of the
machine other processes used meanwhile.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
INSTALLED = {found.name: found.version for found in importlib.metadata.distributions()}
SETTLE = 0.01  # seconds between peers: OpenMP workers of the last one spin for a while on our cores


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, a sample a round; a call does ``work`` units (queries, pairs)."""

    name: str
    samples: Sequence[float]
    work: float
    unit: str
    others: float

    def ratio(self, other: Timing) -> float:
        """How many times as long as ``other`` for the same work: above 1 is slower."""
        return float(np.median(np.divide(self.samples, other.samples))) * other.work / self.work


def _elapsed(function: Callable[[], Any], calls: int, cuda: bool) -> float:
    """Seconds of a call; on a GPU by events, for a launch returns before its work is done."""
    if cuda:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    if cuda:
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / 1000 / calls
    return (time.perf_counter() - begin) / calls


def _clocks() -> np.ndarray:
    """Seconds that other processes have had of all cores, and seconds that all cores have had."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    total, idle = np.array([sum(ticks), ticks[3] + ticks[4]]) / os.sysconf("SC_CLK_TCK")
    return np.array([total - idle - time.process_time(), total])


def compare(
    functions: Mapping[str, Callable[[], Any]],
    *,
    work: float | Mapping[str, float] | None = None,
    unit: str | None = None,
    repeats: int = 7,
    seconds: float = 0.1,
    cuda: bool = False,
) -> list[Timing]:
    """Time peers in rounds, in another order each round: one may leave the cache full of what the
    next one needs, or empty of it. A call before compiles, and one tells how many calls fill a
    sample of ``seconds``. ``work`` may differ by peer: slow ones are given fewer queries."""
    calls = {}
    for name, function in functions.items():
        _elapsed(function, 1, cuda)
        calls[name] = max(1, round(seconds / _elapsed(function, 1, cuda)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    begin, shuffled = _clocks(), random.Random(0)
    for _ in range(repeats):
        for name in shuffled.sample(list(functions), len(functions)):
            time.sleep(SETTLE)
            samples[name].append(_elapsed(functions[name], calls[name], cuda))
    elsewhere, total = _clocks() - begin
    others = round(max(0.0, float(elsewhere / max(total, 0.01))), 3)
    done = work if isinstance(work, Mapping) else dict.fromkeys(functions, work or 1)
    return [Timing(name, samples[name], done[name], unit or "call", others) for name in functions]


def measure(name: str, function: Callable[[], Any], **options: Any) -> Timing:
    """Time one function alone; ``options`` are those of ``compare``."""
    return compare({name: function}, **options)[0]


def agree(results: Mapping[str, Any], tolerance: float = 0.0) -> None:
    """Refuse to time peers that do not do the same work: each result must equal the first."""
    (first, wanted), *others = ((name, np.asarray(result)) for name, result in results.items())
    for name, found in others:
        if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=0, atol=tolerance):
            raise AssertionError(f"{name} does not agree with {first}: nothing is timed.")


def _field(path: str, name: str) -> str:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "unknown")


def _peak(prepare: Callable, function: Callable, arguments: tuple) -> tuple[int, Any]:
    """VmHWM, not ``ru_maxrss``: that one a child inherits from its parent through exec."""
    state = prepare(*arguments)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is held now
    before = _field("/proc/self/status", "VmHWM").split()[0]
    result = function(state)
    return (int(_field("/proc/self/status", "VmHWM").split()[0]) - int(before)) * 1024, result


def peak_memory(prepare: Callable, function: Callable, *arguments: Any) -> tuple[int, Any]:
    """Most bytes ``function(prepare(*arguments))`` held beyond what ``prepare`` made, and its
    result. It runs in a process of its own (Linux): both must be importable by name."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_peak, prepare, function, arguments).result()


def peak_cuda(function: Callable[[], Any]) -> int:
    """Most bytes of GPU memory ``function()`` held at once beyond what was held before it; call it
    once before, or the workspace that cuBLAS keeps is counted too."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _commit() -> str:
    if given := os.environ.get("RANKBITS_COMMIT"):  # of a copy without its repository
        return given
    git = ["git", "--no-optional-locks", "-C", str(HERE)]  # others may be committing meanwhile
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
        # rows that were just written change nothing that is measured
        code = ["--", ":/src", ":/benchmarks/*.py", ":/pyproject.toml"]
        changes = subprocess.check_output([*git, "status", "--porcelain", *code])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("-dirty" if changes else "")


def _time(seconds: float) -> str:
    units = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"))
    scale, unit = next((u for u in units if seconds >= u[0]), units[-1])
    return f"{seconds / scale:.4g} {unit}"


class Bench:
    """One run of one benchmark: its provenance, the peers it met and the rows it made."""

    def __init__(self, name: str, *, threads: int, seed: int) -> None:
        torch.set_num_threads(threads)
        self.rows: list[dict[str, Any]] = []
        self.provenance = {"bench": name, "threads": threads, "cores": os.cpu_count(), "seed": seed}
        # where things lie on this machine says nothing to others
        words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
        self.provenance |= {
            "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words]),
            "commit": _commit(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "cpu": _field("/proc/cpuinfo", "model name"),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "python": sys.version.split()[0],
            "versions": {
                p: INSTALLED.get(p) for p in ("torch", "numpy", "numba", "triton", "rankbits")
            },
        }

    def peer(self, module: str, package: str) -> Any:
        """A library to compare with, or None and one sentence where it is not installed."""
        try:
            found = importlib.import_module(module)
        except ImportError:
            print(f"{module} skipped: pip install {package}")
            return None
        self.provenance["versions"][package] = INSTALLED.get(package)
        return found

    def note(self, title: str, **values: Any) -> None:
        """Keep and print a row that is no timing: a size, a value."""
        self.rows.append({"title": title, **values})
        print("\n  ".join([f"\n{title}", *(f"{k}: {v}" for k, v in values.items())]))

    def report(
        self,
        title: str,
        timings: list[Timing],
        against: tuple = (),
        *,
        megabytes: Mapping[str, float] | None = None,
        **facts: Any,
    ) -> None:
        """Keep and print timings, with a column of ratios for each name of ``against`` that ran and
        one of ``megabytes`` (1e6 bytes) by name, where it is given."""
        peers = [t for t in timings if t.name in against]
        table = [["", "median", "20%", "80%", "work", "each", *(f"x {p.name}" for p in peers)]]
        table[0] += ["MB"] if megabytes else []
        for t in timings:
            low, median, high = np.percentile(t.samples, (20, 50, 80)).tolist()
            ratios = {p.name: t.ratio(p) for p in peers}
            found = {"median": median, "p20": low, "p80": high, "ratios": ratios}
            held = {"megabytes": megabytes[t.name]} if megabytes else {}
            self.rows.append({"title": title, **asdict(t), **found, **held, **facts})
            cells = [*map(_time, (median, low, high)), f"{t.work:,.0f} {t.unit}"]
            shown = [f"{ratio:,.2f}" for ratio in ratios.values()]
            shown += [f"{value:,.1f}" for value in held.values()]
            table.append([t.name, *cells, _time(median / t.work), *shown])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print(f"\n{title} (other processes took {timings[0].others:.0%} of the machine)")
        for name, *cells in table:
            print("  ".join(["", name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]))

    def save(self) -> None:
        """Write ``results/<bench>.jsonl``, a line a row, in place of what the last run wrote;
        RANKBITS_RESULTS names another folder than ``results``."""
        self._write("w")

    def add(self) -> None:
        """As ``save``, after what other machines wrote there."""
        self._write("a")

    def _write(self, mode: str) -> None:
        folder = Path(os.environ.get("RANKBITS_RESULTS") or HERE / "results")
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{self.provenance['bench']}.jsonl", mode) as file:
            file.writelines(json.dumps({**self.provenance, **row}) + "\n" for row in self.rows)
