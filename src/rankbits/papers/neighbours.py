"""Run cells without labels: TALR's LabelMe experiment (Sec. 5.3, Table 3) on any features.

Near rows are neighbours: ``losses.neighbours`` grades pairs by thresholds on the distances of the
training rows. With the quantizer "none" a linear hash function is trained on the grades of its
batches (two grades where the loss takes no more); the other quantizers are fitted to the features.
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
from rankbits.evaluate import evaluate
from rankbits.losses import Neighbours, neighbour_grades, neighbour_thresholds
from rankbits.losses.named import make_loss
from rankbits.metrics import ndcg, rank_codes
from rankbits.papers.cell import Clock
from rankbits.papers.draws import draw_rows
from rankbits.papers.recipe import Cell, Recipe, combine
from rankbits.papers.rows import Row, Settings, make_row
from rankbits.papers.source import check_features, read_cell_source
from rankbits.quantizers import H2Q, ITQ, make_quantizer
from rankbits.quantizers.principal import principal_components
from rankbits.train import Run, TrainConfig, train
from rankbits.train.source import Source
from rankbits.types import Codes, pack

Encode = Callable[[np.ndarray], Codes]
VALIDATION = 0.1  # share of the training rows that candidates are compared on
OURS = ("pca", "neighbours", "bre", "fasthash", "structhash", "machash")
METHODS = ("lsh", "pca-sign", "itq", "h2q", *OURS)
K = 100


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """Run a cell -> a row for each quantizer; ``"none"`` takes the signs of the trained outputs."""
    changes = {"root": settings.root, "device": settings.device}
    config = recipe.config(cell, **changes)
    if settings.short:
        config = config.with_changes(epochs=2, steps=10, batch_size=min(config.batch_size, 100))
    source = read_cell_source(config, None, settings.short)
    features = _read_features(source.train)
    queries, database, grades = _read_judged(source)
    rows = []
    for quantizer in settings.choose_quantizers(recipe):
        clock = Clock()
        encode: Encode
        more: dict[str, Any] = {}
        if quantizer == "none":
            run, more = _choose_run(recipe, cell, config, features)
            encode = _encode_signs(run)
            more["steps"] = run.progress.step
        else:
            encode = fit_encoder(quantizer, features, config.width, cell.seed)
        spent = {"train" if quantizer == "none" else "fit": clock.lap()}
        codes = encode(queries), encode(database)
        spent["encode"] = clock.lap()
        report = evaluate(*codes, relevance=grades, k=min(K, len(database)))
        spent["judge"] = clock.lap()
        judged = report.figures.get(recipe.metric, report.figures["mAP"])
        figures = {
            name: figure.value
            for name, figure in report.figures.items()
            if name.startswith(("mAP", "NDCG")) and "retrieved" not in name
        }
        rows.append(
            make_row(
                recipe, cell, quantizer, settings,
                figures=figures,
                span=(judged.worst, judged.best),
                seconds=spent,
                without_neighbours=report.without_relevant,
                **more,
            )
        )  # fmt: skip
    return rows


@functools.lru_cache(maxsize=4)
def _read_judged(source: Source) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the queries, the database and the grades of their pairs, once for all cells."""
    protocol = source.protocol
    assert protocol is not None
    queries, database = (_read_features(protocol.part(s)) for s in ("queries", "database"))
    limits = neighbour_thresholds(_read_features(source.train))
    return queries, database, neighbour_grades(queries, database, limits).numpy()


def _choose_run(
    recipe: Recipe, cell: Cell, config: TrainConfig, features: np.ndarray
) -> tuple[Run, dict[str, Any]]:
    """Train as [train] says -> the run, and what the row says of its choice. Where [choose] has
    candidates, they learn from nine tenths of the training rows, and the one with the best NDCG on
    the last tenth is chosen."""
    candidates = combine(recipe.choose)
    if len(candidates) == 1:
        return train_on_neighbours(config, features), {}
    few = round(VALIDATION * len(features))
    validation, rest = draw_rows(np.arange(len(features)), (few,), cell.seed)
    limits = neighbour_thresholds(features)
    grades = neighbour_grades(features[validation], features[rest], limits).numpy()
    names = ("root", "device", "epochs", "steps", "batch_size")
    shared = {name: getattr(config, name) for name in names}
    best: tuple[float, Run | None, dict[str, Any]] = (-1.0, None, {})
    for choice in candidates:
        varied = dataclasses.replace(cell, vary=cell.vary | choice)
        settings = recipe.config(varied, **{n: v for n, v in shared.items() if n not in choice})
        run = train_on_neighbours(settings, features[rest])
        encode = _encode_signs(run)
        codes = encode(features[validation]), encode(features[rest])
        ranking = rank_codes(*codes, relevance=grades)
        value = float(np.nanmean(ndcg(ranking)))
        if value > best[0]:
            best = (value, run, choice)
    assert best[1] is not None
    return best[1], {"chosen": best[2], "validation": best[0]}


def train_on_neighbours(config: TrainConfig, features: np.ndarray) -> Run:
    """Train on features with a loss that takes near rows instead of labels."""
    rows = np.arange(len(features))
    torch.manual_seed(config.seed)
    inner = make_loss(config.loss, config.width, rows, **(config.options or {}))
    if not isinstance(inner, torch.nn.Module):
        _check.refuse(f"Loss '{config.loss}' takes no affinity.")
    loss = Neighbours(inner, features, seed=config.seed)
    examples = Examples(features, rows)
    run = train(config, examples=examples, loss=loss, validation=0.0, say=lambda line: None)
    if not run.progress.finished:
        raise KeyboardInterrupt
    return run


def fit_encoder(name: str, features: np.ndarray, bits: int, seed: int) -> Encode:
    """Fit the hash functions called ``name`` to features, without labels.

    ``lsh``: random directions from the mean. ``pca-sign``: principal components; ``itq`` and
    ``h2q`` rotate them. The others are those that ``rankbits fit --method`` knows.

    >>> x = np.random.default_rng(0).standard_normal((100, 12)).astype(np.float32)
    >>> [fit_encoder(name, x, 8, seed=0)(x).bits for name in ("lsh", "pca-sign", "itq")]
    [8, 8, 8]
    """
    _check.choice("A quantizer without labels", name, METHODS)
    if name in OURS:
        return make_quantizer(name, bits, features.shape[1], False, seed).fit(features).encode
    mean = features.mean(axis=0)
    if name == "lsh":
        drawn_from = np.random.default_rng(seed)
        directions = drawn_from.standard_normal((features.shape[1], bits)).astype(np.float32)
    else:
        directions = principal_components(features)[1][:, :bits].float().numpy()
    if name in ("lsh", "pca-sign"):
        return lambda rows: pack((rows - mean) @ directions)
    rotation = ITQ(start="random", seed=seed) if name == "itq" else H2Q(seed=seed)
    rotation.fit((features - mean) @ directions)
    return lambda rows: rotation.encode((rows - mean) @ directions)


def _encode_signs(run: Run) -> Encode:
    return lambda rows: pack(run.embed(rows, batch_size=4096).embeddings)


def _read_features(examples: Examples) -> np.ndarray:
    return check_features("A cell without labels", examples).astype(np.float32, copy=False)
