"""A user's own data: examples, images of every make, folders, tables, arrays, a look at them."""

from __future__ import annotations

import json
import os
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import layouts
from rankbits import cli
from rankbits._check import Refusal
from rankbits.commands.data import Data
from rankbits.data import images
from rankbits.data.examples import Examples, hash_rows
from rankbits.data.folders import read_examples
from rankbits.data.images import ImageFiles, Unreadable, decode, measure
from rankbits.data.inspect import inspect
from rankbits.data.items import read_items
from rankbits.papers import find_protocol

# ---- examples


def test_examples_know_their_kind_and_keep_names():
    features = Examples(np.eye(4, dtype=np.float32), [1, 0, 1, 1], class_names=("a", "b"))
    pixels = Examples(np.zeros((3, 5, 4), np.uint8), np.eye(3, dtype=int))
    files = Examples(ImageFiles(np.array(["x", "y"])), [3, 3], [-1, 0], category_names=("c",))
    assert [e.kind for e in (features, pixels, files)] == ["features", "images", "files"]
    assert pixels.inputs.shape == (3, 5, 4, 1) and pixels.labels.dtype == bool
    part = features.subset(np.array([3, 1]))
    assert part.inputs.tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]] and part.labels.tolist() == [1, 0]
    assert part.class_names == ("a", "b") and part.categories is None
    assert files.subset([1]).inputs.paths.tolist() == ["y"]
    assert files.subset([1]).categories.tolist() == [0] and len(files.subset([])) == 0
    assert str(files) == "Examples(2 image files, 1 classes, 1 category)"


BAD_EXAMPLES = {
    "float features": (np.zeros((2, 3), int), [0, 1], {}),
    "ImageFiles or Texts; got uint8": (np.zeros((2, 3, 3, 2), np.uint8), [0, 1], {}),
    "inputs must be finite; row 1": (np.array([[0.0], [np.nan]]), [0, 1], {}),
    "labels must have one row for each of the inputs: 2; got 3": (np.eye(2), [0, 1, 2], {}),
    "labels must be whole numbers": (np.eye(2), [0.5, 1], {}),
    "categories must be at least -1": (np.eye(2), [0, 1], {"categories": [-2, 0]}),
    "categories must be (n,) whole": (np.eye(2), [0, 1], {"categories": [0.5, 0]}),
    "labels must each have one of the": (np.eye(2), [0, 1], {"class_names": ("a",)}),
    "one name for each of 2 columns": (np.eye(2), np.eye(2), {"class_names": ("a",)}),
}


@pytest.mark.parametrize("sentence", BAD_EXAMPLES)
def test_examples_refuse(sentence):
    inputs, labels, rest = BAD_EXAMPLES[sentence]
    with pytest.raises(Refusal) as refusal:
        Examples(inputs, labels, **rest)
    assert sentence in str(refusal.value)


def test_subsets_refuse_rows_that_are_not_there():
    examples = Examples(np.eye(3), [0, 1, 2])
    for rows in ([3], [-1], [0.5], [[0]], [True, False, True]):
        with pytest.raises(Refusal, match="rows must"):
            examples.subset(rows)
    with pytest.raises(Refusal, match="rows must lie in 0 to 2; got -1"):
        examples.subset([1, -1])
    with pytest.raises(Refusal, match=r"paths must be \(n,\) of str"):
        ImageFiles(np.array([1, 2]))


@given(st.lists(st.binary(min_size=3, max_size=3), max_size=30))
def test_equal_bytes_have_equal_fingerprints(rows):
    values = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 1, 1, 3)
    hashes = hash_rows(values)
    assert hashes.dtype == np.uint64 and len(set(hashes.tolist())) == len(set(rows))
    for i, row in enumerate(rows):
        assert hashes[i] == hashes[rows.index(row)]


# ---- images


