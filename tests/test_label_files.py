"""Labels in a file of their own, in every form they come in."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

import rankbits as rb
from rankbits.data import read_labels_file

NAMES, NUMBERS = ["owl", "ant", "owl"], [7, -3, 7]


@pytest.mark.parametrize("labels", [NAMES, NUMBERS])
@pytest.mark.parametrize(
    "suffix", [".npy", ".npz", ".safetensors", ".parquet", ".txt", ".csv", ".tsv"]
)
def test_every_form(tmp_path, suffix, labels):
    path = tmp_path / f"l{suffix}"
    if suffix == ".npy":
        np.save(path, labels)
    elif suffix == ".npz":
        np.savez(path, labels=labels, ids=[1, 2, 3])
    elif suffix == ".safetensors":
        if labels is NAMES:
            pytest.skip("safetensors hold no strings")
        save_file({"labels": np.array(labels)}, path)
    elif suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"title": list("abc"), "label": labels}), path)
    elif suffix == ".txt":
        path.write_text("\ufeff" + "".join(f"{label}\r\n" for label in labels), "utf-8")
    else:
        between = "\t" if suffix == ".tsv" else ","
        rows = [("title", "Label"), *zip("abc", map(str, labels), strict=True)]
        path.write_text("".join(between.join(row) + "\n" for row in rows))
    array = read_labels_file(path)
    assert array.tolist() == labels
    assert array.dtype.kind == ("U" if labels is NAMES else "i")


def test_the_only_column_needs_no_name(tmp_path):
    (tmp_path / "l.csv").write_text("bird\nowl\nant\n")
    assert read_labels_file(tmp_path / "l.csv").tolist() == ["owl", "ant"]
    np.savez(tmp_path / "l.npz", anything=np.eye(2))
    assert read_labels_file(tmp_path / "l.npz").dtype == bool  # multi-hot
    np.savez(tmp_path / "l.npz", label=[1, 2], labels=[3, 4])
    assert read_labels_file(tmp_path / "l.npz").tolist() == [3, 4]


def test_numbers_that_are_names_stay_names(tmp_path):
    for lines in (["007", "7"], ["7", "x"], ["1.0", "2.0"], ["9" * 30, "1"], ["1_0", "2"]):
        (tmp_path / "l.txt").write_text("\n".join(lines))
        assert read_labels_file(tmp_path / "l.txt").tolist() == lines


def test_what_was_read_is_judged_by(tmp_path):
    codes = rb.pack(np.random.default_rng(0).normal(size=(4, 8)))
    (tmp_path / "q.txt").write_text("owl\n")
    (tmp_path / "d.csv").write_text("label\nant\nowl\nbee\n")
    query, database = (read_labels_file(tmp_path / name) for name in ("q.txt", "d.csv"))
    by_names = rb.evaluate(codes[:1], codes[1:], query, database)
    assert by_names.to_dict() == rb.evaluate(codes[:1], codes[1:], [2], [0, 2, 1]).to_dict()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("l.txt", "a\n\nb\n", "l.txt line 2 has no label."),
        ("l.txt", "\n", "l.txt has no labels."),
        ("l.txt", b"\xff\xfe", "must be text in UTF-8, one label a line."),
        ("l.csv", "label,x\na,1\n,2\n", "l.csv row 2 has no label."),
        ("l.csv", "label\n", "l.csv has no labels."),
        ("l.csv", "a,b\n1,2\n", "must have a column 'labels' or only one; it has a, b."),
        ("l.csv", "", "must have a column 'labels' or only one; it has nothing."),
        ("l.csv", "label\nx|y\n", "row 1 has several labels, 'x|y'; give them as multi-hot"),
        ("l.json", "[1]", "must end in one of .npy, .npz"),
        ("l.npy", b"not an array", "is truncated, damaged or not a .npy file."),
    ],
)
def test_refusals(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(rb.Refusal) as caught:
        read_labels_file(path)
    assert sentence in str(caught.value)


def test_arrays_that_are_no_labels_are_refused(tmp_path):
    with pytest.raises(rb.Refusal, match="does not exist"):
        read_labels_file(tmp_path / "none.npy")
    np.save(tmp_path / "l.npy", [0.5, 1.0])
    with pytest.raises(rb.Refusal, match=r"labels in .*l.npy must be whole numbers; got fractions"):
        read_labels_file(tmp_path / "l.npy")
    np.save(tmp_path / "o.npy", np.array(["a", None], object), allow_pickle=True)
    with pytest.raises(rb.Refusal, match=r"holds Python objects, .* save strings with dtype=str"):
        read_labels_file(tmp_path / "o.npy")
    np.save(tmp_path / "s.npy", np.array(3))
    with pytest.raises(rb.Refusal, match=r"must have shape \(n,\) or \(n, C\); got \(\)"):
        read_labels_file(tmp_path / "s.npy")
