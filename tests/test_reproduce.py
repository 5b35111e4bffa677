"""Recipes, cells and rows: what the papers' experiments are run by."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch

from layouts import NETWORK, make_cifar10, make_cifar100, unsummed, with_features
from rankbits._check import Refusal
from rankbits.cli import main
from rankbits.data.examples import Examples
from rankbits.papers import jobs, rows
from rankbits.papers.cell import run_cell
from rankbits.papers.recipe import (
    Cell,
    change_settings,
    list_names,
    make_recipe,
    read_recipe,
    read_recipes,
)
from rankbits.papers.rows import Settings
from rankbits.papers.scaled import make_scaled
from rankbits.papers.source import reduce_images
from rankbits.train import TrainConfig

RECIPES = Path(__file__).parent.parent / "reproduce"
PLAIN = {
    "paper": "Made",
    "place": "Table 1",
    "method": "CEL",
    "differs": "everything",
    "bits": [16, 32],
    "seeds": [0, 1],
    "scaled": True,
    "figures": {"none": [0.5, math.nan]},
    "train": {"data": "cifar100", "features": NETWORK, "loss": "cel", "batch_size": 50},
}


def toml(path: Path, table: dict) -> Path:
    def value(v):
        return json.dumps(v).replace("NaN", "nan")

    plain = [f"{k} = {value(v)}" for k, v in table.items() if not isinstance(v, dict)]
    for name, inner in table.items():
        if isinstance(inner, dict):
            plain += [f"[{name}]", *(f'"{k}" = {value(v)}' for k, v in inner.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(plain))
    return path


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A folder with the recipes made/cel and made/curve, and features for them."""
    make_cifar100(tmp_path / "data")
    with_features(monkeypatch, tmp_path / "data", "cifar100")
    toml(tmp_path / "recipes" / "made" / "cel.toml", PLAIN)
    one = {k: v for k, v in PLAIN.items() if k not in ("bits", "figures")}
    one |= {"train": PLAIN["train"] | {"dim": 8, "loss": "fastap"}, "seeds": [0]}
    curve = one | {"vary": {"options.bins": [5, 10]}, "method": "FastAP", "metric": "hit@1"}
    toml(tmp_path / "recipes" / "made" / "curve.toml", curve)
    return tmp_path


def command(made: Path, *words: str) -> list[str]:
    folders = ["--recipes", made / "recipes", "--root", made / "data", "--device", "cpu"]
    return ["reproduce", *map(str, words), *map(str, folders)]


def kept(made: Path, short: bool = True) -> list[dict]:
    return rows.read_rows(rows.name_file(made / "recipes" / "results", "Made", short))


# reading


@pytest.mark.parametrize("name", list_names(RECIPES))
def test_every_committed_recipe_is_whole(name):
    one = read_recipe(RECIPES / f"{name}.toml", name)
    for cell in one.cells():
        config = one.config(cell)
        assert (config.bits, config.seed) == (cell.bits, cell.seed)
    for values in one.figures.values():
        assert len(values) == (len(one.bits) or len(one.variants))
        assert all(math.isnan(v) or 0 < v < 1 for v in values)
    assert name.split("/")[0] == one.paper.lower()


def test_the_papers_figures_are_found_by_code_length():
    one = read_recipe(RECIPES / "talr/table1-s2/dpsh.toml", "talr/table1-s2/dpsh")
    found = {cell.bits: one.figure("none", cell) for cell in one.cells(seed=0)}
    assert found == {12: None, 16: 0.908, 24: 0.909, 32: 0.917, 48: 0.932}
    assert one.figure("itq", one.cells()[0]) is None


def test_cells_are_code_lengths_by_what_varies_by_seeds():
    one = make_recipe("a/b", PLAIN | {"vary": {"lr": [0.1, 0.2]}})
    assert len(one.cells()) == 2 * 2 * 2
    assert one.cells(32, 7) == [Cell(32, 7, {"lr": 0.1}), Cell(32, 7, {"lr": 0.2})]
    assert one.config(one.cells(32, 7)[1]).lr == 0.2
    assert str(one.cells()[0]) == "16 bits, lr 0.1, seed 0"


