"""Run cells without a network: fit a quantizer to features and their labels, as TALR's Table 1 does
for methods that cannot be trained end to end."""

from __future__ import annotations

from rankbits.encoder.finishing import Sides
from rankbits.papers.cell import Clock, judge_codes, make_config
from rankbits.papers.recipe import Cell, Recipe
from rankbits.papers.rows import Row, Settings, make_row
from rankbits.papers.source import check_features, read_cell_source
from rankbits.quantizers import make_quantizer


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """Run a cell -> a row for each quantizer, by the names that ``rankbits fit --method`` knows."""
    config = make_config(recipe, cell, settings)
    source = read_cell_source(config, recipe.seen, settings.short)
    protocol = source.protocol
    assert protocol is not None
    parts = source.train, protocol.part("queries"), protocol.part("database")
    features, *embeddings = (check_features("A cell without a network", part) for part in parts)
    sides = Sides(
        (embeddings[0], embeddings[1]),
        (parts[1].labels, parts[2].labels),
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
