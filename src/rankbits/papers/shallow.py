"""Cells without a network: a quantizer fitted to features and their labels, as TALR's Table 1 has
it for methods that cannot be trained end to end."""

from __future__ import annotations

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.encoder.finishing import Sides
from rankbits.papers.cell import Clock, judge_codes, make_config
from rankbits.papers.recipe import Cell, Recipe
from rankbits.papers.rows import Row, Settings, make_row
from rankbits.papers.source import read_cell_source
from rankbits.quantizers import make_quantizer


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """A row for each quantizer asked for, by the names that ``rankbits fit --method`` knows."""
    config = make_config(recipe, cell, settings)
    source = read_cell_source(config, recipe.seen, settings.short)
    protocol = source.protocol
    assert protocol is not None
    features = _read_features(source.train)
    queries, database = (protocol.part(split) for split in ("queries", "database"))
    sides = Sides(
        (_read_features(queries), _read_features(database)),
        (queries.labels, database.labels),
        (protocol.queries, protocol.database),
    )
    rows = []
    for name in settings.choose_quantizers(recipe):
        clock = Clock()
        quantizer = make_quantizer(name, cell.bits, features.shape[1], True, cell.seed)
        quantizer.fit(features, source.train.labels)
        spent = {"fit": clock.lap()}
        codes = quantizer.encode(sides.embeddings[0]), quantizer.encode(sides.embeddings[1])
        spent["encode"] = clock.lap()
        report, more = judge_codes(codes, sides, protocol, recipe.metric)
        mean = report.figures["mAP"]
        spent["judge"] = clock.lap()
        rows.append(
            make_row(
                recipe, cell, name, settings,
                figures={n: f.value for n, f in report.figures.items()} | more,
                span=(mean.worst, mean.best),
                seconds=spent,
            )
        )  # fmt: skip
    return rows


def _read_features(examples: Examples) -> np.ndarray:
    if not isinstance(examples.inputs, np.ndarray) or examples.kind != "features":
        _check.refuse(f"A quantizer without a network takes features; got {examples.kind}.")
    return examples.inputs
