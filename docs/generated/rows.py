"""Tables of the committed benchmark rows, each with its command, machine, commit and date."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ORIGIN = {
    "bench", "threads", "cores", "seed", "command", "commit", "date", "cpu", "gpu", "python",
    "versions", "title", "name", "samples", "work", "unit", "others", "p20", "p80", "ratios",
    "median", "note", "torch", "origin",
}  # fmt: skip
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def seconds(value: float) -> str:
    units = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
    scale, unit = next((u for u in units if value >= u[0]), units[-1])
    return f"{value / scale:.3g} {unit}"


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return "; ".join(f"{k} {cell(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    return str(value).replace("|", "\\|")


def table(head: list[str], lines: Iterable[list[str]]) -> str:
    text = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*text, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def origin(row: Row) -> str:
    machine = f"{row['gpu']}, {row.get('cpu', '')}" if row.get("gpu") else row.get("cpu", "")
    cores = f", {row['cores']} cores, {row['threads']} threads" if "cores" in row else ""
    versions = row.get("versions") or ({"torch": row["torch"]} if "torch" in row else {})
    shown = ", ".join(f"{name} {v}" for name, v in versions.items() if v)
    commit, dirty, _ = row["commit"].partition("-")
    commit = f"{commit[:12]}-dirty" if dirty else commit[:12]
    note = f" ({row['note']})" if row.get("note") else ""
    return (
        f"`{row['command']}`, {row['date'][:10]}, commit `{commit}`{note}, "
        f"{machine.strip(', ')}{cores}; {shown}."
    )


def grouped(rows: list[Row], key: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get(key, ""), []).append(row)
    return found


def alike(rows: list[Row]) -> list[list[Row]]:
    """Rows that have the same facts, together: a table each. A column may be empty for a peer that
    has no seconds, so it does not count."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        facts = {n for n in row if n not in ORIGIN and not n.startswith("seconds")}
        found.setdefault(tuple(sorted(facts)), []).append(row)
    return list(found.values())


def timings(rows: list[Row]) -> str:
    """Medians with 20 and 80 percent, each unit of work, ratios to the peers."""
    peers = sorted({name for row in rows for name in row.get("ratios", {})})
    memory = any("megabytes" in row for row in rows)
    lines = []
    for row in rows:
        spread = f"{seconds(row['p20'])} to {seconds(row['p80'])}"
        each = f"{seconds(row['median'] / row['work'])} / {row['unit']}"
        ratios = [cell(row["ratios"].get(peer)) for peer in peers]
        held = [cell(row.get("megabytes"))] if memory else []
        lines.append([row["name"], seconds(row["median"]), spread, each, *ratios, *held])
    head = ["", "median", "20 to 80 %", "each", *(f"x {peer}" for peer in peers)]
    return table([*head, "MB"] if memory else head, lines)


def joined(row: Row) -> Row:
    """A row with ``mAP``, ``mAP mean`` and ``mAP deviation`` as one, the mean and deviation."""
    found = {}
    for name, value in row.items():
        if name.endswith(" mean"):
            found[name[:-5]] = f"{value:.4g} ± {row[f'{name[:-5]} deviation']:.2g}"
        elif f"{name} mean" not in row and not name.endswith(" deviation"):
            found[name] = value
    return found


def values(rows: list[Row]) -> str:
    """What is no timing: a line a row, a column for each fact that any row has."""
    rows = [joined(row) for row in rows]
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n not in ORIGIN]
    titles = {row.get("title") for row in rows}
    one = len(titles) == 1 and titles != {None}
    head = [n for n in ("title", "name") if any(n in row for row in rows)][one:] + names
    above = f"**{titles.pop()}**\n\n" if one else ""
    if len(names) > 8:  # wide rows are read as lists
        lines = (
            f"- {cell(row.get('title') or row.get('name') or '')} "
            + "; ".join(f"{n} {cell(row[n])}" for n in names if row.get(n) is not None)
            for row in rows
        )
        return above + "\n".join(lines)
    used = [n for n in head if any(row.get(n) is not None for row in rows)]
    return above + table(used, ([cell(row.get(n)) for n in used] for row in rows))


def section(path: Path) -> str:
    rows = read(path)
    text = f"\n## {path.stem.replace('_', ' ')}\n"
    for above, run in grouped([{**row, "origin": origin(row)} for row in rows], "origin").items():
        text += f"\n{above}\n"
        timed = [row for row in run if "median" in row]
        for title, group in grouped(timed, "title").items():
            text += f"\n**{title}**\n\n{timings(group)}"
        others = [row for row in run if "median" not in row]
        for same in alike(others):
            text += f"\n{values(same)}\n"
    return text


def page(results: Path = RESULTS) -> str:
    text = (
        "# Benchmarks\n\nAbove each table are the command that made it, the date, the commit and "
        "the machine. Timings are medians, with the 20th and 80th percentiles beside them. Peers "
        "are timed in turn, one sample each. *x NAME* is the time divided by that of NAME for the "
        "same work: below 1 is faster. This page is made from the rows in `benchmarks/results`; "
        "nothing is typed by hand. `make bench` measures again on your machine.\n"
    )
    return text + "".join(section(path) for path in sorted(results.glob("*.jsonl")))
