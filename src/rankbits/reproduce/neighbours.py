"""Cells without labels: TALR's LabelMe experiment (Sec. 5.3, Table 3) on any features.

Neighbours are what lies near: ``losses.neighbours`` grades pairs by thresholds on the distances of
the training rows. Hash functions are linear; those of a loss are trained on the grades of their
batches (binary ones where the loss knows no more), the others are fitted to the features alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.splits import drawn
from rankbits.evaluate import evaluate
from rankbits.losses import Neighbours, neighbour_grades, neighbour_thresholds
from rankbits.losses.named import make_loss
from rankbits.metrics import ndcg, rank_codes
from rankbits.quantizers import H2Q, ITQ, Projection
from rankbits.quantizers.principal import principal_components
from rankbits.reproduce.cell import Clock
from rankbits.reproduce.recipe import Cell, Recipe, combinations
from rankbits.reproduce.rows import Row, Settings, row_of
from rankbits.reproduce.source import source_of
from rankbits.train import Run, TrainConfig, train
from rankbits.train.source import Source
from rankbits.types import Codes, Report, pack

Encode = Callable[[np.ndarray], Codes]
VALIDATION = 0.1  # share of the training rows that candidates are compared on
METHODS = ("lsh", "pca-sign", "itq", "h2q", "pca", "neighbours")  # what a quantizer may be
K = 100


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """A row for each quantizer asked for: ``"none"`` are the signs of what [train] learns."""
    changes = {"root": settings.root, "device": settings.device}
    config = recipe.config(cell, **changes)
    if settings.short:
        config = config.with_changes(epochs=2, steps=10, batch_size=min(config.batch_size, 100))
    source = source_of(config, None, settings.short)
    known = _features(source.train)
    asked, found, grades = _judged_by(source)
    rows = []
    for quantizer in settings.chosen(recipe):
        clock = Clock()
        encode: Encode
        more: dict[str, Any] = {}
        if quantizer == "none":
            run, more = _chosen(recipe, cell, config, known)
            encode = _signs(run)
            more["steps"] = run.progress.step
        else:
            encode = fitted(quantizer, known, config.width, cell.seed)
        spent = {"train" if quantizer == "none" else "fit": clock.lap()}
        codes = encode(asked), encode(found)
        spent["encode"] = clock.lap()
        report = evaluate(*codes, relevance=grades, k=min(K, len(found)))
        spent["judge"] = clock.lap()
        rows.append(_row(recipe, cell, quantizer, settings, report, spent, more))
    return rows


@functools.lru_cache(maxsize=4)
def _judged_by(source: Source) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, database, and the grades of their pairs: made once for the cells of a seed."""
    how = source.protocol
    assert how is not None
    asked, found = (_features(how.examples.subset(rows)) for rows in (how.queries, how.database))
    limits = neighbour_thresholds(_features(source.train))
    return asked, found, neighbour_grades(asked, found, limits).numpy()


def _row(
    recipe: Recipe,
    cell: Cell,
    quantizer: str,
    settings: Settings,
    report: Report,
    seconds: dict[str, float],
    more: dict[str, Any],
) -> Row:
    kept = [name for name in report.figures if name.startswith(("mAP", "NDCG"))]
    figures = {name: report.figures[name].value for name in kept if "retrieved" not in name}
    judged = report.figures.get(recipe.metric, report.figures["mAP"])
    return row_of(
        recipe,
        cell,
        quantizer,
        settings,
        figures=figures,
        span=(judged.worst, judged.best),
        seconds=seconds,
        without_neighbours=report.without_relevant,
        **more,
    )


def _chosen(
    recipe: Recipe, cell: Cell, config: TrainConfig, known: np.ndarray
) -> tuple[Run, dict[str, Any]]:
    """The run of what [train] says; of the candidates of [choose] the one that ranks best, in NDCG,
    a tenth of the training rows, which then none of them learns from."""
    candidates = combinations(recipe.choose)
    if len(candidates) == 1:
        return learned(config, known), {}
    held, rest = drawn(np.arange(len(known)), (round(VALIDATION * len(known)),), cell.seed)
    grades = neighbour_grades(known[held], known[rest], neighbour_thresholds(known)).numpy()
    kept = {name: getattr(config, name) for name in ("root", "device", "epochs", "steps")}
    kept["batch_size"] = config.batch_size
    best: tuple[float, Run | None, dict[str, Any]] = (-1.0, None, {})
    for choice in candidates:
        one = dataclasses.replace(cell, vary=cell.vary | choice)
        settings = recipe.config(one, **{n: v for n, v in kept.items() if n not in choice})
        run = learned(settings, known[rest])
        encode = _signs(run)
        ranking = rank_codes(encode(known[held]), encode(known[rest]), relevance=grades)
        value = float(np.nanmean(ndcg(ranking)))
        if value > best[0]:
            best = (value, run, choice)
    assert best[1] is not None
    return best[1], {"chosen": best[2], "validation": best[0]}


def learned(config: TrainConfig, known: np.ndarray) -> Run:
    """A run of ``config`` on features, whose loss takes near rows instead of labels."""
    rows = np.arange(len(known))
    torch.manual_seed(config.seed)
    inner = make_loss(config.loss, config.width, rows, **(config.options or {}))
    if not isinstance(inner, torch.nn.Module):
        _check.refuse(f"Loss '{config.loss}' takes no affinity.")
    loss = Neighbours(inner, known, seed=config.seed)
    examples = Examples(known, rows)
    run = train(config, examples=examples, loss=loss, validation=0.0, say=lambda line: None)
    if not run.progress.finished:
        raise KeyboardInterrupt
    return run


def fitted(name: str, known: np.ndarray, bits: int, seed: int) -> Encode:
    """Linear hash functions fitted to features alone, by name.

    ``lsh``: random directions from the mean. ``pca-sign``: principal components; ``itq`` and
    ``h2q`` rotate them. ``pca`` and ``neighbours`` are those of :class:`rankbits.Projection`.

    >>> x = np.random.default_rng(0).standard_normal((100, 12)).astype(np.float32)
    >>> [fitted(name, x, 8, seed=0)(x).bits for name in ("lsh", "pca-sign", "itq")]
    [8, 8, 8]
    """
    _check.choice("A quantizer without labels", name, METHODS)
    if name in ("pca", "neighbours"):
        return Projection(bits, objective=name, seed=seed).fit(known).encode
    mean = known.mean(axis=0)
    if name == "lsh":
        drawn_from = np.random.default_rng(seed)
        directions = drawn_from.standard_normal((known.shape[1], bits)).astype(np.float32)
    else:
        directions = principal_components(known)[1][:, :bits].float().numpy()
    if name in ("lsh", "pca-sign"):
        return lambda rows: pack((rows - mean) @ directions)
    made = ITQ(start="random", seed=seed) if name == "itq" else H2Q(seed=seed)
    made.fit((known - mean) @ directions)
    return lambda rows: made.encode((rows - mean) @ directions)


def _signs(run: Run) -> Encode:
    return lambda rows: pack(run.embed(rows, batch_size=4096).embeddings)


def _features(examples: Examples) -> np.ndarray:
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "features":
        _check.refuse(f"Neighbours without labels are those of features; got {examples.kind}.")
    return examples.inputs.astype(np.float32, copy=False)