def test_an_option_is_changed_and_the_recipe_is_not():
    train = {"lr": 1.0, "options": {"form": "exact"}}
    assert change_settings(train, {"options.alpha": 2})["options"] == {"form": "exact", "alpha": 2}
    assert train == {"lr": 1.0, "options": {"form": "exact"}}
    assert change_settings({"lr": 1.0}, {}) == {"lr": 1.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pape": "X"}, "has an unknown key 'pape' (did you mean 'paper'?)"),
        ({"differs": ""}, "must say its differs in words; got ''"),
        ({"paper": "../x"}, "must be letters and digits"),
        ({"kind": "trian"}, "(did you mean 'train'?)"),
        ({"quantizers": ["itk"]}, "(did you mean 'itq'?)"),
        ({"seeds": [0, 0]}, "must be a list without repeats"),
        ({"seeds": []}, "at least one seed"),
        ({"bits": [0]}, "whole number of at least 1; got 0"),
        ({"bits": [], "figures": {}}, "either bits or, in [train], dim"),
        ({"scaled": 1}, "must be true or false; got 1"),
        ({"figures": {"none": [0.5]}}, "must have 2 numbers for 'none'"),
        ({"figures": {"itq": [0.5, 0.5]}}, "names 'itq', which it does not run"),
        ({"train": {"loss": "cel"}}, "a table [train] that names its data"),
        ({"train": {"data": "x", "learning_rate": 1}}, "has no 'learning_rate'"),
        ({"train": {"data": "x", "seed": 1}}, "has no 'seed'"),
        ({"train": {"data": "x", "lr": -1}}, "In a/b: lr must be above 0"),
        ({"choose": {"lrr": [1]}}, "has no setting 'lrr' (did you mean 'lr'?)"),
        ({"choose": {"lr": []}}, "must have a value"),
        ({"choose": {"lr": [-1.0]}}, "In a/b: lr must be above 0"),
        ({"vary": {"loss.x": [1]}}, "has no setting 'loss.x'"),
        ({"vary": 3}, "must be a table of lists; got 3"),
    ],
)
def test_a_wrong_recipe_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(Refusal) as refusal:
        make_recipe("a/b", PLAIN | changes)
    assert sentence in str(refusal.value)


def test_names_are_files_and_folders(made):
    folder = made / "recipes"
    assert [one.name for one in read_recipes(folder, ["made"])] == ["made/cel", "made/curve"]
    assert next(one.name for one in read_recipes(folder, ["made/cel.toml", "made"])) == "made/cel"
    with pytest.raises(Refusal, match=r"There is no recipe 'made/cell'.*did you mean 'made/cel'"):
        read_recipes(folder, ["made/cell"])
    with pytest.raises(Refusal, match="There is no folder of recipes"):
        read_recipes(folder / "none")
    (folder / "bad.toml").write_text("x =")
    with pytest.raises(Refusal, match="is not TOML"):
        read_recipes(folder, ["bad"])


# running


def test_a_short_run_end_to_end(made, capsys):
    assert main(command(made, "made", "--short")) == 0
    told = capsys.readouterr().out
    assert "[6/6]" in told and "made/cel" in told and "options.bins 5" in told
    assert "0.5000" in told  # the paper's
    found = kept(made)
    assert len(found) == 2 * 2 + 2 and not kept(made, short=False)
    row = next(r for r in found if r["bits"] == 16 and r["seed"] == 1)
    assert row["command"] == "rankbits reproduce made/cel --bits 16 --seed 1 --short"
    assert row["shortened"] is True and row["paper_value"] == 0.5 and row["value"] > 0
    assert row["worst"] <= row["figures"]["mAP"] <= row["best"]
    assert row["machine"]["torch"] == torch.__version__ and len(row["commit"]) >= 7
    assert set(row["seconds"]) == {"train", "embed", "fit", "encode", "judge"}
    assert row["differs"] == "everything" and row["steps"] == 10
    curve = [r for r in found if r["name"] == "made/curve"]
    assert [r["vary"]["options.bins"] for r in curve] == [5, 10]
    assert curve[0]["bits"] is None and curve[0]["value"] == curve[0]["figures"]["hit@1"]