def test_the_middle_is_kept_and_the_shorter_side_fits(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = (10, 200, 30)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 10) == (10, 200, 30)).all()
    assert decode(tmp_path / "wide.png", 7).shape == (7, 7, 3)
    assert decode(tmp_path / "wide.png", 20, channels=1).shape == (20, 20, 1)
    assert measure(tmp_path / "wide.png") == (30, 10)
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    assert np.ptp(decode(tmp_path / "stripes.png", 8, 1).astype(int)) < 40, "antialiased"


def test_orientation_is_honoured(tmp_path):
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8, :8] = 255
    for orientation, corner in ((1, (0, 0)), (3, (1, 1)), (6, (0, 1)), (8, (1, 0)), (2, (0, 1))):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
        found = decode(tmp_path / "turned.png", 16)[..., 0].reshape(2, 8, 2, 8).mean(axis=(1, 3))
        assert np.argwhere(found > 200).tolist() == [list(corner)], orientation


def test_every_make_of_image_becomes_plain(tmp_path):
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[..., 0] = 255
    Image.fromarray(clear).save(tmp_path / "clear.png")
    assert (decode(tmp_path / "clear.png", 4) == 255).all(), "transparent is white"
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    palette.save(tmp_path / "palette.png")
    assert (decode(tmp_path / "palette.png", 4) == (9, 8, 7)).all()
    palette.save(tmp_path / "hole.gif", transparency=1)
    assert (decode(tmp_path / "hole.gif", 4) == 255).all()
    Image.fromarray(np.full((4, 4), 0x8081, np.uint16)).save(tmp_path / "deep.png")
    assert (decode(tmp_path / "deep.png", 4) == 0x80).all()
    Image.fromarray(np.full((4, 4), 0x8081, np.uint16)).save(tmp_path / "deep.tif")
    assert (decode(tmp_path / "deep.tif", 4, 1) == 0x80).all()
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "share.tif")
    assert (decode(tmp_path / "share.tif", 4) == 127).all()
    Image.fromarray(np.full((4, 4), np.nan, np.float32)).save(tmp_path / "nan.tif")
    assert (decode(tmp_path / "nan.tif", 4) == 0).all()
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "ink.jpg")
    assert decode(tmp_path / "ink.jpg", 4)[0, 0].tolist() == pytest.approx([255, 0, 0], abs=4)
    phone = [Image.new("RGB", (40, 40), shade) for shade in ("white", "black")]
    phone[0].save(tmp_path / "phone.jpg", "MPO", save_all=True, append_images=phone[1:])
    assert (decode(tmp_path / "phone.jpg", 4) == 255).all()
    Image.new("1", (4, 4), 1).save(tmp_path / "bit.bmp")
    assert (decode(tmp_path / "bit.bmp", 4) == 255).all()
    Image.new("LA", (4, 4), (0, 128)).save(tmp_path / "half.webp", lossless=True)
    assert decode(tmp_path / "half.webp", 1)[0, 0].tolist() == pytest.approx([127] * 3, abs=1)
    frames = [Image.new("L", (4, 4), shade) for shade in (50, 200)]
    frames[0].save(tmp_path / "moves.gif", save_all=True, append_images=frames[1:])
    assert (decode(tmp_path / "moves.gif", 4, 1) == 50).all(), "the first frame"


def test_large_jpegs_shrink_as_small_ones_do(tmp_path):
    ramp = np.linspace(0, 255, 1600).astype(np.uint8)
    Image.fromarray(np.tile(ramp, (1200, 1))).save(tmp_path / "ramp.jpg", quality=95)
    pixels = decode(tmp_path / "ramp.jpg", 16, 1)[8, :, 0].astype(float)
    wanted = ramp[200:1400].reshape(16, 75).mean(axis=1)
    assert np.abs(pixels - wanted).max() < 3


