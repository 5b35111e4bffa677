"""Read the entries of a comparison: runs, codes and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rankbits import _check
from rankbits.encoder.finishing import EVIDENCE, JUDGED
from rankbits.encoder.folder import QUANTIZER
from rankbits.evaluate import evaluate
from rankbits.quantizers import load
from rankbits.train.checkpoints import CHECKPOINT, WEIGHTS
from rankbits.train.log import read_log
from rankbits.train.run import RUN, read_facts
from rankbits.types import Codes, Evidence, Report

QUERIES, DATABASE = "queries.npz", "database.npz"
CUTOFFS = (10, 100, 1000)


@dataclass(frozen=True, eq=False, repr=False)
class Entry:
    """A judged run or judged codes: the ``report`` and, where they are known, the evidence behind
    it, and the settings, the log and the seconds of the training.

    ``named``: the user gave the name; otherwise it comes from a path. ``quantizer``: the class that
    made the bits. ``floats``: how many numbers an item had before.
    """

    name: str
    source: str
    report: Report
    evidence: Evidence | None = None
    settings: Mapping[str, Any] | None = None
    class_names: tuple[str, ...] = ()
    log: Sequence[Mapping[str, Any]] = ()
    seconds: float | None = None
    floats: int | None = None
    quantizer: str = ""
    named: bool = field(default=False, compare=False)

    def per_query(self, figure: str) -> Any:
        """The values (Q,) of a figure, or None where only its mean is known."""
        values = self.report.per_query.get(figure)
        return self.evidence.per_query.get(figure) if values is None and self.evidence else values

    def __repr__(self) -> str:
        return f"Entry({self.name}: {self.report.title})"


def read_entry(
    source: str | Path, *, k: Sequence[int] = CUTOFFS, relevance: str = "any", radius: int = 2
) -> Entry:
    """Read a run, codes or a report -> ``Entry``. ``source`` may begin with ``NAME=``, and is

    - the folder of a run that ``rankbits train --judge`` judged;
    - a folder with ``queries.npz`` and ``database.npz``, codes with labels;
    - ``QUERIES.npz,DATABASE.npz``, two files of codes with labels;
    - a ``.json`` that ``rankbits evaluate --json`` printed.

    Codes are judged here, with the ``k``, ``relevance`` and ``radius`` of ``rb.evaluate``; what was
    judged before keeps its own.

    >>> import tempfile
    >>> import rankbits as rb
    >>> codes = rb.pack([[1, 1], [1, -1], [-1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("queries", "database"):
    ...         codes.save(f"{folder}/{name}.npz", labels=[7, 7, 3])
    ...     read_entry(f"mine={folder}", k=[1])
    Entry(mine: 3 queries x 3 database items, 2 bits)
    """
    if not isinstance(source, (str, Path)):
        _check.refuse(
            "Each source must name a run's folder, a report (.json) or two files of codes; got "
            f"{type(source).__name__}."
        )
    text = str(source)
    name, equals, rest = text.partition("=")
    if not equals or Path(text).exists():
        name, rest = "", text
    path = Path(rest)
    options: dict[str, Any] = {"k": tuple(k), "relevance": relevance, "radius": radius}
    if path.is_dir():
        entry = _read_folder(path, options)
    elif path.suffix == ".json" and path.is_file():
        entry = _read_report(path)
    elif "," in rest and not path.exists():
        first, _, second = rest.partition(",")
        entry = _judge_codes(Path(first), Path(second), options)
    elif path.exists():
        _check.refuse(
            f"{path} must be a run's folder, a report (.json) or two files of codes joined by a "
            "comma, QUERIES.npz,DATABASE.npz."
        )
    else:
        _check.refuse(f"{path} does not exist.")
    return replace(entry, name=name, named=True) if name else entry


def _read_report(path: Path) -> Entry:
    name = path.parent.resolve().name if path.name == JUDGED else path.stem
    return Entry(name, str(path), Report.from_json(path.read_bytes(), str(path)))


def _judge_codes(queries: Path, database: Path, options: dict[str, Any]) -> Entry:
    (query_codes, of_queries), (database_codes, of_database) = (
        Codes.load_columns(path) for path in (queries, database)
    )
    for path, columns in ((queries, of_queries), (database, of_database)):
        if "labels" not in columns:
            _check.refuse(f"{path} holds no labels: save them with codes.save(path, labels=...).")
    codes = query_codes, database_codes
    labels = _check.number_names(of_queries["labels"], of_database["labels"])
    report = evaluate(*codes, *labels, **options)
    evidence = Evidence(report.per_query, codes, labels, relevance=options["relevance"])
    one_folder = queries.parent.resolve() == database.parent.resolve()
    usual = one_folder and (queries.name, database.name) == (QUERIES, DATABASE)
    name = database.resolve().parent.name if usual else database.stem
    return Entry(name, f"{queries},{database}", report, evidence)


def _read_folder(folder: Path, options: dict[str, Any]) -> Entry:
    if (folder / JUDGED).is_file():
        entry = _read_report(folder / JUDGED)
        path = folder / EVIDENCE
        evidence = Evidence.load(path) if path.is_file() else None
        counts = {len(v) for v in evidence.per_query.values()} if evidence else set()
        if counts - {entry.report.queries}:
            _check.refuse(f"{path} must have the queries of {folder / JUDGED}; it has others.")
    elif (folder / QUERIES).is_file() and (folder / DATABASE).is_file():
        entry = _judge_codes(folder / QUERIES, folder / DATABASE, options)
        evidence = entry.evidence
    else:
        _check.refuse(
            f"{folder} must hold {JUDGED} (rankbits train --judge) or the codes {QUERIES} and "
            f"{DATABASE}; it holds neither."
        )
    about: dict[str, Any] = {}
    if (folder / RUN).is_file():
        facts = read_facts(folder)
        if not isinstance(facts["config"], dict) or not isinstance(facts["inputs"], dict):
            _check.refuse(f"{folder / RUN} is damaged or not a run's description.")
        about = {
            "settings": facts["config"],
            "class_names": tuple(map(str, facts["class_names"] or ())),
            "log": [row for row in read_log(folder) if isinstance(row, dict)],
            "seconds": _read_seconds(folder),
            "floats": facts["config"].get("dim") or facts["config"].get("bits") or 64,
        }
    if (folder / QUANTIZER).is_file():
        about["quantizer"] = type(load(folder / QUANTIZER)).__name__
    return Entry(folder.resolve().name, str(folder), entry.report, evidence, **about)


def _read_seconds(folder: Path) -> float | None:
    """Read the seconds of training from the header of the checkpoint; None where it has none."""
    for name in (CHECKPOINT, WEIGHTS):
        try:
            with safe_open(folder / name, framework="numpy") as archive:
                facts = json.loads((archive.metadata() or {})["facts"])
            return float(facts.get("progress", facts)["seconds"]) or None
        except Exception:  # a foreign header may raise anything: then the seconds are not known
            continue
    return None