def test_what_is_there_is_not_run_again(made, capsys):
    words = command(made, "made/cel", "--short", "--bits", "16")
    assert main([*words, "--seed", "0"]) == 0
    first = kept(made)
    capsys.readouterr()
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "1 of 2 cells have their rows already." in told
    assert "[1/1] made/cel, 16 bits, seed 1" in told
    assert kept(made)[0] == first[0] and len(kept(made)) == 2
    assert main([*words, "--again", "--seed", "0"]) == 0
    again = kept(made)
    assert len(again) == 2 and again[0]["value"] == first[0]["value"]  # the seed decides it all


def run_printing_to(pipe, words):
    with open(pipe.fileno(), "w", buffering=1, closefd=False) as out, redirect_stdout(out):
        main(words)


def test_processes_write_every_row_and_a_kill_loses_only_what_ran(made, forks, capsys):
    words = command(made, "made/cel", "--short", "--jobs", "2")
    ours, theirs = forks.Pipe(duplex=False)
    killed = forks.Process(target=run_printing_to, args=(theirs, words))
    killed.start()
    theirs.close()
    with open(os.dup(ours.fileno())) as printed:
        line = printed.readline()
    killed.kill()
    killed.join()
    assert line.startswith("[1/4]")
    survived = {rows.make_key(row) for row in kept(made)}
    assert survived
    assert main(words) == 0
    assert len(kept(made)) == 4 and survived <= {rows.make_key(row) for row in kept(made)}
    assert "cells have their rows already" in capsys.readouterr().out


def test_every_quantizer_is_judged_from_one_training(tmp_path, monkeypatch):
    unsummed(monkeypatch)
    make_cifar10(tmp_path)
    with_features(monkeypatch, tmp_path, "cifar10-h2q")
    names = ["none", "itq", "h2q", "h2q-l1", "random"]
    table = PLAIN | {"quantizers": names, "metric": "mAP@5000 broken", "figures": {}}
    table |= {"train": PLAIN["train"] | {"data": "cifar10-h2q"}, "choose": {"lr": [0.001, 0.01]}}
    one = make_recipe("a/b", table)
    settings = Settings(str(tmp_path), "cpu", short=True)
    found = run_cell(one, one.cells(16, 0)[0], settings)
    assert [row["quantizer"] for row in found] == names
    assert len({row["validation"] for row in found}) == 1
    assert found[0]["chosen"]["lr"] in (0.001, 0.01) and "curve" in found[0]
    assert all(0 < row["figures"]["mAP@5000 broken"] <= 1 for row in found)
    only = run_cell(one, one.cells(16, 0)[0], dataclasses.replace(settings, quantizers=("itq",)))
    assert [row["quantizer"] for row in only] == ["itq"]
    assert only[0]["figures"] == found[1]["figures"]


def test_a_cell_that_fails_does_not_stop_the_others(made, capsys):
    bad = PLAIN | {"train": PLAIN["train"] | {"loss": "cell"}}
    toml(made / "recipes" / "made" / "a-bad.toml", bad)
    words = command(made, "made/a-bad", "made/cel", "--short", "--bits", "16", "--seed", "0")
    assert main(words) == 1
    told = capsys.readouterr()
    assert "1 of 2 cells failed; the first is made/a-bad, 16 bits, seed 0: loss must be" in told.err
    assert len(kept(made)) == 1


def test_full_memory_is_told_in_a_sentence(made, capsys, monkeypatch):
    def fill(*args):
        raise torch.OutOfMemoryError("CUDA out of memory. " + "Process 1 has 3 GiB. " * 40)

    monkeypatch.setitem(jobs.RUNS, "train", fill)
    assert main(command(made, "made/cel", "--short", "--bits", "16", "--seed", "0")) == 1
    told = capsys.readouterr()
    assert "made/cel, 16 bits, seed 0: memory is full; run fewer cells at a time" in told.err
    assert "Process 1" not in told.err + told.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Give a row or a folder of rows"),
        (("made/cel", "--bits", "17"), "None of these rows has 17 bits."),
        (("made/cel", "--quantizer", "itq"), "quantizer must be one of 'none'; got 'itq'"),
        (("made/cel", "--jobs", "0"), "jobs must be a whole number of at least 1"),
        (("nothing",), "There is no recipe 'nothing'"),
    ],
)
def test_a_wrong_command_is_refused(made, capsys, words, sentence):
    assert main(command(made, *words)) == 1
    assert sentence in capsys.readouterr().err