def header_only(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nothing."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    crc = struct.pack(">I", zlib.crc32(chunk))
    begun = struct.pack(">I", 1000) + b"IDAT" + bytes(9)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + crc + begun


HOSTILE = {
    "huge.png": (header_only(60_000, 60_000), "must have at most 67,108,864 pixels"),
    "bomb.png": (header_only(10_000, 10_000), "must have at most 67,108,864 pixels"),
    "large.png": (header_only(8_193, 8_192), "pixels; got 8,193 x 8,192"),
    "bare.png": (header_only(4, 4), "truncated or damaged"),
    "empty.jpg": (b"", "not an image of a known format"),
    "text.png": (b"hello", "not an image of a known format"),
    "page.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "of a known format"),
    "drawing.svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "not an image of a known format"),
    "zeros.gif": (b"GIF89a" + bytes(20), "read|damaged|known format"),
    "head.tif": (b"II*\0\xff\xff\xff\x7f", "read|damaged|known format"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_unreadable_in_one_sentence(name, tmp_path):
    content, sentence = HOSTILE[name]
    path = layouts.write(tmp_path / name, content)
    with pytest.raises(Unreadable, match=sentence) as refusal:
        decode(path, 8)
    assert str(refusal.value).startswith(str(path)) and "\n" not in str(refusal.value)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")), st.data())
def test_a_damaged_file_is_pixels_or_unreadable(tmp_path_factory, form, data):
    path = tmp_path_factory.getbasetemp() / f"damaged.{form.lower()}"
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path, form)
    whole = bytearray(path.read_bytes())
    for _ in range(3):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        found = decode(path, 8)
    except Unreadable as sentence:
        found = str(sentence)
    assert str(path) in found if isinstance(found, str) else found.shape == (8, 8, 3)


def test_what_is_no_file_is_unreadable(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.png", "nul\0byte.png"):
        with pytest.raises(Unreadable):
            decode(path, 8)
    with pytest.raises(Refusal, match="side must be a whole number"):
        decode("x.png", 0)
    with pytest.raises(Refusal, match="channels must be 1 or 3; got 4"):
        decode("x.png", 8, channels=4)


def test_a_long_thin_image_stays_small(tmp_path):
    Image.new("L", (60_000, 1), 77).save(tmp_path / "thin.png")
    assert (decode(tmp_path / "thin.png", 224, 1) == 77).all()


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(Refusal, match=r"Images need Pillow: pip install 'rankbits\[images\]'"):
        images.decode("x.png", 8)


# ---- folders, tables, arrays


def paint(path, shade=0):
    return layouts.write(path, layouts.png(np.full((6, 8, 3), shade, np.uint8)))


def test_a_folder_of_classes(tmp_path):
    for shade, name in enumerate(("cat/2.PNG", "cat/1.jpeg", "ant/x.webp", "10/y.png")):
        paint(tmp_path / name, shade)
    layouts.write(tmp_path / "cat" / "notes.txt", "not an image")
    layouts.write(tmp_path / "cat" / ".hidden.png", "not seen")
    layouts.write(tmp_path / ".git" / "a" / "b.png", "not seen")
    examples = read_examples(tmp_path)
    names = [os.path.relpath(path, tmp_path) for path in examples.inputs.paths]
    assert names == ["10/y.png", "ant/x.webp", "cat/1.jpeg", "cat/2.PNG"]
    assert examples.class_names == ("10", "ant", "cat") and examples.labels.tolist() == [0, 1, 2, 2]
    assert examples.kind == "files" and examples.categories is None


def test_a_folder_of_categories(tmp_path):
    for name in ("pets/cat/1.png", "pets/dog/1.png", "wild/cat/1.png"):
        paint(tmp_path / name)
    examples = read_examples(tmp_path)
    assert examples.class_names == ("pets/cat", "pets/dog", "wild/cat")
    assert examples.categories.tolist() == [0, 0, 1] and examples.category_names == ("pets", "wild")


def test_a_linked_folder_counts_and_a_circle_ends(tmp_path):
    paint(tmp_path / "elsewhere" / "1.png")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cat").symlink_to(tmp_path / "elsewhere")
    assert read_examples(tmp_path / "mine").class_names == ("cat",)
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="must lie equally deep"):
        read_examples(tmp_path / "mine")


def test_folders_that_say_too_little_are_refused(tmp_path):
    with pytest.raises(Refusal, match="holds no image"):
        read_examples(tmp_path)
    paint(tmp_path / "a" / "1.png")
    paint(tmp_path / "b" / "c" / "1.png")
    with pytest.raises(Refusal, match=r"equally deep; .*a/1.png and .*b/c/1.png do not"):
        read_examples(tmp_path)
    paint(tmp_path / "flat" / "1.png")
    with pytest.raises(Refusal, match=r"must hold class/\*.png or category/class/\*.png"):
        read_examples(tmp_path / "flat")
    for part in ("train", "val"):
        paint(tmp_path / "sets" / part / "cat" / "1.png")
    with pytest.raises(Refusal, match=r"holds splits \(train, val\), not categories"):
        read_examples(tmp_path / "sets")
    assert read_examples(tmp_path / "sets" / "train").class_names == ("cat",)


def metadata(folder, text, name="metadata.csv", images=6):
    """A folder of six images with a table beside them."""
    for number in range(images):
        paint(folder / "images" / f"{number}.png", number)
    return layouts.write(folder / name, text)


def rows_of(*columns):
    """Six lines about six images."""
    lines = [
        [f"images/{number}.png", *values]
        for number, *values in zip(range(6), *columns, strict=True)
    ]
    return "".join(",".join(line) + "\n" for line in lines)


@pytest.mark.parametrize("label", ["label", "labels", "Class", "species"])
def test_a_folder_with_metadata(tmp_path, label):
    """Hugging Face's imagefolder; the texts differ in each row, so they are no labels."""
    metadata(tmp_path, f"file_name,text,{label}\n" + rows_of("abcdef", ["owl", "ant"] * 3))
    examples = read_examples(tmp_path)
    assert examples.class_names == ("ant", "owl") and examples.labels.tolist() == [1, 0] * 3
    assert examples.inputs.paths[3] == str(tmp_path / "images" / "3.png")
    looked = inspect(tmp_path)
    assert looked.classes == 2 and not looked.unreadable
    assert str(looked).endswith(
        f"no problem was found\nlabels are the column '{label}' of metadata.csv"
    )


def test_metadata_of_every_form(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"file_name": f"images/{n}.png", "label": "ba"[n % 2], "note": None} for n in range(6)]
    metadata(tmp_path / "a", "\n".join(map(json.dumps, rows)) + "\n\n", "metadata.jsonl")
    metadata(tmp_path / "b", "", "metadata.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "b" / "metadata.parquet")
    for folder in ("a", "b"):
        examples = read_examples(tmp_path / folder)
        assert examples.class_names == ("a", "b") and examples.labels.tolist() == [1, 0] * 3
    layouts.write(tmp_path / "a" / "metadata.jsonl", '{"file_name": "x"}\n[1]\n')
    with pytest.raises(Refusal, match=r"metadata.jsonl line 2 is not a JSON object"):
        read_examples(tmp_path / "a")


def test_images_that_metadata_lack_are_counted(tmp_path):
    text = "file_name,label\n" + rows_of(["owl", "ant"] * 3) + "images/none.png,ant\n"
    metadata(tmp_path, text)
    paint(tmp_path / "images" / "more.png")
    looked = inspect(tmp_path)
    assert looked.examples == 7 and len(looked.unreadable) == 1
    assert looked.note.endswith("; 1 images are not in metadata.csv, and are left out")


def test_metadata_that_say_too_little(tmp_path):
    flat = tmp_path / "flat"
    for number in range(4):
        paint(flat / f"{number}.png")
    layouts.write(flat / "metadata.csv", "file_name,text\n0.png,a\n1.png,b\n")
    with pytest.raises(Refusal, match=r"must have a column 'label', .*; it has file_name, text"):
        read_examples(flat)
    two = metadata(tmp_path / "two", "file_name,bird,sex\n" + rows_of("xyxyxy", "mmmfff")).parent
    with pytest.raises(Refusal, match="must call one column 'label'; it could be any of bird, sex"):
        read_examples(two)
    paint(tmp_path / "classes" / "owl" / "1.png")
    paint(tmp_path / "classes" / "ant" / "1.png")
    for text in ("file_name,text\nowl/1.png,a\nant/1.png,b\n", "about,these\nx,y\n"):
        layouts.write(tmp_path / "classes" / "metadata.csv", text)
        assert read_examples(tmp_path / "classes").class_names == ("ant", "owl")
    paint(tmp_path / "splits" / "train" / "1.png")
    with pytest.raises(Refusal, match=r"holds splits \(train\), not classes: give one of them"):
        read_examples(tmp_path / "splits")


def test_a_look_names_what_lies_elsewhere_and_goes_on(tmp_path):
    for shade, name in enumerate(("a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/c/odd.png")):
        paint(tmp_path / name, shade)
    paint(tmp_path / "odd.png", 9)
    findings = inspect(tmp_path)
    assert findings.examples == 4 and findings.classes == 2
    assert [os.path.relpath(p, tmp_path) for p in findings.misplaced] == ["odd.png", "b/c/odd.png"]
    assert "2 images lie at another depth than the rest" in str(findings)
    assert "no problem" not in str(findings) and str(tmp_path / "odd.png") in str(findings)
    with pytest.raises(Refusal, match="must lie equally deep"):
        read_examples(tmp_path)


def test_one_class_is_a_problem(tmp_path):
    paint(tmp_path / "images" / "1.png", 1)
    paint(tmp_path / "images" / "2.png", 2)
    assert "all examples are of one class" in str(inspect(tmp_path))
    assert "no problem" not in str(inspect(tmp_path))


def test_tables(tmp_path):
    table = layouts.write(
        tmp_path / "t.csv", '\ufeffImage,note,Class,category\na.png,"x, y",10,wild\n b.png ,z,9,\n'
    )
    examples = read_examples(table)
    assert examples.inputs.paths.tolist() == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    assert examples.class_names == ("9", "10") and examples.labels.tolist() == [1, 0]
    assert examples.categories.tolist() == [0, -1] and examples.category_names == ("wild",)
    several = layouts.write(tmp_path / "t.tsv", "path\tlabel\na\tx; y\nb\t\n/c\tx|z\n")
    examples = read_examples(several)
    assert examples.class_names == ("x", "y", "z")
    assert examples.labels.tolist() == [[True, True, False], [False] * 3, [True, False, True]]
    assert examples.inputs.paths[2] == "/c"


def test_parquet_tables(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"path": ["a.png", "b.png"], "label": [7, 3], "category": ["k", None]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    examples = read_examples(tmp_path / "t.parquet")
    assert examples.labels.tolist() == [1, 0] and examples.class_names == ("3", "7")
    assert examples.categories.tolist() == [0, -1]
    rows = {"embeddings": [[1.0, 2.0], [3.0, 4.0]], "labels": [5, 6]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "e.parquet")
    examples = read_examples(tmp_path / "e.parquet")
    assert examples.inputs.tolist() == [[1, 2], [3, 4]] and examples.labels.tolist() == [5, 6]
    (tmp_path / "e.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(Refusal, match=r"damaged or not a .parquet file"):
        read_examples(tmp_path / "e.parquet")


def test_names_in_parquet_are_labels(tmp_path):
    """The columns are there, and data check says so."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for inputs in ("embeddings", "embedding", "features"):
        for label in ("label", "labels", "class"):
            rows = {inputs: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], label: ["owl", "ant", "owl"]}
            parquet.write_table(pyarrow.table(rows), tmp_path / "e.parquet")
            examples = read_examples(tmp_path / "e.parquet")
            assert examples.class_names == ("ant", "owl") and examples.labels.tolist() == [1, 0, 1]
            assert inspect(tmp_path / "e.parquet").classes == 2
    rows = {"file_name": ["a.png", "b.png"], "labels": ["owl", "ant"], "title": ["x", "y"]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    assert read_examples(tmp_path / "t.parquet").class_names == ("ant", "owl")
    items = read_items(tmp_path / "t.parquet")
    assert items.ids.tolist() == ["a.png", "b.png"] and items.titles == ("x", "y")
    parquet.write_table(pyarrow.table(rows).drop(["labels"]), tmp_path / "t.parquet")
    with pytest.raises(Refusal, match=r"must have a column 'labels' .*; it has file_name, title"):
        read_examples(tmp_path / "t.parquet")
    rows = {"embeddings": [[1, 2], [3, 4]], "labels": [0, 1]}
    schema = pyarrow.schema(
        {"embeddings": pyarrow.list_(pyarrow.int8()), "labels": pyarrow.int64()}
    )
    parquet.write_table(pyarrow.table(rows, schema=schema), tmp_path / "e.parquet")
    assert read_examples(tmp_path / "e.parquet").inputs.dtype == np.float32


def test_images_inside_parquet_are_refused_with_what_to_do(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"image": [{"bytes": b"x", "path": "1.png"}], "label": [0]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "i.parquet")
    with pytest.raises(Refusal, match=r"inside its column 'image'.*write each to a file"):
        read_examples(tmp_path / "i.parquet")


BAD_TABLES = {
    "must have a column 'path' or 'file' or 'image' or": "name,label\na,b\n",
    "must have a column 'labels' or 'label' or 'class'; it has path": "path\na\n",
    "must have rows; it has only its header": "path,label\n",
    "line 3 must have 2 fields; got 3": "path,label\na,b\na,b,c\n",
    "row 2 has no label": "path,label\na,b\nc,\n",
    "row 1 has no path": "path,label\n ,b\n",
    "line 2 is not text in UTF-8": b"path,label\n\xff\xfe,b\n",
    "it has nothing": "",
}


@pytest.mark.parametrize("sentence", BAD_TABLES)
def test_tables_refuse(sentence, tmp_path):
    with pytest.raises(Refusal) as refusal:
        read_examples(layouts.write(tmp_path / "t.csv", BAD_TABLES[sentence]))
    assert sentence in str(refusal.value)


def test_array_files(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, images=np.zeros((2, 3, 3, 1), np.uint8), labels=["b", "a"], categories=[0, -1])
    examples = read_examples(path)
    assert examples.kind == "images" and examples.class_names == ("a", "b")
    assert examples.labels.tolist() == [1, 0] and examples.categories.tolist() == [0, -1]
    np.savez(path, features=np.eye(2), labels=np.eye(2, dtype=int))
    assert read_examples(path).labels.dtype == bool
    np.savez(path, features=np.eye(2))
    with pytest.raises(Refusal, match="must hold 'labels' beside its vectors or images"):
        read_examples(path)
    np.savez(path, features=np.eye(2), labels=np.array([{}, None], object))
    with pytest.raises(Refusal, match="holds Python objects, which are not read"):
        read_examples(path)
    path.write_bytes(b"PK")
    with pytest.raises(Refusal, match=r"truncated, damaged or not a .npz file"):
        read_examples(path)
    for name, sentence in (("x.docx", "must be a folder of images, a table"), ("y", "not exist")):
        if sentence != "not exist":
            layouts.write(tmp_path / name, "")
        with pytest.raises(Refusal, match=sentence):
            read_examples(tmp_path / name)


# ---- a look at them


@pytest.fixture
def messy(tmp_path):
    """Five classes: one of one image, a copy within a class, one across, two that are no images."""
    for shade, name in enumerate(("a/1", "a/2", "b/1", "b/2", "c/1", "d/1", "d/2")):
        paint(tmp_path / f"{name}.png", 10 * shade)
    paint(tmp_path / "a" / "again.png", 10)
    paint(tmp_path / "b" / "of_d.png", 50)
    layouts.write(tmp_path / "e" / "text.png", "hello")
    layouts.write(tmp_path / "e" / "half.png", layouts.drawing(1)[:60])
    Image.new("L", (30, 20)).save(tmp_path / "d" / "wide.png")
    return tmp_path


def test_inspect_finds_problems(messy):
    findings = inspect(messy)
    assert findings.examples == 12 and findings.classes == 5
    assert findings.smallest_class == 1 and findings.largest_class == 3
    assert findings.single == ("c",) and findings.shape == "8 x 6 to 30 x 20 pixels"
    unreadable = [os.path.basename(sentence.split(" ")[0]) for sentence in findings.unreadable]
    assert unreadable == ["half.png", "text.png"]
    assert findings.copies_within == 2 and findings.copies_across == 2
    assert [os.path.relpath(p, messy) for p in findings.across] == ["b/of_d.png", "d/1.png"]
    text = str(findings)
    assert "1 classes have one example" in text and "2 files cannot be read:" in text
    assert "2 examples are byte-identical to one of another class (label noise):" in text
    assert json.loads(findings.to_json())["single"] == ["c"]


def test_inspect_says_that_data_is_clean(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(4), labels=[0, 0, 1, 1], categories=[0, 0, 1, 1])
    findings = inspect(tmp_path / "a.npz")
    assert str(findings).splitlines() == [
        f"{tmp_path / 'a.npz'}: 4 features, 4 dimensions",
        "2 classes of 2 to 2 examples, median 2; 2 categories",
        "no problem was found",
    ]


def test_inspect_several_labels(tmp_path):
    hot = np.array([[1, 0], [1, 1], [0, 0], [1, 0]])
    np.savez(tmp_path / "a.npz", features=np.array([[1.0], [1.0], [2.0], [1.0]]), labels=hot)
    findings = inspect(tmp_path / "a.npz")
    assert findings.without_label == 1 and findings.single == ("1",) and findings.classes == 2
    assert findings.copies_within == 2 and findings.across == ("row 0", "row 1", "row 3")


def test_inspect_a_protocol(tmp_path, monkeypatch, capsys):
    layouts.unsummed(monkeypatch)
    monkeypatch.setenv("RANKBITS_DATA", str(layouts.make_omniglot(tmp_path)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal, match="omniglot must hold class"):
        inspect(layouts.write(tmp_path / "other" / "omniglot" / "a.png", "").parent)
    monkeypatch.chdir(tmp_path / "other" / "omniglot")
    findings = inspect(find_protocol("omniglot"))
    assert findings.name == "Protocol(omniglot: 12 train, 6 queries, 6 database)"
    assert findings.shape == "105 x 105 pixels, grey" and findings.leaks == ()
    assert cli.main(["data", "check", "omniglot"]) == 0
    assert capsys.readouterr().out.startswith(findings.name)
    assert cli.main(["data", "check", "omniglo"]) == 1
    wanted = "omniglo is neither a file or folder nor a protocol (did you mean 'omniglot'?)."
    assert wanted in capsys.readouterr().err


def test_names_that_are_no_utf8_can_be_shown(tmp_path):
    (tmp_path / "a").mkdir()
    odd = os.fsencode(tmp_path / "a") + b"/\xff.png"
    try:
        with open(odd, "wb") as file:
            file.write(b"no image")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    paint(tmp_path / "a" / "1.png")
    findings = inspect(tmp_path)
    assert len(findings.unreadable) == 1 and "\\udcff.png" in str(findings)
    str(findings).encode("utf-8")


def test_the_command(messy, capsys):
    assert cli.main(["data", "check", str(messy)]) == 0
    assert "2 files cannot be read" in capsys.readouterr().out
    assert cli.main(["data", "check", str(messy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == 5
    assert cli.main(["data", "chek", str(messy)]) == 1
    assert capsys.readouterr().err == (
        "rankbits: The action of rankbits data must be one of 'check', 'weights'; got 'chek' "
        "(did you mean 'check'?).\n"
    )
    assert cli.main(["data", "check"]) == 1
    assert "Give the data to check: rankbits data check FOLDER." in capsys.readouterr().err
    layouts.write(messy / "none" / "x" / "a.png", "")
    assert cli.main(["data", "check", str(messy / "none")]) == 1
    assert "None of 1 images can be read; the first: " in capsys.readouterr().err
    assert Data.places == ("action", "folder", "source")
