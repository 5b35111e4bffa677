"""Protocols: the publishers' layouts, the counts of every split, and leaks."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import layouts
import rankbits as rb
from rankbits._check import Refusal
from rankbits._files import data_root
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.protocol import Protocol, find_leaks
from rankbits.data.splits import split_own
from rankbits.papers import protocols
from rankbits.papers.draws import draw_per_class, draw_per_label, draw_rows
from rankbits.papers.protocols import PROTOCOLS, protocol
from rankbits.papers.publishers import cifar, coco, imagenet100, labelme, nus_wide, omniglot
from rankbits.papers.publishers.published import Dataset


@pytest.fixture(autouse=True)
def _unsummed(monkeypatch):
    layouts.unsummed(monkeypatch)


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    return layouts.make_cifar10(tmp_path_factory.mktemp("cifar10"))


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    return layouts.make_fashion(tmp_path_factory.mktemp("fashion"))


def per_class(found, split):
    return set(np.bincount(found.examples.labels[getattr(found, split)], minlength=10).tolist())


def test_cifar_s1_has_the_training_images_in_the_database(cifar10):
    found = protocol("cifar10-s1", cifar10)
    assert per_class(found, "train") == {500} and per_class(found, "queries") == {100}
    assert per_class(found, "database") == {620} and found.validation is None
    assert np.isin(found.train, found.database).all()
    assert (found.metric, found.exclude_self, found.tie_break) == ("mAP", False, False)


def test_cifar_s2_is_the_publishers_split(cifar10):
    found = protocol("cifar10-s2", cifar10, seed=7)
    assert np.array_equal(found.train, np.arange(6000)) and found.train is not None
    assert np.array_equal(found.queries, np.arange(6000, 7200))
    assert np.array_equal(found.database, found.train)


def test_cifar_h2q_has_four_parts_that_never_meet(cifar10):
    found = protocol("cifar10-h2q", cifar10)
    sizes = {s: per_class(found, s) for s in ("train", "queries", "validation", "database")}
    assert sizes == {"train": {500}, "queries": {100}, "validation": {100}, "database": {20}}
    every = np.concatenate([found.train, found.queries, found.validation, found.database])
    assert np.array_equal(np.sort(every), np.arange(7200))
    assert found.metric == "mAP@5000 retrieved" and 5000 in found.k and found.tie_break


def test_cifar_pixels_are_where_they_were(cifar10):
    found = cifar.read_ten(cifar10)
    raw = (cifar10 / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes()
    image = found.examples.inputs[1200]
    assert image.shape == (32, 32, 3) and image.dtype == np.uint8
    assert image[0, :8, 0].tolist() == list(raw[1:9]) and image[..., 1:].sum() == 0
    assert found.examples.labels[1200] == raw[0] and found.examples.class_names[9] == "truck"


def test_splits_come_from_the_seed_and_stay(cifar10):
    rows = protocol("cifar10-s1", cifar10, seed=0).queries
    assert np.array_equal(rows, protocol("cifar10-s1", cifar10, seed=0).queries)
    assert not np.array_equal(rows, protocol("cifar10-s1", cifar10, seed=1).queries)
    # published figures hang on these rows: they may never change
    labels = np.tile(np.arange(10), 6000)
    golden = draw_per_class(labels, (100, 500), seed=0)
    assert [part[:4].tolist() for part in golden] == GOLDEN
    assert [zlib.crc32(part.astype("<i8").tobytes()) for part in golden] == GOLDEN_CRC


GOLDEN = [[62, 106, 110, 149], [14, 20, 21, 30], [0, 1, 2, 3]]
GOLDEN_CRC = [1612310352, 677549496, 1601328450]


def test_cifar100_has_coarse_labels_as_categories(tmp_path):
    found = protocol("cifar100", layouts.make_cifar100(tmp_path))
    assert len(found.train) == len(found.queries) == 200
    assert np.array_equal(found.examples.categories, found.examples.labels // 5)
    assert found.examples.category_names[19] == "c19" and found.examples.class_names == ()


def test_fashion_holds_validation_out_of_training(fashion):
    found = protocol("fashion-mnist", fashion)
    assert per_class(found, "validation") == {1000} and per_class(found, "train") == {100}
    assert np.array_equal(found.queries, np.arange(11_000, 11_200))
    assert np.array_equal(found.database, np.arange(11_000))
    assert found.examples.inputs.shape == (11_200, 2, 4, 1)
    first = protocol("fashion-mnist-s1", fashion)
    assert per_class(first, "queries") == {100} and per_class(first, "database") == {1020}


@pytest.mark.parametrize("packed", [True, False])
def test_omniglot_from_archives_or_folders(tmp_path, packed):
    found = protocol("omniglot", layouts.make_omniglot(tmp_path, packed))
    examples = found.examples
    assert len(found.train) == 12 and len(found.queries) == 6
    assert found.exclude_self and found.queries is found.database and found.metric == "hit@1"
    assert examples.category_names == ("Greek", "Latin", "ULOG")
    assert examples.labels.tolist() == [i // 3 for i in range(18)]
    assert examples.categories.tolist() == [i // 6 for i in range(18)]
    assert {examples.class_names[examples.labels[r]] for r in found.queries} == {
        "ULOG/character01", "ULOG/character02"
    }  # fmt: skip
    assert examples.inputs.shape == (18, 105, 105, 1) and examples.inputs.dtype == np.uint8
    # Greek's first was drawn seventh: ink, which is 0, in the first column of row 7
    assert np.argwhere(examples.inputs[0, ..., 0] == 0).tolist() == [[7, 0]]
    assert set(np.unique(examples.inputs)) == {0, 255}


def test_nus_wide_keeps_the_most_frequent_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(nus_wide, "FREQUENT", 2)
    hot = np.zeros((8, 4), int)
    hot[:5, 1] = hot[3:7, 3] = hot[7, 0] = 1
    found = nus_wide.read(layouts.make_nus_wide(tmp_path, hot, absent=(2,)))
    assert found.examples.class_names == ("c01", "c03")
    assert [Path(p).name[:4] for p in found.examples.inputs.paths] == [
        "0000", "0001", "0003", "0004", "0005", "0006"
    ]  # fmt: skip
    assert (
        found.examples.labels.tolist() == hot[[0, 1, 3, 4, 5, 6]][:, [1, 3]].astype(bool).tolist()
    )
    assert found.note == "1 images of the 2 labels are not on disk and left out."
    path = next((tmp_path / "nus-wide").rglob("Labels_c02.txt"))
    path.write_text("0\n" * 7 + "-1130179\n")
    with pytest.raises(Refusal, match="must hold 8 lines of 0 or 1"):
        nus_wide.read(tmp_path)


def test_nus_wide_protocols_count_as_published():
    draw = np.random.default_rng(0)
    hot = draw.random((16_000, 21)) < 0.15
    hot[:, 20] |= ~hot.any(axis=1)
    files = ImageFiles(np.array([f"{i}.jpg" for i in range(len(hot))]))
    dataset = Dataset(Examples(files, hot), {}, "a note")
    found = protocols.draw_protocol("nuswide-talr", dataset, seed=0)
    assert (len(found.train), len(found.queries), len(found.database)) == (10_500, 2_100, 13_900)
    assert hot[found.queries].sum(axis=0).min() >= 100
    assert hot[found.train].sum(axis=0).min() >= 500
    assert np.isin(found.train, found.database).all() and found.relevance == "count"
    other = protocols.draw_protocol("nuswide-h2q", dataset, seed=0)
    sizes = [len(getattr(other, s)) for s in ("train", "queries", "validation", "database")]
    assert sizes == [10_500, 2_100, 2_100, 1_300] and other.note == "a note"


def test_coco_drops_images_without_a_label(tmp_path):
    layouts.make_coco(tmp_path, train=20_000, val=3_000)
    found = protocol("coco-h2q", tmp_path)
    sizes = [len(getattr(found, s)) for s in ("train", "queries", "validation", "database")]
    assert sizes == [10_000, 5_000, 5_000, 700]
    examples = found.examples
    assert examples.labels.shape == (20_700, 80) and (examples.labels.sum(axis=1) == 2).all()
    assert np.flatnonzero(examples.labels[1]).tolist() == [14, 17]
    assert examples.class_names[79] == "thing79"
    assert examples.inputs.paths[1] == str(tmp_path / "coco" / "train2014" / "2.jpg")
    assert examples.inputs.paths[-1].endswith("val2014/22999.jpg")
    assert found.note == "2,300 images without a label are left out."
    layouts.write(tmp_path / "coco" / "annotations" / "instances_val2014.json", '{"images": [')
    with pytest.raises(Refusal, match="truncated, damaged or not COCO's instance annotations"):
        coco.read(tmp_path)


def test_imagenet100_asks_with_the_validation_images(tmp_path, monkeypatch):
    layouts.make_imagenet100(tmp_path, train=132, val=2, classes=3)
    with pytest.raises(Refusal, match="must hold 100 classes; it holds 3"):
        protocol("imagenet100", tmp_path)
    monkeypatch.setattr(imagenet100, "CLASSES", 3)
    found = protocol("imagenet100", tmp_path)
    assert (len(found.train), len(found.queries), len(found.database)) == (390, 6, 396)
    assert np.isin(found.train, found.database).all() and found.metric == "mAP@1000 retrieved"
    assert np.bincount(found.examples.labels[found.train]).tolist() == [130] * 3
    other = protocol("imagenet-h2q", tmp_path)
    assert np.array_equal(other.train, found.train) and len(other.database) == 396
    asked = np.concatenate([other.queries, other.validation])
    assert len(other.queries) == 3 and np.array_equal(np.sort(asked), found.queries)
    assert other.tie_break and other.metric == "mAP@1000 retrieved"


def test_products_categories_are_the_super_classes(tmp_path):
    found = protocol("products", layouts.make_products(tmp_path))
    assert found.examples.category_names == ("bicycle", "coffee_maker")
    assert found.examples.labels.tolist() == np.repeat(np.arange(5), 3).tolist()
    assert found.examples.categories.tolist() == np.repeat([0, 1, 0, 1, 0], 3).tolist()
    assert found.queries.tolist() == list(range(9, 15)) and found.exclude_self
    assert found.k == (1, 10, 100, 1000)
    assert Path(found.examples.inputs.paths[-1]).read_text() == "15"


def test_inshop_asks_a_gallery(tmp_path):
    found = protocol("inshop", layouts.make_inshop(tmp_path))
    assert found.train.tolist() == list(range(5)) and found.queries.tolist() == [5, 8]
    assert found.database.tolist() == [6, 7, 9] and not found.exclude_self
    names = found.examples.category_names
    assert [names[c] for c in found.examples.categories[[0, 2, 9]]] == [
        "WOMEN/Dresses", "MEN/Denim", "WOMEN/Tees_Tanks"
    ]  # fmt: skip
    assert Path(found.examples.inputs.paths[5]).read_text() == "7 0"


def test_vehicles_without_a_model_have_no_category(tmp_path):
    found = protocol("vehicleid-small", layouts.make_vehicleid(tmp_path))
    assert found.examples.categories.tolist() == np.repeat([0, -1, 1, 0, -1], 3).tolist()
    assert found.examples.category_names == ("5", "77") and found.k == (1, 5)
    assert found.queries.tolist() == list(range(9, 15)) and found.exclude_self
    with pytest.raises(Refusal, match=r"test_list_1600.txt does not exist: put"):
        protocol("vehicleid-medium", tmp_path)


def test_labelme_counts(tmp_path):
    gist = np.random.default_rng(0).random((22_019, 512)).astype(np.float32)
    layouts.write(tmp_path / "labelme" / "x", "")
    np.savez(tmp_path / "labelme" / "LabelMe_gist.npz", gist=gist)
    found = protocol("labelme", tmp_path)
    assert (len(found.train), len(found.queries), len(found.database)) == (5_000, 2_000, 20_000)
    assert np.isin(found.train, found.database).all() and found.metric == "NDCG"
    assert found.examples.kind == "features" and found.examples.classes == 22_019


@pytest.mark.parametrize("packed", [True, False])
def test_descriptors_in_a_matlab_file(tmp_path, packed):
    io = pytest.importorskip("scipy.io")
    path = tmp_path / "labelme" / "LabelMe_gist.mat"
    path.parent.mkdir()
    gist = np.random.default_rng(0).random((7, 512))
    io.savemat(path, {"names": np.array(["x", "yz"], object), "gist": gist}, do_compression=packed)
    assert np.array_equal(labelme.read(tmp_path).examples.inputs, gist.astype(np.float32))
    whole = path.read_bytes()
    for cut in (len(whole) // 2, 200, 130):
        path.write_bytes(whole[:cut])
        with pytest.raises(Refusal, match=r"damaged or of MATLAB's format 7.3|must hold 'gist'"):
            labelme.read(tmp_path)
    path.write_bytes(b"MATLAB 7.3 MAT-file" + bytes(200))
    with pytest.raises(Refusal, match=r"of MATLAB's format 7.3; put an .npz there"):
        labelme.read(tmp_path)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_is_not_there_is_asked_for(name, tmp_path):
    with pytest.raises(Refusal, match=r"^\S+ does not exist: put .* there, or set RANKBITS_DATA"):
        protocol(name, tmp_path)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(Refusal, match=r"no protocol 'omniglott' \(did you mean 'omniglot'\?\)"):
        protocol("omniglott")
    with pytest.raises(Refusal, match="seed must be a whole number of at least 0; got -1"):
        protocol("omniglot", seed=-1)


def test_the_root_is_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path))
    assert data_root() == tmp_path and data_root("x") == Path("x")
    monkeypatch.delenv("RANKBITS_DATA")
    assert data_root() == Path.home() / ".cache" / "rankbits" / "data"


def test_pickles_are_refused_and_the_binary_version_named(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(Refusal, match=r"Python version of CIFAR-10.*put the binary version in"):
        protocol("cifar10-s1", tmp_path)


def test_other_bytes_than_the_publishers_are_refused(tmp_path, monkeypatch):
    monkeypatch.undo()
    layouts.make_cifar10(tmp_path, per_class=6)
    with pytest.raises(Refusal, match=r"data_batch_1.bin is damaged or not its publisher's"):
        cifar.read_ten(tmp_path)
    layouts.make_omniglot(tmp_path)
    with pytest.raises(Refusal, match=r"images_background is damaged or not its publisher's"):
        omniglot.read(tmp_path)


BROKEN = {
    "cifar-10-batches-bin/test_batch.bin": ("cifar10-s1", b"\0" * 3072, "records of 3,073 bytes"),
    "cifar-10-batches-bin/data_batch_1.bin": ("cifar10-s1", b"\x0b" * 3073, "past the 10 classes"),
    "fashion-mnist/train-images-idx3-ubyte.gz": ("fashion-mnist", b"\x1f\x8b", "truncated or dam"),
    "omniglot/images_background.zip": ("omniglot", b"PK\3\4", "damaged or not a zip file"),
    "Stanford_Online_Products/Ebay_test.txt": ("products", b"a\nb c\n", "line 2 must be 'image_id"),
    "inshop/Eval/list_eval_partition.txt": ("inshop", b"1\nx\na b c\n", "must name img/WHO/WHAT"),
    "VehicleID_V1.0/train_test_split/train_list.txt": ("vehicleid-small", b"\xff\n", "not a text"),
}


@pytest.mark.parametrize("place", BROKEN)
def test_broken_files_are_refused_by_name(place, tmp_path):
    for make in (layouts.make_omniglot, layouts.make_products, layouts.make_inshop):
        make(tmp_path)
    layouts.make_vehicleid(tmp_path)
    layouts.make_cifar10(tmp_path, 6)
    layouts.make_fashion(tmp_path, 20, 20)
    name, content, sentence = BROKEN[place]
    layouts.write(tmp_path / place, content)
    with pytest.raises(Refusal, match=sentence) as refusal:
        protocol(name, tmp_path)
    assert Path(place).name.split(".")[0] in str(refusal.value)


def test_rows_in_two_splits_are_refused():
    examples = Examples(np.eye(6), [0, 0, 1, 1, 2, 2])
    with pytest.raises(Refusal, match="queries and the database of mine must not share a row"):
        Protocol("mine", examples, [0], [1, 2], [2, 3])
    with pytest.raises(Refusal, match="train and the queries of mine must not share"):
        Protocol("mine", examples, [1, 2], [1, 2], [3])
    with pytest.raises(Refusal, match=r"validation and the train of mine .* share 1"):
        Protocol("mine", examples, [0, 4], [1], [2], [4])
    with pytest.raises(Refusal, match="no row twice"):
        Protocol("mine", examples, [0, 0], [1], [2])
    with pytest.raises(Refusal, match="must be its database"):
        Protocol("mine", examples, [0], [1], [2], exclude_self=True)
    with pytest.raises(Refusal, match="relevance must be one of 'any', 'count'"):
        Protocol("mine", examples, [0], [1], [2], relevance="all")
    with pytest.raises(Refusal, match="must be rows of its examples"):
        Protocol("mine", examples, [0], [6], [2])


def test_headline_figures_are_figures_of_the_report():
    draw = np.random.default_rng(0)
    database = rb.pack(draw.normal(size=(5_000, 8)))
    report = rb.evaluate(database[:2], database, [0, 1], np.arange(5_000) % 2, k=(1, 1000, 5000))
    used = {"mAP", "mAP@5000 retrieved", "mAP@1000 retrieved", "hit@1", "NDCG"}
    named = {setting.judged.get("metric", "mAP") for setting in protocols.SETTINGS.values()}
    assert named == used and used <= set(report.figures)


def test_copies_in_other_splits_are_counted(tmp_path):
    rows = np.arange(8.0)[:, None]
    rows[5] = rows[0]
    rows[6] = rows[1]
    examples = Examples(rows, np.zeros(8, int))
    made = Protocol("mine", examples, [0], [5, 6, 7], [0, 1, 2], [3])
    assert find_leaks(made) == [
        "2 of 3 queries have the same bytes as an image of the database.",
        "1 of 3 queries has the same bytes as a training image.",
    ]
    files = []
    for i, content in enumerate((b"aa", b"bb", b"aa", b"ccc", b"dd")):
        files.append(str(layouts.write(tmp_path / f"{i}.png", content)))
    on_disk = Examples(ImageFiles(np.array([*files, "nowhere.png"])), np.zeros(6, int))
    alone = Protocol("disk", on_disk, [4], [0, 2, 3, 5], [0, 2, 3, 5], exclude_self=True)
    assert find_leaks(alone) == ["2 of 4 queries have the same bytes as another of them."]
    assert find_leaks(Protocol("disk", on_disk, [4], [0, 1], [3, 5])) == []


def test_labels_too_few_for_a_split_are_named():
    with pytest.raises(Refusal, match="needs 3 examples of every class; class 1 has 2"):
        draw_per_class(np.array([0, 0, 0, 1, 1]), (1, 2), 0)
    with pytest.raises(Refusal, match="needs 7 examples; there are 5"):
        draw_rows(np.arange(5), (3, 4), 0)
    with pytest.raises(Refusal, match="needs 2 examples of every label; label 1 has 1 left"):
        draw_per_label(np.array([[1, 0], [1, 1]], bool), (2,), 0)


@given(st.lists(st.integers(0, 9), max_size=80), st.floats(0, 0.95), st.integers(0, 99))
@example([0, 0, 0, 0, 1, 1], 0.25, 0)  # class 1 has none to spare: class 0 gives its share and one
@settings(max_examples=150, deadline=None)
def test_a_split_of_ones_own(labels, share, seed):
    labels = np.array(labels, np.int64)
    examples = Examples(np.zeros((len(labels), 1)), labels)
    train, held = split_own(examples, share, seed)
    assert np.array_equal(np.sort(np.concatenate([train, held])), np.arange(len(labels)))
    sizes, kept = np.bincount(labels, minlength=10), np.bincount(labels[train], minlength=10)
    assert (kept >= np.minimum(sizes, 2)).all()
    limit = np.ceil(sizes * share)
    if (sizes - 2 < sizes * share).any():  # classes too small let others give one more
        limit = np.floor(sizes * share) + 1
    assert (sizes - kept <= limit).all()
    assert len(held) <= share * len(labels) + 0.5
    again = split_own(examples, share, seed)
    assert np.array_equal(again[0], train) and np.array_equal(again[1], held)


def test_a_split_of_ones_own_is_stratified_and_refuses():
    labels = np.repeat(np.arange(40), 5)
    _, held = split_own(Examples(np.zeros((200, 1)), labels), 0.1, seed=3)
    assert len(held) == 20 and np.bincount(labels[held]).max() == 1
    hot = np.zeros((60, 3), bool)
    hot[:, 0], hot[:20, 1] = True, True
    _, held = split_own(Examples(np.zeros((60, 1)), hot), 0.2)
    assert len(held) == 12 and hot[held, 1].sum() == 4
    for bad in (1.0, -0.1, float("nan"), True):
        with pytest.raises(Refusal, match="validation must be"):
            split_own(Examples(np.zeros((60, 1)), hot), bad)
