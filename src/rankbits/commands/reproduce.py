"""The command that repeats the papers' experiments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankbits import _check
from rankbits._check import refuse
from rankbits._option import option

HEADER = ("row", "bits", "quantizer", "varied", "metric", "here", "seeds", "paper", "ties")


@dataclass(frozen=True)
class Reproduce:
    """Repeat rows of the papers' tables: rankbits reproduce talr/table1-s1/dpsh."""

    name: ClassVar[str] = "reproduce"
    places: ClassVar[tuple[str, ...]] = ("names",)

    names: tuple[str, ...] = option((), "rows or folders of rows, as talr/table1-s1/dpsh or talr")
    bits: int | None = option(None, "only this code length")
    seed: int | None = option(None, "only this seed")
    quantizer: str | None = option(None, "only these quantizers: none,itq,h2q,supervised,...")
    jobs: int = option(1, "cells run at a time, each in a process with one thread", "j")
    short: bool = option(False, "try the cells with few steps and rows; results are kept apart")
    again: bool = option(False, "also run cells whose rows exist already")
    list: bool = option(False, "print the names of the rows and run nothing")
    recipes: str = option("reproduce", "the folder of recipes")
    results: str | None = option(None, "the folder of results (default: RECIPES/results)")
    root: str | None = option(None, "the folder of the protocols' files (default: $RANKBITS_DATA)")
    device: str = option("auto", "'cpu', 'cuda', 'cuda:1'; auto: a GPU if there is one")

    def work(self) -> None:
        from rankbits.papers import jobs, recipe, rows

        recipes = recipe.read_recipes(self.recipes, self.names)
        if self.list:
            for r in recipes:
                print(f"{r.name}  {r.paper}, {r.place}: {r.method}")
            return
        if not self.names:
            refuse("Give a row or a folder of rows; rankbits reproduce --list names them.")
        _check.whole("jobs", self.jobs, 1)
        quantizers = tuple(self.quantizer.split(",")) if self.quantizer else ()
        results = Path(self.results or Path(self.recipes) / "results")
        settings = rows.Settings(
            self.root, self.device, self.short, quantizers, self.recipes, str(results)
        )
        choices = sorted({quantizer for r in recipes for quantizer in r.quantizers})
        for quantizer in quantizers:
            _check.choice("quantizer", quantizer, choices)
        every = [
            jobs.Job(r, cell)
            for r in recipes
            if settings.choose_quantizers(r) and (self.bits is None or self.bits in r.bits)
            for cell in r.cells(self.bits, self.seed)
        ]
        if not every:
            refuse(f"None of these rows has {self.bits} bits.")
        todo = every if self.again else jobs.find_missing(every, settings, results)
        if len(todo) < len(every):
            print(f"{len(every) - len(todo):,} of {len(every):,} cells have their rows already.")
        failed = []
        for number, done in enumerate(jobs.run_jobs(todo, settings, results, self.jobs), 1):
            outcome = done.failed or ", ".join(map(_spell_row, done.rows))
            seconds = f"{done.seconds:.0f} s"
            print(f"[{number}/{len(todo)}] {done.job}: {outcome} ({seconds})", flush=True)
            failed += [done] if done.failed else []
        keys = {key for job in every for key in job.keys(settings)}
        files = {rows.name_file(results, r.paper, self.short) for r in recipes}
        stored = (row for path in sorted(files) for row in rows.read_rows(path))
        print(draw_table(row for row in stored if rows.make_key(row) in keys))
        if failed:
            first = f"{failed[0].job}: {failed[0].failed}"
            refuse(f"{len(failed):,} of {len(todo):,} cells failed; the first is {first}")


def _spell_row(row: dict[str, Any]) -> str:
    quantizer = "" if row["quantizer"] == "none" else f"{row['quantizer']} "
    return f"{quantizer}{_spell(row['value'])}"


def _spell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def draw_table(rows: Iterable[dict[str, Any]]) -> str:
    """Draw a line for each row of a paper and code length: mean and deviation over seeds, and the
    paper's figure."""
    from rankbits.papers.rows import measure_spread

    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        varied = ", ".join(f"{n} {v}" for n, v in row["vary"].items())
        bits = str(row["bits"] or "")
        place: tuple[str, ...] = (row["name"], bits, row["quantizer"], varied, row["metric"])
        groups.setdefault(place, []).append(row)
    lines: list[tuple[str, ...]] = [HEADER]
    for place, group in groups.items():
        mean, deviation = measure_spread([row["value"] for row in group])
        here = _spell(mean) + (f" +- {deviation:.4f}" if deviation is not None else "")
        ties = [measure_spread([row[end] for row in group])[0] for end in ("worst", "best")]
        span = "" if None in ties else f"{_spell(ties[0])} to {_spell(ties[1])}"
        lines.append((*place, here, str(len(group)), _spell(group[0]["paper_value"]), span))
    used = [i for i in range(len(lines[0])) if any(line[i] for line in lines[1:])]
    widths = {i: max(len(line[i]) for line in lines) for i in used}
    return "\n".join("  ".join(line[i].ljust(widths[i]) for i in used).rstrip() for line in lines)
