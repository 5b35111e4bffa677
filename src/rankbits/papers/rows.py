"""Make, read and write rows: the figures of a cell, with all that is needed to repeat it.

A row is a line of JSON. A file of rows is rewritten whole under a lock, so that parallel jobs lose
nothing and a kill leaves the file as it was.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits._files import lock_folder, write_whole
from rankbits.papers.recipe import Cell, Recipe

Row = dict[str, Any]
SHORT = "short"  # the folder of shortened runs, apart from the results
SOURCE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """The settings of the command, which hold for every cell."""

    root: str | None = None
    device: str = "auto"
    short: bool = False
    quantizers: tuple[str, ...] = ()
    recipes: str = "reproduce"
    results: str | None = None

    def choose_quantizers(self, recipe: Recipe) -> tuple[str, ...]:
        """Choose the quantizers of a recipe that the command names; all, where it names none."""
        return tuple(q for q in recipe.quantizers if not self.quantizers or q in self.quantizers)


def make_row(
    recipe: Recipe,
    cell: Cell,
    quantizer: str,
    settings: Settings,
    *,
    figures: dict[str, float],
    span: tuple[float, float],
    seconds: dict[str, float],
    chosen: dict[str, Any] | None = None,
    validation: float | None = None,
    steps: int = 0,
    **more: Any,
) -> Row:
    """Make a row. ``figures`` by name include the recipe's metric; ``span`` is the range of ties
    (worst, best); ``seconds`` are those of train, fit, encode, judge; ``more`` are further keys."""
    # a shortened run has too few rows for a cutoff such as 5,000
    metric = "mAP" if settings.short and recipe.metric not in figures else recipe.metric
    if metric not in figures:
        near = _check.suggest(metric, figures)
        _check.refuse(f"{recipe.name} has no figure '{recipe.metric}' to be judged by{near}.")
    command = f"rankbits reproduce {recipe.name}"
    command += f" --bits {cell.bits}" if cell.bits else ""
    return {
        "name": recipe.name,
        "paper": recipe.paper,
        "place": recipe.place,
        "method": recipe.method,
        "bits": cell.bits,
        "quantizer": quantizer,
        "vary": cell.vary,
        "chosen": chosen or {},
        "seed": cell.seed,
        "metric": metric,
        "value": _round(figures[metric]),
        "paper_value": recipe.figure(quantizer, cell),
        "worst": _round(span[0]),
        "best": _round(span[1]),
        "figures": {name: _round(value) for name, value in figures.items()},
        "validation": _round(validation),
        "steps": steps,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "differs": recipe.differs,
        "shortened": settings.short,
        "command": f"{command} --seed {cell.seed}" + (" --short" if settings.short else ""),
        **more,
        **describe_machine(settings.device),
    }


def _round(value: float | None) -> float | None:
    return None if value is None or value != value else round(float(value), 6)


def make_key(row: Row) -> str:
    """Make the key of a row. A new row replaces an older row with the same key.

    >>> make_key({"name": "a", "bits": 16, "quantizer": "none", "vary": {}, "seed": 0})
    '["a", 16, "none", {}, 0]'
    """
    facts = [row[name] for name in ("name", "bits", "quantizer", "vary", "seed")]
    return json.dumps(facts, sort_keys=True)


def name_file(results: Path, paper: str, short: bool = False) -> Path:
    """Name the file of a paper's rows; rows of shortened runs have a file of their own."""
    return (results / SHORT if short else results) / f"{paper.lower()}.jsonl"


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file, none where there is no file; a damaged line is refused."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            make_key(row)
        except (ValueError, KeyError, TypeError):
            _check.refuse(f"Line {number} of {path} is not a row; repair or remove it.")
        rows.append(row)
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file, each in place of the row with its key. Rows are sorted, so that the
    file does not depend on which job ends first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent):
        by_key = {make_key(row): row for row in (*read_rows(path), *rows)}
        ordered = sorted(by_key.values(), key=_order_row)
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in ordered)
        write_whole(path, lambda file: file.write(text.encode()))


def _order_row(row: Row) -> tuple[Any, ...]:
    """Return what rows are sorted by."""
    varied = [(name, *_order_value(value)) for name, value in sorted(row["vary"].items())]
    return row["name"], row["bits"] or 0, varied, row["quantizer"], row["seed"]


def _order_value(value: Any) -> tuple[float, str]:
    """Return what values are sorted by: numbers by size, then all else by its spelling."""
    number = isinstance(value, (int, float))
    return (float(value), "") if number else (math.inf, json.dumps(value))


def describe_machine(device: str = "auto") -> Row:
    """Describe what ran a cell: the commit, the date and the machine."""
    gpu = torch.cuda.is_available() and device != "cpu"
    return {
        "commit": find_commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {**_read_versions(), "gpu": torch.cuda.get_device_name() if gpu else None},
    }


@functools.cache
def _read_versions() -> Row:
    return {
        "cpu": _read_cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "numba")},
    }


def _read_cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "unknown")


@functools.cache
def find_commit() -> str:
    """Find the commit of the package, with "-dirty" where the source has changes. A copy without
    its repository names it in RANKBITS_COMMIT."""
    if commit := os.environ.get("RANKBITS_COMMIT"):
        return commit
    git = ["git", "--no-optional-locks", "-C", str(SOURCE)]
    quiet = {"stderr": subprocess.DEVNULL, "text": True}
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], **quiet)  # type: ignore[call-overload]
        changes = subprocess.check_output([*git, "status", "--porcelain", "--", "."], **quiet)  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return str(head).strip() + ("-dirty" if changes.strip() else "")


def measure_spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Measure the mean and the standard deviation of known values; None where there are too few.

    >>> measure_spread([1.0, 2.0, None]), measure_spread([None])
    ((1.5, 0.7071067811865476), (None, None))
    """
    known = [v for v in values if v is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None
