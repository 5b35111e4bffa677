"""Recipes that build on others: teachers are trained first, once, and by their own recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from layouts import NETWORK, make_cifar10, unsummed, with_features
from rankbits._check import Refusal
from rankbits.papers import cell as cells
from rankbits.papers.cell import run_cell
from rankbits.papers.recipe import read_recipes
from rankbits.papers.rows import Settings
from rankbits.papers.source import SHORT
from rankbits.train import source as sources
from rankbits.train.checkpoints import is_finished

HEAD = 'paper = "Made"\nplace = "Table 1"\nmethod = "{name}"\ndiffers = "everything"\n'
TRAIN = f'[train]\ndata = "cifar10-h2q"\nfeatures = "{NETWORK}"\nbatch_size = 40\n'


def recipe(folder: Path, name: str, more: str = "", keep: str = "keep = true\n", loss="dch"):
    head = HEAD.format(name=name) + f"bits = [12, 16]\nseeds = [0]\n{keep}"
    (folder / f"{name}.toml").write_text(f'{head}{TRAIN}loss = "{loss}"\n{more}')


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Recipes made/first, made/second, taught by it, and made/third, taught by both."""
    unsummed(monkeypatch)
    make_cifar10(tmp_path / "data")
    with_features(monkeypatch, tmp_path / "data", "cifar10-h2q")
    folder = tmp_path / "recipes" / "made"
    folder.mkdir(parents=True)
    recipe(folder, "first")
    recipe(folder, "second", 'teachers = "recipe:made/first"\n')
    recipe(folder, "third", 'teachers = "recipe:made/first, recipe:made/second"\n')
    return Settings(str(tmp_path / "data"), "cpu", short=True, recipes=folder.parent)


def run(settings: Settings, name: str) -> list[dict]:
    (one,) = read_recipes(settings.recipes, [name])
    return run_cell(one, one.cells(16, 0)[0], settings)


def trained_by(monkeypatch) -> list[str]:
    """The names of the runs that are trained from here on, in their order."""
    names, train = [], cells.train

    def noted(config, **options):
        names.append(Path(config.out).name)
        return train(config, **options)

    monkeypatch.setattr(cells, "train", noted)
    return names


def test_teachers_come_first_and_once(made, monkeypatch):
    names = trained_by(monkeypatch)
    assert run(made, "made/third")[0]["value"] > 0
    # teachers of their first length and of this seed; the first teaches twice and is trained once
    assert names == ["made-first-12-0-short", "made-second-12-0-short", "made-third-16-0-short"]
    runs = Path(made.root) / "runs"
    assert all(is_finished(runs / name) for name in names)
    taught = json.loads((runs / names[-1] / "run.json").read_text())["config"]["teachers"]
    assert taught == f"{runs / names[0]},{runs / names[1]}"


def test_a_finished_teacher_needs_its_own_teachers_no_more(made, monkeypatch):
    first = run(made, "made/third")
    shutil.rmtree(Path(made.root) / "runs" / "made-third-16-0-short")
    names = trained_by(monkeypatch)
    again = run(made, "made/third")
    assert names == ["made-third-16-0-short"]
    assert again[0]["figures"] == first[0]["figures"]


def test_an_unfinished_teacher_is_trained_to_its_end(made, monkeypatch):
    run(made, "made/second")
    teacher = Path(made.root) / "runs" / "made-first-12-0-short"
    (teacher / "checkpoint.safetensors").unlink()
    assert not is_finished(teacher)
    names = trained_by(monkeypatch)
    run(made, "made/second")
    assert names == ["made-first-12-0-short", "made-second-16-0-short"] and is_finished(teacher)


def test_a_teacher_of_other_settings_is_refused(made):
    run(made, "made/second")
    folder = made.recipes / "made"
    recipe(folder, "first", loss="cel")
    with pytest.raises(
        Refusal, match="made-first-12-0-short was made with loss = 'dch', not 'cel'"
    ):
        run(made, "made/second")


def test_what_is_not_kept_cannot_be_built_on(made):
    recipe(made.recipes / "made", "first", keep="")
    with pytest.raises(Refusal, match=r"made/first must have keep = true"):
        run(made, "made/second")


def test_teachers_of_a_shortened_run_label_a_shortened_database(made, monkeypatch):
    asked, label = [], sources.add_taught_examples

    def counted(train, unlabelled, *options):
        asked.append((len(train), len(unlabelled)))
        return label(train, unlabelled, *options)

    monkeypatch.setattr(sources, "add_taught_examples", counted)
    monkeypatch.setitem(SHORT, "database", 30)
    run(made, "made/second")
    ((known, labelled),) = asked
    assert 0 < known <= SHORT["train"] and 0 < labelled <= 30
