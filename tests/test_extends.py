"""Recipes that begin with the tables of another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankbits._check import Refusal
from rankbits.cli import main
from rankbits.papers.extends import read_table
from rankbits.papers.recipe import list_names, read_recipes

RECIPES = Path(__file__).parent.parent / "reproduce"
COMMON = """
paper = "Made"
place = "Table 1"
differs = "everything"
bits = [16, 32]
seeds = [0, 1]

[train]
data = "cifar100"
loss = "tie-aware-ap"
lr = 0.1
options = {form = "simple", delta = 1}

[choose]
batch_size = [50, 100]
"""
EXACT = """
extends = "made/_common"
method = "exact"
seeds = [2]

[train]
lr = 0.2
options = {form = "exact"}

[choose]
lr = [0.3]
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with made/_common and the recipe made/exact that extends it."""
    write(tmp_path, "made/_common", COMMON)
    write(tmp_path, "made/exact", EXACT)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def refusal_of(folder: Path, name: str) -> str:
    with pytest.raises(Refusal) as refusal:
        read_recipes(folder, [name])
    return str(refusal.value)


def test_tables_are_merged_and_the_rest_is_replaced(folder):
    (recipe,) = read_recipes(folder, ["made/exact"])
    assert (recipe.name, recipe.paper, recipe.method) == ("made/exact", "Made", "exact")
    assert recipe.bits == (16, 32) and recipe.seeds == (2,)
    assert recipe.train == {
        "data": "cifar100",
        "loss": "tie-aware-ap",
        "lr": 0.2,
        "options": {"form": "exact", "delta": 1},
    }
    assert list(recipe.choose.items()) == [("batch_size", (50, 100)), ("lr", (0.3,))]


def test_a_table_and_a_value_replace_each_other(tmp_path):
    write(tmp_path, "base", "train = 3\n[vary]\nlr = [1]\n")
    path = write(tmp_path, "own", 'extends = "base"\nvary = 4\n[train]\nlr = 1\n')
    assert read_table(path, tmp_path) == {"train": {"lr": 1}, "vary": 4}


def test_a_chain_is_followed_to_its_end(folder):
    write(folder, "made/slow", 'extends = "made/exact"\nmethod = "slow"\n[train]\nlr = 0.01\n')
    (slow,) = read_recipes(folder, ["made/slow"])
    (exact,) = read_recipes(folder, ["made/exact"])
    assert (slow.method, slow.seeds, slow.train["lr"]) == ("slow", (2,), 0.01)
    assert slow.train["options"] == exact.train["options"] and exact.train["lr"] == 0.2


def test_a_later_file_of_a_list_is_over_an_earlier_one(folder):
    write(folder, "made/_fast", "seeds = [5]\n[train]\nlr = 1.0\n")
    write(folder, "made/two", 'extends = ["made/exact", "made/_fast"]\nbits = [8]\n')
    (two,) = read_recipes(folder, ["made/two"])
    assert (two.method, two.seeds, two.bits, two.train["lr"]) == ("exact", (5,), (8,), 1.0)
    assert two.train["options"] == {"form": "exact", "delta": 1}
    write(folder, "made/loop", 'extends = ["made/_fast", "made/loop"]\n')
    assert "loop.toml, which itself extends" in refusal_of(folder, "made/loop")


def test_files_named_with_an_underscore_are_no_recipes(folder, capsys):
    assert list_names(folder) == ["made/exact"]
    assert [recipe.name for recipe in read_recipes(folder)] == ["made/exact"]
    assert refusal_of(folder, "made/_common").startswith("There is no recipe 'made/_common'")
    assert main(["reproduce", "--list", "--recipes", str(folder)]) == 0
    assert capsys.readouterr().out == "made/exact  Made, Table 1: exact\n"
    assert main(["reproduce", "made/_common", "--recipes", str(folder)]) == 1
    assert "There is no recipe 'made/_common'" in capsys.readouterr().err


@pytest.mark.parametrize("chain", [("a",), ("a", "b"), ("a", "b", "c")])
def test_a_cycle_is_refused_with_both_files(tmp_path, chain):
    for name, other in zip(chain, (*chain[1:], chain[0]), strict=True):
        write(tmp_path, f"made/{name}", f'extends = "made/{other}"\n')
    first, last = (tmp_path / "made" / f"{name}.toml" for name in (chain[0], chain[-1]))
    sentence = f"{last} extends {first}, which itself extends {last}."
    assert refusal_of(tmp_path, "made/a") == sentence


def test_a_missing_file_is_refused_with_both_files(folder):
    path = write(folder, "made/lost", 'extends = "made/_comon"\n')
    missing = folder / "made" / "_comon.toml"
    sentence = f"{path} extends {missing}, which does not exist (did you mean 'made/_common'?)."
    assert refusal_of(folder, "made/lost") == sentence


@pytest.mark.parametrize(
    "value", ['""', '"../made/_common"', '"/made/_common"', '["/a"]', "[3]", "3"]
)
def test_only_a_file_below_the_folder_is_extended(folder, value):
    path = write(folder, "made/out", f"extends = {value}\n")
    sentence = f"extends of {path} must name a file below {folder}, without .toml; got "
    assert refusal_of(folder, "made/out").startswith(sentence)


def test_a_misspelt_key_and_broken_toml_are_refused(folder):
    write(folder, "made/near", 'extend = "made/_common"\n')
    assert "unknown key 'extend' (did you mean 'extends'?)" in refusal_of(folder, "made/near")
    broken = write(folder, "made/_common", "x =")
    assert refusal_of(folder, "made/exact").startswith(f"{broken} is not TOML")


def test_a_recipe_that_lacks_a_key_is_refused_by_its_own_name(folder):
    write(folder, "made/bare", 'extends = "made/_common"\n')
    assert refusal_of(folder, "made/bare") == "made/bare must say its method in words; got None."


def test_every_committed_file_with_an_underscore_is_extended():
    files = {p.relative_to(RECIPES).with_suffix("").as_posix() for p in RECIPES.rglob("_*.toml")}
    text = "".join(path.read_text("utf-8") for path in RECIPES.rglob("*.toml"))
    assert not {name for name in files if f'"{name}"' not in text}
