"""Run one cell of a recipe: train once, make bits with every quantizer, judge each -> rows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits._files import data_root
from rankbits.data.protocol import Protocol
from rankbits.encoder.finishing import Sides, embed_sides
from rankbits.evaluate import evaluate
from rankbits.evaluate.figures import find_cutoffs
from rankbits.metrics import rank_codes
from rankbits.papers.recipe import Cell, Recipe, read_recipes
from rankbits.papers.rotations import fit_quantizer, measure_error
from rankbits.papers.rows import Row, Settings, make_row
from rankbits.papers.scaled import make_scaled
from rankbits.papers.source import read_cell_source
from rankbits.papers.trials import list_candidates
from rankbits.quantizers import Quantizer
from rankbits.train import Run, TrainConfig, train
from rankbits.train.checkpoints import is_finished
from rankbits.train.run import read_facts
from rankbits.train.source import Source
from rankbits.types import Codes, Report, pack

CURVE = 40  # the most validations that a row lists
OTHER, ON_OTHERS = "recipe:", ("teachers", "features")
SHORT_SIDE = 64  # of the images of a shortened run: the least that AlexNet takes
AT_ONCE = 4096  # rows of features that are embedded at a time; images keep embed's default


class Clock:
    """Measures the seconds from one lap to the next."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def lap(self) -> float:
        before, self.began = self.began, time.monotonic()
        return self.began - before


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """Run a cell -> a row for each quantizer of the command."""
    trained = train_cell(recipe, cell, settings)
    run = trained.run
    options: dict[str, Any] = {"batch_size": AT_ONCE} if run.inputs.kind == "features" else {}
    clock = Clock()
    embedded = embed_sides(run, trained.protocol, **options)
    embedding = clock.lap()
    rows: list[Row] = []
    names = settings.choose_quantizers(recipe)
    learned = None if names == ("none",) else run.embed(trained.source.train, **options)
    for name in names:
        clock = Clock()
        quantizer = None
        if name != "none" and learned is not None:
            labels = trained.source.train.labels[learned.rows]
            quantizer = fit_quantizer(name, learned.embeddings, labels, run.config.seed)
        fitting = clock.lap()
        codes = _encode(quantizer, run, embedded)
        encoding = clock.lap()
        report, more = judge_codes(codes, embedded, trained.protocol, recipe.metric)
        mean = report.figures["mAP"]
        seconds = {"train": trained.seconds, "embed": embedding, "fit": fitting, "encode": encoding}
        extra: Row = {} if rows else {"curve": _read_curve(run)}
        if learned is not None and codes is not None:
            extra["error"] = round(measure_error(quantizer, learned.embeddings), 6)
        if recipe.distances and codes is not None:
            extra["distances"] = count_distances(codes, embedded)
        rows.append(
            make_row(
                recipe, cell, name, settings,
                figures={n: f.value for n, f in report.figures.items()} | more,
                span=(mean.worst, mean.best),
                seconds=seconds | {"judge": clock.lap()},
                chosen=trained.choice,
                validation=run.progress.best,
                steps=run.progress.step,
                **extra,
            )
        )  # fmt: skip
    return rows


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, what it learned from, the settings chosen for it, and how long it took."""

    run: Run
    source: Source
    protocol: Protocol
    choice: dict[str, Any]
    seconds: float


def train_cell(recipe: Recipe, cell: Cell, settings: Settings) -> Trained:
    """Train a cell with each of its candidates -> the one that is best on validation rows."""
    best: Trained | None = None
    candidates = list_candidates(recipe, settings)
    for choice in candidates:
        config = _run_others(make_config(recipe, cell, settings, choice), cell, settings)
        source = read_cell_source(config, recipe.seen, settings.short)
        clock = Clock()
        model = make_scaled(config, source.train) if recipe.scaled else None
        run = train(
            config, examples=source.train, held=source.held, model=model, say=lambda line: None
        )
        if not run.progress.finished:
            raise KeyboardInterrupt
        if len(candidates) > 1 and run.progress.best is None:
            _check.refuse(f"[choose] of {recipe.name} needs validation rows to choose by.")
        ahead = best is None or (run.progress.best or 0) > (best.run.progress.best or 0)
        if ahead and source.protocol is not None:
            best = Trained(run, source, source.protocol, choice, clock.lap())
    assert best is not None
    return best


def make_config(
    recipe: Recipe, cell: Cell, settings: Settings, choice: dict[str, Any] | None = None
) -> TrainConfig:
    """Make the settings of a cell; teachers and features still have the names of their recipes."""
    changes: dict[str, Any] = {"root": settings.root, "device": settings.device}
    cell = dataclasses.replace(cell, vary=cell.vary | (choice or {}))
    if recipe.keep:
        changes["out"] = str(name_folder(recipe, cell, settings))
    config = recipe.config(cell, **changes)
    if settings.short:
        size, chunk = min(config.batch_size, 48), config.chunk and 16
        side = config.side and min(config.side, SHORT_SIDE)
        changes = {"batch_size": size, "chunk": chunk, "side": side, "compile": False}
        config = config.with_changes(epochs=2, steps=10, **changes)
    return config


def name_folder(recipe: Recipe, cell: Cell, settings: Settings) -> Path:
    """Name the folder, below the data root, of a run that others build on."""
    words = [recipe.name.replace("/", "-"), str(cell.bits or ""), str(cell.seed)]
    words += [f"{name}={value}" for name, value in sorted(cell.vary.items())]
    words += ["short"] if settings.short else []
    return data_root(settings.root) / "runs" / "-".join(word for word in words if word)


def _run_others(config: TrainConfig, cell: Cell, settings: Settings) -> TrainConfig:
    """Run the recipes that a cell builds on: teachers and features called "recipe:NAME", with the
    same seed and their first code length -> settings that name the folders of these runs."""
    changes = {}
    for field in ON_OTHERS:
        names = [name.strip() for name in (getattr(config, field) or "").split(",")]
        for place, name in enumerate(names):
            if name.startswith(OTHER):
                (other,) = read_recipes(settings.recipes, [name.removeprefix(OTHER)])
                first = other.cells(other.bits[0] if other.bits else None, cell.seed)[0]
                names[place] = str(_run_other(other, first, settings))
        if any(names):
            changes[field] = ",".join(names)
    return config.with_changes(**changes)


def _run_other(recipe: Recipe, cell: Cell, settings: Settings) -> Path | None:
    """Run a recipe that others build on -> its folder. A finished run is used as it is, even where
    its own teachers are gone."""
    if not recipe.keep:
        _check.refuse(f"{recipe.name} must have keep = true for others to build on it.")
    folder = name_folder(recipe, cell, settings)
    if not recipe.choose and is_finished(folder):
        facts = read_facts(folder)["config"]
        facts = {name: value for name, value in facts.items() if name not in ON_OTHERS}
        make_config(recipe, cell, settings).refuse_other(facts, folder)
        return folder
    return train_cell(recipe, cell, settings).run.folder


def _encode(quantizer: Quantizer | None, run: Run, embedded: Sides) -> tuple[Codes, Codes] | None:
    """Encode both sides; None where the embeddings themselves are judged."""
    if quantizer is None and run.config.head == "embedding":
        return None
    encode: Callable[[Any], Codes] = pack if quantizer is None else quantizer.encode
    queries, database = embedded.embeddings
    codes = encode(queries)
    return codes, codes if database is queries else encode(database)


def judge_codes(
    codes: tuple[Codes, Codes] | None, embedded: Sides, protocol: Protocol, metric: str
) -> tuple[Report, dict[str, float]]:
    """Judge codes, or embeddings -> the tie-aware report, and the figure with ties broken by floats
    where the protocol breaks them. Only figures that the protocol or the metric needs are computed.
    """
    alone = protocol.exclude_self
    cutoffs = set(find_cutoffs(metric))
    hits = protocol.metric.startswith("hit")
    usual = protocol.k if hits else () if protocol.k == Protocol.k else (max(protocol.k),)
    queries, database = codes or embedded.embeddings
    points = sorted(k for k in {1, *usual, *cutoffs} if k <= len(database) - alone)
    only = {"mAP", "NDCG", "MAP@R"} if alone else {"mAP"}
    for k in points:
        only |= {f"hit@{k}"} if k == 1 or hits else {f"mAP@{k} retrieved"}
    if not metric.endswith("broken") and cutoffs <= set(points):
        only.add(metric)
    how: dict[str, Any] = {"relevance": protocol.relevance, "exclude_self": alone}
    report = evaluate(queries, database, *embedded.labels, k=points, only=sorted(only), **how)
    if codes is None or not protocol.tie_break:
        return report, {}
    k = min(max(protocol.k), len(database))
    figure = f"mAP@{k} retrieved"
    broken = evaluate(*codes, *embedded.labels, k=k, tie_break=embedded.embeddings, only=[figure])
    return report, {f"mAP@{max(protocol.k)} broken": broken[figure]}


def count_distances(codes: tuple[Codes, Codes], embedded: Sides) -> dict[str, list[int]]:
    """Count the pairs of a query and an item at each Hamming distance, by their labels."""
    counts = rank_codes(*codes, *embedded.labels).counts.sum(axis=0)
    return {"same": counts[:, 1:].sum(axis=1).tolist(), "other": counts[:, 0].tolist()}


def _read_curve(run: Run) -> list[list[float]]:
    """Read (step, validation mAP) at evenly spaced steps, which show how fast a run learned."""
    points = [
        [r["step"], round(r["validation_mAP"], 4)] for r in run.history if "validation_mAP" in r
    ]
    every = -(-len(points) // CURVE) or 1
    return points[::-1][::every][::-1]