def test_names_are_listed(made, capsys):
    assert main(command(made, "--list")) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "made/cel  Made, Table 1: CEL" and second.startswith("made/curve")


# rows


def row(seed: int, value: float, **more) -> dict:
    return {"name": "a", "bits": 16, "quantizer": "none", "vary": {}, "seed": seed, **more,
            "value": value}  # fmt: skip


def test_a_new_row_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "results" / "a.jsonl"
    rows.write_rows(path, [row(1, 0.1), row(0, 0.2)])
    rows.write_rows(path, [row(1, 0.3), row(0, 0.4, vary={"lr": 1})])
    found = rows.read_rows(path)
    assert [(r["seed"], r["value"]) for r in found] == [(0, 0.2), (1, 0.3), (0, 0.4)]
    assert [p.name for p in path.parent.iterdir()] == ["a.jsonl"]  # no lock is left about


def test_a_damaged_line_is_refused_and_nothing_is_lost(tmp_path):
    path = tmp_path / "a.jsonl"
    rows.write_rows(path, [row(0, 0.1)])
    path.write_text(path.read_text() + '{"name": "b"\n')
    before = path.read_bytes()
    with pytest.raises(Refusal, match=r"Line 2 of .* is not a row"):
        rows.write_rows(path, [row(1, 0.2)])
    assert path.read_bytes() == before


def test_the_commit_is_the_environments_where_it_says_one(monkeypatch):
    rows.find_commit.cache_clear()
    monkeypatch.setenv("RANKBITS_COMMIT", "abc")
    assert rows.find_commit() == "abc"
    rows.find_commit.cache_clear()


def test_a_job_knows_its_rows():
    one = make_recipe("a/b", PLAIN | {"quantizers": ["none", "itq"], "figures": {}})
    job = jobs.Job(one, one.cells()[0])
    assert job.keys(Settings()) == {
        '["a/b", 16, "none", {}, 0]', '["a/b", 16, "itq", {}, 0]'
    }  # fmt: skip
    assert job.keys(Settings(quantizers=("itq",))) == {'["a/b", 16, "itq", {}, 0]'}


# what a cell sees


def test_scaling_is_by_the_training_rows_and_leaves_the_head_to_learn():
    x = np.random.default_rng(0).normal(5.0, 3.0, (200, 6)).astype(np.float32)
    model = make_scaled(TrainConfig(bits=4, model="linear"), Examples(x, np.arange(200) % 2))
    seen = (torch.from_numpy(x) - model.middle) / model.spread
    assert torch.allclose(seen.mean(0), torch.zeros(6), atol=1e-5)
    assert float(seen.square().mean()) == pytest.approx(1.0, rel=1e-5)
    assert [tuple(p.shape) for p in model.parameters()] == [(4, 6), (4,)]
    images = Examples(np.zeros((2, 8, 8, 3), np.uint8), [0, 1])
    with pytest.raises(Refusal, match="scaled = true needs features; got images"):
        make_scaled(TrainConfig(bits=4), images)


def test_images_are_reduced_and_dark_ink_made_bright():
    page = np.full((3, 8, 8, 1), 255, np.uint8)
    page[:, :4] = 0
    small = reduce_images(Examples(page, [0, 1, 2]), 4, dark=True)
    assert small.inputs.shape == (3, 4, 4, 1) and list(small.labels) == [0, 1, 2]
    assert (small.inputs[:, 0] == 255).all() and (small.inputs[:, -1] == 0).all()
    with pytest.raises(Refusal, match="got features"):
        reduce_images(Examples(np.eye(3), [0, 1, 2]), 4)
