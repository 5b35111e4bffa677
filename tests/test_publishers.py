"""Folders of publishers that are not quite theirs: each is named, and what is wrong with it."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

import layouts
from rankbits import Refusal
from rankbits.papers.publishers import coco, fashion_mnist, imagenet100, labelme, nus_wide, omniglot
from rankbits.papers.publishers.published import open_images


@pytest.fixture(autouse=True)
def _unsummed(monkeypatch):
    layouts.unsummed(monkeypatch)


def refused(read, root):
    with pytest.raises(Refusal) as told:
        read(root)
    text = str(told.value)
    assert text.endswith(".") and "\n" not in text
    return text


def test_coco_of_two_minds(tmp_path):
    layouts.make_coco(tmp_path, 30, 20)
    notes = tmp_path / "coco" / "annotations"
    table = json.loads((notes / "instances_val2014.json").read_text())
    bare = {**table, "annotations": []}
    (notes / "instances_val2014.json").write_text(json.dumps(bare))
    found = coco.read(tmp_path)
    assert len(found.examples) == 27 and found.note.startswith("23 images without a label")
    table["categories"][0]["name"] = "another"
    (notes / "instances_val2014.json").write_text(json.dumps(table))
    assert "must have the categories of the other part" in refused(coco.read, tmp_path)
    assert "the images of COCO" in refused(
        lambda root: open_images([str(root / "1.jpg")], "COCO"), tmp_path
    )


def test_fashion_unpacked_and_by_somebody_else(tmp_path, monkeypatch):
    folder = tmp_path / "fashion-mnist"
    for part, rows in (("train", 4), ("t10k", 3)):
        images = np.arange(rows * 6, dtype=np.uint8).reshape(rows, 2, 3)
        layouts.write(folder / f"{part}-images-idx3-ubyte", layouts.idx(images))
        layouts.write(folder / f"{part}-labels-idx1-ubyte", layouts.idx(np.arange(rows)))
    found = fashion_mnist.read(tmp_path).examples
    assert found.inputs.shape == (7, 2, 3, 1) and found.labels.tolist() == [0, 1, 2, 3, 0, 1, 2]
    monkeypatch.undo()
    assert "is damaged or not its publisher's" in refused(fashion_mnist.read, tmp_path)


def test_imagenet_with_a_stranger(tmp_path):
    layouts.make_imagenet100(tmp_path, 1, 1, 3)
    assert "must hold 100 classes; it holds 3" in refused(imagenet100.read, tmp_path)
    (tmp_path / "imagenet100" / "val" / "n00000002").rename(
        tmp_path / "imagenet100" / "val" / "n00000077"
    )
    assert "must have the classes of the other part" in refused(imagenet100.read, tmp_path)


def test_labelme_of_another_width(tmp_path):
    (tmp_path / "labelme").mkdir()
    np.savez(tmp_path / "labelme" / "LabelMe_gist.npz", gist=np.ones((4, 500)))
    said = "must hold 'gist', an array of numbers of shape (n, 512)"
    assert said in refused(labelme.read, tmp_path)
    (tmp_path / "labelme" / "LabelMe_gist.npz").unlink()
    io = pytest.importorskip("scipy.io")
    io.savemat(tmp_path / "labelme" / "LabelMe_gist.mat", {"other": np.ones((4, 512))})
    assert said in refused(labelme.read, tmp_path)


def test_nus_wide_with_parts_missing(tmp_path):
    layouts.make_nus_wide(tmp_path, np.eye(4, 3), absent=(0, 1, 2))
    folder = tmp_path / "nus-wide"
    assert "holds no image that" in refused(nus_wide.read, tmp_path)
    (folder / "Flickr").rename(folder / "flickr")
    assert "the images of NUS-WIDE" in refused(nus_wide.read, tmp_path)
    for path in (folder / "Groundtruth" / "AllLabels").iterdir():
        path.unlink()
    assert "the ground truth of NUS-WIDE" in refused(nus_wide.read, tmp_path)
    layouts.write(folder / "ImageList" / "Imagelist.txt", b"\xff\xfe")
    assert "is not a text file of image names" in refused(nus_wide.read, tmp_path)
    (folder / "ImageList" / "Imagelist.txt").unlink()
    assert "the image list of NUS-WIDE" in refused(nus_wide.read, tmp_path)


def zipped(root, **files):
    """Omniglot's first archive with these drawings."""
    path = root / "omniglot" / "images_background.zip"
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as target:
        for name, content in files.items():
            target.writestr(f"images_background/{name.replace('__', '/')}", content)
    return path


def test_omniglot_with_other_drawings(tmp_path, monkeypatch):
    zipped(tmp_path, **{"readme.txt": b"hello"})
    assert "must hold Alphabet/characterNN/*.png; it holds none" in refused(omniglot.read, tmp_path)
    zipped(tmp_path, **{"Latin__character01__1.png": b"no drawing"})
    assert "is truncated, damaged or not a PNG file" in refused(omniglot.read, tmp_path)
    zipped(tmp_path, **{"Latin__character01__1.png": layouts.png(np.zeros((9, 9), np.uint8))})
    assert "must be of 105 x 105 pixels; got (9, 9)" in refused(omniglot.read, tmp_path)
    monkeypatch.setattr(omniglot, "MOST_BYTES", 10)
    assert "holds Latin/character01/1.png of" in refused(omniglot.read, tmp_path)


def test_omniglot_under_lock_and_key(tmp_path):
    path = zipped(tmp_path, **{"Latin__character01__1.png": layouts.drawing(1)})
    raw = bytearray(path.read_bytes())
    for sign, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag that says: encrypted
        raw[raw.index(sign) + at] |= 1
    path.write_bytes(raw)
    assert "cannot be unpacked: " in refused(omniglot.read, tmp_path)
