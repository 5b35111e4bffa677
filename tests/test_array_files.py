"""Files of arrays: every form they come in, and what is said of those that are none."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

import rankbits as rb
from rankbits.data import arrays
from rankbits.data.arrays import read_array, read_columns

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def test_the_only_table_needs_no_name(tmp_path):
    np.savez(tmp_path / "x.npz", anything=X, labels=np.arange(6))
    np.testing.assert_array_equal(read_array(tmp_path / "x.npz"), X)
    np.savez(tmp_path / "small.npz", anything=X.astype(np.int8), labels=np.arange(6))
    assert read_array(tmp_path / "small.npz").dtype == np.int8
    np.savez(tmp_path / "codes.npz", packed=X.astype(np.int8).view(np.uint8))
    with pytest.raises(rb.Refusal, match="an array called 'embeddings'; it holds packed"):
        read_array(tmp_path / "codes.npz")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    with pytest.raises(rb.Refusal, match="an array called 'embeddings'; it holds a, b"):
        read_array(tmp_path / "two.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(rb.Refusal, match="it holds nothing"):
        read_array(tmp_path / "none.npz")


def test_columns_of_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    fixed = arrow.FixedSizeListArray.from_arrays(arrow.array(X.reshape(-1)), 4)
    table = arrow.table({"embeddings": fixed, "labels": np.arange(6)})
    parquet.write_table(table, tmp_path / "x.parquet")
    columns = read_columns(tmp_path / "x.parquet")
    assert set(columns) == {"embeddings", "labels"}
    np.testing.assert_array_equal(columns["embeddings"], X)
    parquet.write_table(arrow.table({"x": [[1.0], [1.0, 2.0]]}), tmp_path / "uneven.parquet")
    with pytest.raises(rb.Refusal, match=r"Column 'x' of .* must have rows of one length"):
        read_columns(tmp_path / "uneven.parquet")


def test_strings_of_parquet(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = ["b", "a", None, "b", "é", ""]
    columns = {
        "ids": arrow.array(names),
        "large": arrow.array(names, arrow.large_string()),
        "label": arrow.array(names).dictionary_encode(),
        "kept": [True, False] * 3,
        "tags": [["x"], [], None, ["x", "y"], ["z"], ["z"]],
        "image": [{"bytes": b"1", "path": "1.png"}] * 6,
    }
    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.table(columns), path)
    found = read_columns(path)
    assert set(found) == {
        "ids",
        "large",
        "label",
        "kept",
    }  # lists of words and structs are not read
    for name in ("ids", "large", "label"):
        assert found[name].dtype.kind == "U"
        assert found[name].tolist() == ["b", "a", "", "b", "é", ""]
    assert found["kept"].dtype == bool
    monkeypatch.setattr(arrays, "MOST_CHARACTERS", 3)
    assert read_columns(path)["ids"].dtype.kind == "T"  # long texts take only what they need
    assert read_columns(path)["ids"].tolist() == ["b", "a", "", "b", "é", ""]


def test_a_row_without_a_vector_is_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for kind in (arrow.list_(arrow.float32()), arrow.list_(arrow.float32(), 2)):
        column = arrow.array([[1, 2], None, [3, 4]], kind)
        parquet.write_table(arrow.table({"x": column}), tmp_path / "x.parquet")
        with pytest.raises(rb.Refusal, match="must have a vector in each row; 1 have none"):
            read_columns(tmp_path / "x.parquet")


@pytest.mark.parametrize("form", [".npy", ".npz", ".safetensors", ".parquet"])
def test_half_a_file_is_refused(tmp_path, form):
    path = tmp_path / f"x{form}"
    if form == ".npy":
        np.save(path, X)
    elif form == ".npz":
        np.savez(path, embeddings=X)
    elif form == ".safetensors":
        save_file({"embeddings": X}, path)
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"embeddings": X.tolist()}), path)
    np.testing.assert_allclose(read_array(path), X)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(rb.Refusal, match=f"is truncated, damaged or not a {form} file"):
        read_array(path)


def test_other_names_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(rb.Refusal, match=r"must end in one of .*; got '.csv'"):
        read_array(tmp_path / "x.csv")
    with pytest.raises(rb.Refusal, match="does not exist or is not a file"):
        read_array(tmp_path / "none.npy")
