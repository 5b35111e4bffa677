"""The papers' own experiments: one recipe of each family runs, shortened, on small files in the
publisher's format, from the reader to the row; and every table and figure has its recipes."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layouts
from paper_weights import FILES, make_network, write_weights
from rankbits._files import write_arrays
from rankbits.cli import main
from rankbits.losses.named import LOSSES, make_loss
from rankbits.models import (
    BACKBONES,
    PUBLISHED,
    ResNet18,
    ResNet50,
    classic,
    convert_weights,
    weights_path,
)
from rankbits.papers import PROTOCOLS, list_names, read_recipes, rows
from rankbits.papers.examples import EXAMPLES

ROOT = Path(__file__).parent.parent
RECIPES = ROOT / "reproduce"
PAGE = ROOT / "docs" / "reference" / "papers.md"
PLACES = {
    "TALR": ("Fig. 1", "Fig. 2", "Fig. 3", "Table 1", "Table 2", "Table 3", "Appendix C",
             "Appendix D"),
    "FastAP": ("Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4a", "Fig. 4b", "Fig. 4c", "Table 1", "Table 2",
               "Table 3", "Supplement A", "Supplement, Fig. 1", "Supplement, Fig. 2",
               "Supplement, Fig. 3", "Supplement, Table 1", "Supplement, Table 2",
               "Supplement, Table 3"),
    "H2Q": ("Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Table 1", "Table 2", "Table A3",
            "Table A4", "Table A5", "Table A6", "Table A7"),
}  # fmt: skip
# a recipe of each family, and the code length that is run
FAMILIES = {
    "talr/vgg-f-s1/talr-ap": 12, "talr/nuswide/talr-ap": 12, "talr/nuswide/fasthash": 12,
    "talr/nuswide-5000/mihash": 12, "talr/nuswide-ndcg/talr-ndcg": 16,
    "talr/imagenet100/talr-ap": 16, "talr/labelme/ndcg-simple": 16, "talr/labelme/bre": 16,
    "talr/appendix-c/sum": None, "talr/appendix-c/loss": 12,
    "fastap/products/resnet18": None, "fastap/products/googlenet": None,
    "fastap/supplement-a/products": None, "fastap/inshop/resnet50-large": None,
    "fastap/vehicleid/resnet18": None, "fastap/fig4c": None,
    "h2q/cifar10-alexnet/dch": 16, "h2q/nuswide-alexnet/hyp2": 16, "h2q/coco-vgg16/cel-hswd": 16,
    "h2q/imagenet-alexnet/dpsh-penalty": 16, "h2q/imagenet-alexnet/adsh": 16, "h2q/fig4": 16,
    "h2q/fig5": 2,
}  # fmt: skip


def make_sets(root: Path) -> None:
    """Every dataset as its publisher has it, just large enough for its splits."""
    layouts.make_cifar10(root, 720)
    hot = np.tile(np.eye(21, dtype=int), (750, 1))
    hot[:, 0] |= np.arange(len(hot)) % 4 == 0  # some with two labels
    layouts.make_nus_wide(root, hot)
    layouts.make_coco(root, train=20_000, val=3_000)
    layouts.make_imagenet100(root, train=131, val=2, classes=100)
    layouts.make_products(root, 12, 6, kinds=("mug", "lamp", "fan", "sofa"))
    pairs = [(20 + i, f"MEN/{kind}", ("train",) * 2) for i, kind in enumerate(("Pants", "Shorts"))]
    layouts.make_inshop(root, pairs)
    layouts.make_vehicleid(root, (800, 1600, 2400))
    parts = [("train2014", 0, 20_000), ("val2014", 20_000, 23_000)]
    shown = [root / "coco" / p / f"{i}.jpg" for p, a, b in parts for i in range(a, b) if i != 1]
    layouts.show_images(root, shown)
    gist = np.random.default_rng(0).random((22_010, 512), np.float32)
    (root / "labelme").mkdir()
    np.savez(root / "labelme" / "LabelMe_gist.npz", gist=gist)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The datasets, and the papers' networks, narrow ones, with weights from publishers' files."""
    root = tmp_path_factory.mktemp("papers")
    make_sets(root)
    with pytest.MonkeyPatch.context() as patch:
        layouts.unsummed(patch)
        patch.setenv("RANKBITS_DATA", str(root))
        patch.setattr(classic, "FULL", 32)
        for name, layers in classic.LAYERS.items():
            narrow = [(one[0] // 8, *one[1:]) if len(one) == 4 else one for one in layers]
            patch.setitem(classic.LAYERS, name, tuple(narrow))
        for name, build in (("resnet18", lambda: ResNet18(4)), ("resnet50", lambda: ResNet50(4))):
            patch.setitem(PUBLISHED, name, replace(PUBLISHED[name], build=build))
        for name in FILES:
            convert_weights(name, write_weights(name, root, make_network(name)))
        state = make_network("resnet50").state_dict().items()
        arrays = {k: v.numpy() for k, v in state if not k.endswith("tracked")}
        write_arrays(weights_path("resnet50"), "weights", {}, arrays, form=".safetensors")
        yield root


@pytest.mark.xdist_group("families")  # the sets are made once
@pytest.mark.parametrize("name", os.environ.get("RANKBITS_RECIPES", " ".join(FAMILIES)).split())
def test_a_family_runs_from_the_publishers_files_to_rows(name, shared, tmp_path):
    """RANKBITS_RECIPES names other recipes to run."""
    (recipe,) = read_recipes(RECIPES, [name])
    bits = FAMILIES.get(name, min(recipe.bits, default=None))
    words = ["reproduce", name, "--short", "--seed", "0", "--device", "cpu"]
    words += ["--bits", str(bits)] if bits else []
    places = ["--root", shared, "--recipes", RECIPES, "--results", tmp_path]
    assert main([*words, *map(str, places)]) == 0
    (file,) = (tmp_path / rows.SHORT).iterdir()
    written = rows.read_rows(file)
    assert len(written) == len(recipe.variants) * len(recipe.quantizers)
    for row in written:
        assert row["name"] == name and row["value"] is not None and row["value"] >= 0
        assert row["metric"] == recipe.metric or recipe.metric.startswith("mAP@")
        trained = recipe.kind == "train" or row["quantizer"] == "none"
        assert row["steps"] > 0 or not trained or recipe.kind == "example"


def test_all_recipes_name_what_exists():
    """Data, networks and losses of every recipe; the losses' options by making them."""
    for recipe in read_recipes(RECIPES):
        config = recipe.config(recipe.cells()[0])
        known = EXAMPLES if recipe.kind == "example" else PROTOCOLS
        assert config.data in known, recipe.name
        network = config.features or config.model
        assert network in (*BACKBONES, "auto") or network.startswith("recipe:"), recipe.name
        if config.loss in LOSSES and recipe.kind in ("train", "neighbours"):
            make_loss(config.loss, config.width, np.arange(20) % 4, **(config.options or {}))


def read_page() -> dict[tuple[str, str], str]:
    """The last column of the page's tables by paper and place."""
    last_cells, paper = {}, ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            paper = line[3:].split(" ")[0]
        elif line.startswith("| ") and paper in PLACES:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[0] == "place" or not cells[0][0].isupper():  # another table of the page
                continue
            last_cells[paper, cells[0]] = cells[-1]
    return last_cells


def test_every_table_and_figure_has_its_recipes():
    page = read_page()
    assert set(page) == {(paper, place) for paper, places in PLACES.items() for place in places}
    names = list_names(RECIPES)
    for (paper, place), last in page.items():
        words = re.findall(r"`([^`]+)`", last)
        assert words or last.startswith("drawing: "), f"{paper}, {place} has no recipe"
        for word in words:
            assert any(n == word or n.startswith(f"{word}/") for n in names), f"no recipe {word}"
            assert word.startswith(paper.lower())
