"""Recipes that take their settings from trials: the best on validation rows, and from rows only."""

from __future__ import annotations

from pathlib import Path

import pytest

from layouts import NETWORK, make_cifar10, unsummed, with_features
from rankbits._check import Refusal
from rankbits.papers.cell import run_cell
from rankbits.papers.recipe import make_recipe, read_recipes
from rankbits.papers.rows import Settings, make_row, name_file, write_rows
from rankbits.papers.trials import list_candidates

FINAL = f"""paper = "Made"
place = "Table 1"
method = "CEL"
differs = "everything"
bits = [16]
seeds = [1]
distances = true
trials = "made/trials"

[train]
data = "cifar10-h2q"
features = "{NETWORK}"
loss = "cel"
batch_size = 50
"""
TRIALS = """extends = "made/final"
trials = ""
seeds = [0]

[vary]
lr = [1e-3, 1e-2]
"""


@pytest.fixture
def settings(tmp_path):
    folder = tmp_path / "recipes" / "made"
    folder.mkdir(parents=True)
    (folder / "final.toml").write_text(FINAL)
    (folder / "trials.toml").write_text(TRIALS)
    return Settings(str(tmp_path / "data"), "cpu", recipes=str(folder.parent))


def write_trials(settings: Settings, validations: list[float]) -> None:
    (trials,) = read_recipes(settings.recipes, ["made/trials"])
    rows = [
        make_row(
            trials, cell, "none", settings,
            figures={"mAP": 0.5}, span=(0.5, 0.5), seconds={}, validation=validation,
        )
        for cell, validation in zip(trials.cells(), validations, strict=False)
    ]  # fmt: skip
    write_rows(name_file(Path(settings.recipes) / "results", "Made"), rows)


@pytest.mark.parametrize(("validations", "rate"), [([0.3, 0.2], 1e-3), ([0.2, 0.3], 1e-2)])
def test_the_best_on_validation_rows_is_taken(settings, validations, rate):
    (final,) = read_recipes(settings.recipes, ["made/final"])
    write_trials(settings, validations)
    assert list_candidates(final, settings) == [{"lr": rate}]


def test_all_trials_must_have_rows(settings):
    (final,) = read_recipes(settings.recipes, ["made/final"])
    write_trials(settings, [0.3])
    with pytest.raises(Refusal, match=r"\(1 missing\); first run: rankbits reproduce made/trials"):
        list_candidates(final, settings)


def test_a_short_run_needs_no_trials_and_counts_distances(settings, monkeypatch):
    unsummed(monkeypatch)
    make_cifar10(Path(settings.root))
    with_features(monkeypatch, settings.root, "cifar10-h2q")
    short = Settings(settings.root, "cpu", short=True, recipes=settings.recipes)
    (final,) = read_recipes(settings.recipes, ["made/final"])
    (row,) = run_cell(final, final.cells()[0], short)
    assert row["chosen"] == {"lr": 1e-3}
    same, other = row["distances"]["same"], row["distances"]["other"]
    assert len(same) == len(other) == 17
    assert sum(same) > 0 and sum(same) + sum(other) == 50 * 200  # queries by items


def test_trials_and_choose_exclude_each_other():
    table = {"paper": "Made", "place": "x", "method": "x", "differs": "x", "bits": [8]}
    table |= {"train": {"data": "cifar10-s1"}, "trials": "a/b", "choose": {"lr": [1.0]}}
    with pytest.raises(Refusal, match=r"trials of a/c must be a recipe's name, without \[choose\]"):
        make_recipe("a/c", table)
