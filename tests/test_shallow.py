"""Cells without a network: quantizers fitted to features and labels, as in TALR's Table 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from layouts import NETWORK, make_cifar100, with_features
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.papers import jobs, shallow
from rankbits.papers.recipe import make_recipe, read_recipes
from rankbits.papers.rows import Settings
from rankbits.train.source import Source

RECIPES = Path(__file__).parent.parent / "reproduce"
FACTS = {
    "paper": "Made", "place": "Table 1", "method": "FastHash", "differs": "everything",
    "kind": "shallow", "bits": [8], "seeds": [3], "quantizers": ["pca", "classes"],
    "train": {"data": "cifar10-s1", "features": "efficientnet-lite0"},
}  # fmt: skip


def make_source(inputs, labels):
    rows = np.random.default_rng(0).permutation(len(inputs))
    examples = Examples(inputs, labels)
    how = Protocol("mine", examples, rows[:200], rows[240:], rows[:240])
    return Source(examples.subset(how.train), None, how)


@pytest.fixture
def source(monkeypatch):
    labels = np.arange(280) % 4
    inputs = np.random.default_rng(0).normal(size=(280, 10)) + 2 * np.eye(4, 10)[labels]
    made = make_source(inputs.astype(np.float32), labels)
    monkeypatch.setattr(shallow, "read_cell_source", lambda config, seen, short: made)
    return made


def test_a_row_is_the_map_of_codes_fitted_to_the_training_rows(source, tmp_path):
    recipe = make_recipe("made/m", FACTS)
    (cell,) = recipe.cells()
    done = jobs.do_job(jobs.Job(recipe, cell), Settings(device="cpu"), tmp_path)
    assert not done.failed and [row["quantizer"] for row in done.rows] == ["pca", "classes"]
    how = source.protocol
    queries, database = how.part("queries"), how.part("database")
    made = rb.SupervisedProjection(8, seed=3).fit(source.train.inputs, source.train.labels)
    codes = made.encode(queries.inputs), made.encode(database.inputs)
    report = rb.evaluate(*codes, queries.labels, database.labels)
    row = done.rows[1]
    assert row["value"] == pytest.approx(report["mAP"], abs=1e-6)
    assert row["value"] > done.rows[0]["value"]
    assert row["worst"] <= row["value"] <= row["best"] and row["seconds"]["fit"] > 0


def test_the_command_fits_to_the_features_of_a_network(tmp_path, monkeypatch):
    make_cifar100(tmp_path / "data")
    with_features(monkeypatch, tmp_path / "data", "cifar100")
    train = {"data": "cifar100", "features": NETWORK, "validation": 0.0}
    recipe = make_recipe("made/m", FACTS | {"quantizers": ["bre"], "train": train})
    settings = Settings(root=str(tmp_path / "data"), device="cpu", short=True)
    (row,) = shallow.run_cell(recipe, recipe.cells()[0], settings)
    assert (
        row["quantizer"] == "bre" and 0 < row["value"] <= 1 and row["command"].endswith("--short")
    )


def test_images_are_refused(monkeypatch):
    images = make_source(np.zeros((280, 4, 4, 3), np.uint8), np.arange(280) % 4)
    monkeypatch.setattr(shallow, "read_cell_source", lambda config, seen, short: images)
    recipe = make_recipe("made/m", FACTS)
    with pytest.raises(rb.Refusal, match="needs features; got images"):
        shallow.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))


def test_the_recipes_have_all_lengths_and_four_seeds():
    one, three = (read_recipes(RECIPES, [f"talr/{n}"]) for n in ("table1-shallow", "table3"))
    names = {"bre", "fasthash", "structhash", "machash"}
    assert {r.quantizers[0] for r in one} == names
    assert {r.bits for r in one} == {(12, 24, 32, 48)} and {r.kind for r in one} == {"shallow"}
    for recipe in [*one, *(r for r in three if r.quantizers[0] in names)]:
        assert recipe.seeds == (1, 2, 3, 4) and len(recipe.figures[recipe.quantizers[0]]) == 4
