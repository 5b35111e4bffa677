"""Run one cell: train once, make bits with every quantizer, judge each -> rows."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits._files import data_root
from rankbits.data.protocol import Protocol
from rankbits.encoder.finishing import Sides, sides
from rankbits.evaluate import evaluate
from rankbits.papers.recipe import Cell, Recipe, combinations, recipes
from rankbits.papers.rows import Row, Settings, row_of
from rankbits.papers.scaled import scaled
from rankbits.papers.source import source_of
from rankbits.quantizers import H2Q, Quantizer, make_quantizer
from rankbits.train import Embedded, Run, TrainConfig, train
from rankbits.train.checkpoints import is_finished
from rankbits.train.run import read_facts
from rankbits.train.source import Source
from rankbits.types import Codes, Report, pack

LOSSES = {"h2q": "l2", "h2q-l1": "l1", "h2q-min": "min_entry", "h2q-variance": "bit_var"}
CURVE = 40  # validations told of in a row, at most
OTHER, ON_OTHERS = "recipe:", ("teachers", "features")
AT_ONCE = 4096  # rows of features embedded at a time; of images, embed's own


class Clock:
    """Seconds from one lap to the next."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def lap(self) -> float:
        before, self.begun = self.begun, time.monotonic()
        return self.begun - before


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """The rows of a cell, one for each quantizer asked for."""
    made = trained(recipe, cell, settings)
    options: dict[str, Any] = {"batch_size": AT_ONCE} if made.run.inputs.kind == "features" else {}
    clock = Clock()
    found = sides(made.run, made.how, **options)
    embedding = clock.lap()
    rows: list[Row] = []
    known = None
    for quantizer in settings.chosen(recipe):
        if known is None and quantizer != "none":
            known = made.run.embed(made.source.train, **options)
        clock = Clock()
        fitted = _fitted(quantizer, made, known)
        fitting = clock.lap()
        codes = _encoded(fitted, made.run, found)
        encoding = clock.lap()
        report, more = _judged(codes, found, made.how, recipe.metric)
        figures = {n: f.value for n, f in report.figures.items()} | more
        mean = report.figures["mAP"]
        spent = {"train": made.seconds, "embed": embedding, "fit": fitting, "encode": encoding}
        extra: Row = {} if rows else {"curve": _curve(made.run)}
        rows.append(
            row_of(
                recipe, cell, quantizer, settings,
                figures=figures,
                span=(mean.worst, mean.best),
                seconds=spent | {"judge": clock.lap()},
                chosen=made.chosen,
                validation=made.run.progress.best,
                steps=made.run.progress.step,
                **extra,
            )
        )  # fmt: skip
    return rows


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, what it learned from, the candidates chosen for it, and how long it took."""

    run: Run
    source: Source
    how: Protocol
    chosen: dict[str, Any]
    seconds: float


def trained(recipe: Recipe, cell: Cell, settings: Settings) -> Trained:
    """Train a cell; of the candidates of [choose], the one best on validation rows."""
    best: Trained | None = None
    candidates = combinations(recipe.choose)
    for choice in candidates:
        config = _on_others(config_of(recipe, cell, settings, choice), cell, settings)
        source = source_of(config, recipe.seen, settings.short)
        clock = Clock()
        model = scaled(config, source.train) if recipe.scaled else None
        run = train(config, examples=source.train, held=source.held, model=model, say=_quiet)
        if not run.progress.finished:
            raise KeyboardInterrupt
        if len(candidates) > 1 and run.progress.best is None:
            _check.refuse(f"[choose] of {recipe.name} needs validation rows to choose by.")
        ahead = best is None or (run.progress.best or 0) > (best.run.progress.best or 0)
        if ahead and source.protocol is not None:
            best = Trained(run, source, source.protocol, choice, clock.lap())
    assert best is not None
    return best


def config_of(
    recipe: Recipe, cell: Cell, settings: Settings, choice: dict[str, Any] | None = None
) -> TrainConfig:
    """The settings a cell is trained with; what it builds on still has its recipe's name."""
    changes: dict[str, Any] = {"root": settings.root, "device": settings.device}
    one = dataclasses.replace(cell, vary=cell.vary | (choice or {}))
    if recipe.keep:
        changes["out"] = str(kept(recipe, one, settings))
    config = recipe.config(one, **changes)
    if settings.short:
        size = min(config.batch_size, 48)
        config = config.with_changes(epochs=2, steps=10, batch_size=size, chunk=None)
    return config


