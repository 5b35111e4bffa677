"""How far learned figures move: the page says what the rows of the benchmark say."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from generated.birds import birds_table  # noqa: E402
from generated.rows import RESULTS, read  # noqa: E402
from generated.spread import SOURCES, spread_table  # noqa: E402


def test_the_page_has_the_table_of_the_rows():
    assert spread_table() in (DOCS / "quantizers.md").read_text("utf-8")


def test_every_source_of_variation_was_measured_before_and_after():
    rows = read(RESULTS / "spread_rotation.jsonl")
    fits = {(r["data"], r["rows"], r["source"], r["label"]) for r in rows}
    sets = {(data, many) for data, many, _, _ in fits}
    assert {data for data, _ in sets} == {"digits", "fashion-mnist", "cifar10"} and len(sets) == 7
    for data, many in sets:
        for source in SOURCES:
            assert {(data, many, source, label) for label in ("before", "after")} <= fits


def test_a_machine_moves_no_figure_by_a_hundredth():
    rows = [r for r in read(RESULTS / "spread_rotation.jsonl") if r["label"] == "after"]
    for data, many in {(r["data"], r["rows"]) for r in rows}:
        values = [
            r["mAP"] for r in rows if (r["data"], r["rows"], r["source"]) == (data, many, "machine")
        ]
        assert len(values) >= 3 and max(values) - min(values) < 0.01


def test_the_page_has_the_table_of_birds():
    assert birds_table() in (DOCS / "quantizers.md").read_text("utf-8")
