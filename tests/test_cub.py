"""CUB-200-2011 and graded CIFAR-100: from the publishers' files to rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layouts
from rankbits._check import Refusal
from rankbits.papers import protocol, read_recipes
from rankbits.papers.cell import run_cell
from rankbits.papers.publishers import cub
from rankbits.papers.rows import Settings
from rankbits.papers.source import decode_images

RECIPES = Path(__file__).parent.parent / "reproduce"
BIRDS = read_recipes(RECIPES, ["fastap/cub", "fastap/cub-tuned"])
GRADED = read_recipes(RECIPES, ["talr/cifar100"])
SMALL = {"model": "conv", "weights": None, "side": 32, "amp": "off", "batch_norm": "batch"}


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return layouts.make_cub(tmp_path_factory.mktemp("birds"))


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """CIFAR-100 with 130 images a class, where the protocol draws 20 + 100."""
    root = layouts.make_cifar100(tmp_path_factory.mktemp("graded"))
    fine = np.arange(12_800) % 100
    heads = np.stack([fine // 5, fine], axis=1)
    layouts.write(root / "cifar-100-binary" / "train.bin", layouts.records(heads, 0))
    return root


def test_the_first_hundred_kinds_train_and_the_others_are_judged(birds):
    drawn = protocol("cub", birds)
    assert (len(drawn.train), len(drawn.queries), drawn.exclude_self) == (400, 400, True)
    assert drawn.part("train").labels.max() < 100 <= drawn.part("queries").labels.min()
    assert (drawn.metric, drawn.k) == ("hit@1", (1, 2, 4, 8))


def test_a_family_is_told_by_a_name_or_by_its_last_word():
    names = ("055.Evening_Grosbeak", "054.Blue_Grosbeak", "118.House_Sparrow", "129.Song_Sparrow")
    families = [cub.find_family(name) for name in names]
    assert families == ["Fringillidae", "Cardinalidae", "Passeridae", "Passerellidae"]
    with pytest.raises(Refusal, match=r"001\.Bird is not a kind of bird in CUB-200-2011"):
        cub.find_family("001.Bird")


def test_birds_that_are_missing_are_refused(tmp_path):
    with pytest.raises(Refusal, match="put one folder of images for each of the 200 kinds there"):
        protocol("cub", tmp_path)
    layouts.write(tmp_path / "CUB_200_2011" / "images" / "001.Ani" / "1.jpg", "")
    with pytest.raises(Refusal, match="must hold 200 kinds; it holds 1"):
        protocol("cub", tmp_path)


def test_photographs_are_decoded_once(birds, tmp_path):
    examples = protocol("cub", birds).examples.subset(np.arange(3))
    once = decode_images(examples, 8, tmp_path)
    assert once.inputs.shape == (3, 8, 8, 3)
    first = once.inputs.copy()
    stored = next(tmp_path.glob("*.pixels"))
    stored.write_bytes(bytes(255 - byte for byte in stored.read_bytes()))
    np.testing.assert_array_equal(decode_images(examples, 8, tmp_path).inputs, 255 - first)


def test_a_photograph_that_does_not_decode_is_refused(tmp_path):
    root = layouts.make_cub(tmp_path, per_kind=1)
    layouts.write(next(root.rglob("*.jpg")), "no photograph")
    with pytest.raises(Refusal, match="is not an image of a known format"):
        decode_images(protocol("cub", root).examples, 8, tmp_path)


def test_one_class_is_relevant_two_and_one_category_one(graded):
    drawn = protocol("cifar100-graded", graded)
    assert (len(drawn.queries), len(drawn.train), len(drawn.database)) == (2000, 10_000, 11_000)
    labels = drawn.examples.labels
    fine, coarse = labels[:, :100].argmax(1), labels[:, 100:].argmax(1)
    np.testing.assert_array_equal(fine // 5, coarse)
    hot = labels[:50].astype(int)
    same = (fine[:50, None] == fine[:50]) * 1 + (coarse[:50, None] == coarse[:50])
    np.testing.assert_array_equal(hot @ hot.T, same)
    assert (drawn.metric, drawn.relevance) == ("NDCG", "count")


@pytest.mark.parametrize("recipe", [*BIRDS, *GRADED], ids=lambda recipe: recipe.name)
def test_a_recipe_runs_from_files_to_a_row(recipe, birds, graded):
    root = birds if recipe in BIRDS else graded
    seen = recipe.seen and 36
    small = replace(recipe, train=recipe.train | SMALL, seen=seen, quantizers=("none",))
    settings = Settings(str(root), "cpu", short=True, recipes=str(RECIPES))
    (row,) = run_cell(small, small.cells(seed=0)[-1], settings)
    wanted = {"hit@1", "hit@8", "MAP@R"} if recipe in BIRDS else {"NDCG", "mAP"}
    assert wanted <= set(row["figures"])
    assert 0 < row["value"] <= 1 and row["steps"] == 10