def kept(recipe: Recipe, cell: Cell, settings: Settings) -> Path:
    """The folder below the data root of a run that others build on."""
    words = [recipe.name.replace("/", "-"), str(cell.bits or ""), str(cell.seed)]
    words += [f"{name}={value}" for name, value in sorted(cell.vary.items())]
    words += ["short"] if settings.short else []
    return data_root(settings.root) / "runs" / "-".join(word for word in words if word)


def _on_others(config: TrainConfig, cell: Cell, settings: Settings) -> TrainConfig:
    """Run the recipes that a cell builds on: teachers and features called "recipe:NAME", with the
    same seed and their first code length. A run that was kept is not run again."""
    changes = {}
    for field in ON_OTHERS:
        names = [name.strip() for name in (getattr(config, field) or "").split(",")]
        for place, name in enumerate(names):
            if name.startswith(OTHER):
                (found,) = recipes(settings.recipes, [name.removeprefix(OTHER)])
                first = found.cells(found.bits[0] if found.bits else None, cell.seed)[0]
                names[place] = str(_built(found, first, settings))
        if any(names):
            changes[field] = ",".join(names)
    return config.with_changes(**changes)


def _built(recipe: Recipe, cell: Cell, settings: Settings) -> Path | None:
    """The folder of a run that others build on. One that is finished is taken as it is: its own
    teachers need not be there any more, nor label its images again."""
    if not recipe.keep:
        _check.refuse(f"{recipe.name} must have keep = true for others to build on it.")
    folder = kept(recipe, cell, settings)
    if not recipe.choose and is_finished(folder):
        facts = read_facts(folder)["config"]
        own = {name: value for name, value in facts.items() if name not in ON_OTHERS}
        config_of(recipe, cell, settings).refuse_other(own, folder)
        return folder
    return trained(recipe, cell, settings).run.folder


def _quiet(line: str) -> None:
    pass


def _fitted(name: str, trained: Trained, known: Embedded | None) -> Quantizer | None:
    """The quantizer called so, fitted to the outputs for the training rows; None: plain signs."""
    if name == "none" or known is None:
        return None
    seed, width = trained.run.config.seed, trained.run.config.width
    made: Quantizer = (
        H2Q(loss=LOSSES[name], seed=seed)
        if name in LOSSES
        else make_quantizer(name, width, width, labelled=True, seed=seed)
    )
    return made.fit(known.embeddings, trained.source.train.labels[known.rows])


def _encoded(made: Quantizer | None, run: Run, found: Sides) -> tuple[Codes, Codes] | None:
    """Codes of both sides; None where embeddings are judged as they are."""
    if made is None and run.config.head == "embedding":
        return None
    encode: Callable[[Any], Codes] = pack if made is None else made.encode
    ours, theirs = found.embeddings
    first = encode(ours)
    return first, first if theirs is ours else encode(theirs)


def _judged(
    codes: tuple[Codes, Codes] | None, found: Sides, how: Protocol, metric: str
) -> tuple[Report, dict[str, float]]:
    """The tie-aware report, and what breaking ties by floats makes of it where the protocol does.

    Only the figures that the protocol or the metric needs are computed, which saves time.
    """
    named = {int(k) for k in re.findall(r"@(\d+)", metric)}
    usual = how.k if how.exclude_self else (max(how.k),) if how.tie_break else ()
    (ours, theirs), (labels, others) = codes or found.embeddings, found.labels
    points = sorted(k for k in {1, *usual, *named} if k <= len(theirs) - how.exclude_self)
    only = {"mAP", "NDCG", "MAP@R"} if how.exclude_self else {"mAP"}
    for k in points:
        only |= {f"hit@{k}"} if k == 1 or how.exclude_self else {f"mAP@{k} retrieved"}
    if not metric.endswith("broken") and named <= set(points):
        only.add(metric)
    report = evaluate(
        ours,
        theirs,
        labels,
        others,
        k=points,
        relevance=how.relevance,
        exclude_self=how.exclude_self,
        only=sorted(only),
    )
    if codes is None or not how.tie_break:
        return report, {}
    k = min(max(how.k), len(theirs))
    figure = f"mAP@{k} retrieved"
    broken = evaluate(ours, theirs, labels, others, k=k, tie_break=found.embeddings, only=[figure])
    return report, {f"mAP@{max(how.k)} broken": broken[figure]}


def _curve(run: Run) -> list[list[float]]:
    """(step, validation mAP) at evenly spaced steps, which show how fast it learned."""
    seen = [
        (r["step"], round(r["validation_mAP"], 4)) for r in run.history if "validation_mAP" in r
    ]
    every = -(-len(seen) // CURVE) or 1
    return [list(point) for point in seen[::-1][::every][::-1]]
