"""Rows: what a cell gave, with all that is needed to give it again, one JSON line each.

A file of rows is rewritten whole under a lock, so that jobs in parallel lose nothing and a kill
leaves the file as it was.
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
SHORT = "short"  # the folder of shortened runs, apart from the rows that count
SOURCE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """The command's settings for every cell: where the data are, what runs it, how short it is."""

    root: str | None = None
    device: str = "auto"
    short: bool = False
    quantizers: tuple[str, ...] = ()
    recipes: str = "reproduce"
    results: str | None = None

    def choose_quantizers(self, recipe: Recipe) -> tuple[str, ...]:
        """The quantizers of a recipe that were asked for: all, where none was."""
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
    """A row: ``figures`` by name, the recipe's metric among them; ``span`` is the range (worst,
    best) that ties leave mAP; ``seconds`` of train, fit, encode, judge; ``more`` goes along."""
    # the few rows of a shortened run have no cutoff at 5,000
    metric = "mAP" if settings.short and recipe.metric not in figures else recipe.metric
    if metric not in figures:
        near = _check.nearest(metric, figures)
        _check.refuse(f"{recipe.name} is judged by '{recipe.metric}', which was not found{near}.")
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
        **provenance(settings.device),
    }


def _round(value: float | None) -> float | None:
    return None if value is None or value != value else round(float(value), 6)


def key(row: Row) -> str:
    """The key of a row. A new row replaces an older row with the same key.

    >>> key({"name": "a", "bits": 16, "quantizer": "none", "vary": {}, "seed": 0})
    '["a", 16, "none", {}, 0]'
    """
    facts = [row[name] for name in ("name", "bits", "quantizer", "vary", "seed")]
    return json.dumps(facts, sort_keys=True)


def name_file(results: Path, paper: str, short: bool = False) -> Path:
    """The file of a paper's rows; rows of shortened runs have a file of their own."""
    return (results / SHORT if short else results) / f"{paper.lower()}.jsonl"


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, none where there is no file; a damaged line is refused by number."""
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key(row)
        except (ValueError, KeyError, TypeError):
            _check.refuse(f"Line {number} of {path} is no row; mend or remove it.")
        rows.append(row)
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Put rows into a file, each in place of what stood there under its key; sorted, so that the
    order in which jobs end leaves no trace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent):
        kept = {key(row): row for row in (*read_rows(path), *rows)}
        lines = (
            json.dumps(row, allow_nan=False) + "\n" for row in sorted(kept.values(), key=_place)
        )
        text = "".join(lines)
        write_whole(path, lambda file: file.write(text.encode()))


def _place(row: Row) -> tuple[Any, ...]:
    """What rows are sorted by."""
    varied = [(name, *_order_value(value)) for name, value in sorted(row["vary"].items())]
    return row["name"], row["bits"] or 0, varied, row["quantizer"], row["seed"]


def _order_value(value: Any) -> tuple[float, str]:
    """Numbers by size, before everything else by its spelling."""
    number = isinstance(value, (int, float))
    return (float(value), "") if number else (math.inf, json.dumps(value))


def provenance(device: str = "auto") -> Row:
    """The commit, the date, the machine: what ran."""
    gpu = torch.cuda.is_available() and device != "cpu"
    return {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {**_machine(), "gpu": torch.cuda.get_device_name() if gpu else None},
    }


@functools.cache
def _machine() -> Row:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "numba")},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "unknown")


@functools.cache
def commit() -> str:
    """RANKBITS_COMMIT (of a copy without its repository), or the head of the repository the package
    lies in, "-dirty" where the source has changes."""
    if named := os.environ.get("RANKBITS_COMMIT"):
        return named
    git = ["git", "--no-optional-locks", "-C", str(SOURCE)]
    quiet = {"stderr": subprocess.DEVNULL, "text": True}
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], **quiet)  # type: ignore[call-overload]
        changes = subprocess.check_output([*git, "status", "--porcelain", "--", "."], **quiet)  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return str(head).strip() + ("-dirty" if changes.strip() else "")


def measure_spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation over seeds of what is known; None where it cannot be said.

    >>> measure_spread([1.0, 2.0, None]), measure_spread([None])
    ((1.5, 0.7071067811865476), (None, None))
    """
    known = [v for v in values if v is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None
