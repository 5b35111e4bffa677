# ruff: noqa: E501
"""Rerank and exports: floats that order a shortlist, and the same codes in other libraries."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import rankbits as rb
from rankbits.indexes import Embeddings, HammingIndex, Rerank, export, quantize_int8


@pytest.fixture(scope="module")
def made():
    """Clustered rows with lengths that differ, and queries near some of them."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 24))
    rows = centres[rng.integers(0, 30, 2000)] + 0.4 * rng.normal(size=(2000, 24))
    rows *= rng.uniform(0.5, 2, (2000, 1))
    queries = rows[:40] + 0.1 * rng.normal(size=(40, 24))
    return rows.astype(np.float32), queries.astype(np.float32)


def plain(rows, queries, distance):
    """All distances in double precision."""
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    if distance == "inner":
        return -queries @ rows.T
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return ((queries[:, None] - rows[None]) ** 2).sum(-1)


@pytest.mark.parametrize("distance", ["euclidean", "inner"])
@pytest.mark.parametrize("form", ["float32", "float16", "float64", "npy", "half-npy", "tensor"])
def test_a_shortlist_of_everything_is_exact_search(made, form, distance, tmp_path):
    rows, queries = made
    given = {
        "float32": rows,
        "float16": rows.astype(np.float16),
        "float64": rows.astype(np.float64),
        "npy": rows,
        "half-npy": rows.astype(np.float16),
        "tensor": torch.from_numpy(rows).bfloat16(),
    }[form]
    wanted = plain(np.asarray(rb._check.array("x", given)), queries, distance)
    if "npy" in form:
        np.save(tmp_path / "x.npy", given)
        given = tmp_path / "x.npy"
    index = HammingIndex(24).add(rb.pack(rows))
    found = Rerank(index, given, distance=distance).search(queries, 10, shortlist=2000)
    assert found.ids.shape == (40, 10) and found.distances.dtype == np.float32
    at = np.take_along_axis(wanted, found.ids, 1)
    np.testing.assert_allclose(found.distances, at, atol=2e-5, rtol=2e-5)
    np.testing.assert_allclose(at, np.sort(wanted, axis=1)[:, :10], atol=2e-5, rtol=2e-5)


def test_only_the_shortlist_is_sorted(made):
    rows, queries = made
    codes = rb.pack(rows)
    index = HammingIndex(24).add(codes)
    rerank = Rerank(index, rows)
    near = index.search(rb.pack(queries), 30)
    found = rerank.search(queries, 3, factor=10)
    wanted = plain(rows, queries, "euclidean")
    for i in range(len(queries)):
        best = sorted(near.ids[i].tolist(), key=lambda j: wanted[i, j])[:3]
        assert found.ids[i].tolist() == best
    assert rerank.search(queries, 5, shortlist=1).ids.shape == (40, 5)
    np.testing.assert_array_equal(rerank.search(queries, 3, codes=rb.pack(queries)).ids, found.ids)
    among = rerank.search(queries, 3, among=np.arange(50))
    assert among.ids.max() < 50 and among.ids.shape == (40, 3)
    assert rerank.search(queries, 9, among=[3, 4]).ids.shape == (40, 2)
    assert rerank.search(queries[:0], 9).ids.shape == (0, 9)


def test_reranking_raises_recall(made):
    """What it is for: recall at 10 of the float neighbours, against bits alone."""
    rows, queries = made
    quantizer = rb.ITQ().fit(rows)
    index = HammingIndex(24).add(quantizer.encode(rows))
    true = np.argsort(plain(rows, queries, "euclidean"), axis=1)[:, :10]

    def recall(ids):
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, true, strict=True)])

    alone = recall(index.search(quantizer.encode(queries), 10).ids)
    rerank = Rerank(index, rows, quantizer)
    assert alone < 0.75 and recall(rerank.search(queries, 10, factor=10).ids) > 0.95


def test_string_ids_and_a_map(made):
    rows, queries = made
    names = [f"r{i}" for i in range(2000)]
    index = HammingIndex(24).add(rb.pack(rows), names)
    numbered = Rerank(HammingIndex(24).add(rb.pack(rows)), rows).search(queries, 4)
    back = np.arange(2000)[::-1]
    rerank = Rerank(index, rows[back], ids=[names[i] for i in back])
    found = rerank.search(queries, 4)
    assert found.ids.tolist() == [[f"r{i}" for i in row] for row in numbered.ids]
    np.testing.assert_allclose(found.distances, numbered.distances, atol=1e-6)
    index.add(rb.pack(queries[:1]), ["other"])
    with pytest.raises(rb.Refusal, match="found id 'other', which has no embedding"):
        rerank.search(queries[:1], 4)
    with pytest.raises(rb.Refusal, match="which has no embedding"):
        Rerank(index, rows).search(queries, 4)


@pytest.mark.parametrize("distance", ["euclidean", "inner"])
def test_int8_is_near_and_mapped(made, distance, tmp_path):
    rows, queries = made
    path = tmp_path / "x.safetensors"
    np.save(tmp_path / "x.npy", rows)
    quantize_int8(tmp_path / "x.npy", path)
    small = Embeddings(path)
    step = np.abs(rows).max(axis=0) / 127
    assert small.rows.dtype == np.int8 and small.rows.shape == rows.shape
    assert not small.rows.flags.owndata and not small.rows.flags.writeable
    assert (np.abs(small.floats(np.arange(2000)) - rows) <= 0.501 * step).all()
    np.testing.assert_array_equal(load_file(path)["rows"], small.rows)  # plain safetensors
    index = HammingIndex(24).add(rb.pack(rows))
    found = Rerank(index, path, distance=distance).search(queries, 10)
    exact = Rerank(index, rows, distance=distance).search(queries, 10)
    shared = [len(set(a) & set(b)) for a, b in zip(found.ids, exact.ids, strict=True)]
    assert np.mean(shared) > 9
    np.testing.assert_allclose(found.distances, exact.distances, atol=0.02, rtol=0.02)


def test_damaged_embeddings_are_refused(made, tmp_path):
    rows, _ = made
    path = tmp_path / "x.safetensors"
    quantize_int8(rows[:50], path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(rb.Refusal, match="damaged"):
            Embeddings(path)
        path.write_bytes(whole[:at])
        with pytest.raises(rb.Refusal, match="damaged"):
            Embeddings(path)
    np.save(tmp_path / "x.npy", rows)
    whole = (tmp_path / "x.npy").read_bytes()
    for data in (b"", whole[:50], whole[:-1], whole[128:], b"\x93NUMPY" + bytes(200)):
        (tmp_path / "x.npy").write_bytes(data)
        with pytest.raises(rb.Refusal, match="damaged"):
            Embeddings(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors"])
def test_embeddings_that_are_cut_while_mapped_are_refused(made, name, tmp_path):
    rows, queries = made
    path = tmp_path / name
    np.save(path, rows) if name.endswith("npy") else quantize_int8(rows, path)
    rerank = Rerank(HammingIndex(24).add(rb.pack(rows)), path)
    rerank.search(queries, 3)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(rb.Refusal, match=f"{name} was cut short while it was open"):
        rerank.search(queries, 3)


@pytest.mark.parametrize("distance", ["euclidean", "inner"])
def test_rows_of_zeros_have_no_direction(distance):
    rows = np.zeros((3, 8), np.float32)
    rows[1] = 1
    found = Rerank(HammingIndex(8).add(rb.pack(rows)), rows, distance=distance).search(rows, 3)
    assert np.isfinite(found.distances).all()
    assert found.ids[1, 0] == 1 and found.ids[0].tolist() == [0, 2, 1]


def test_one_sentence(made, tmp_path):
    rows, queries = made
    index = HammingIndex(24).add(rb.pack(rows))
    rerank, broken = Rerank(index, rows), rows.copy()
    broken[5, 3] = np.nan
    near_broken = HammingIndex(24).add(rb.pack(rows))
    for call, sentence in (
        (lambda: Rerank(rows, rows), "Rerank takes an index of codes; got ndarray."),
        (lambda: Rerank(index, rows, distance="cos"), "distance must be one of 'euclidean'"),
        (lambda: Rerank(index, rows, ids=[1, 2]), "ids must have one row for each of embeddings"),
        (lambda: Rerank(index, rows[0]), "embeddings must have two dimensions"),
        (lambda: Rerank(index, rows.astype(np.int32)), "embeddings must be floats or int8; got"),
        (lambda: Rerank(index, tmp_path / "no.npy"), "does not exist or is not a file."),
        (lambda: Rerank(index, rows, rb.Projection(8).fit(rows)), "same number of bits; got 8 and"),
        (lambda: rerank.search(queries, 0), "k must be a whole number of at least 1; got 0."),
        (lambda: rerank.search(queries, 3, factor=0), "factor must be a whole number of at least"),
        (lambda: rerank.search(queries, 3, shortlist=0), "shortlist must be a whole number"),
        (lambda: rerank.search(queries[:, :5], 3), "the dimension of the embeddings, 24; got 5."),
        (lambda: rerank.search(queries * np.nan, 3), "queries must be finite; row 0 has nan or inf"),
        (lambda: rerank.search(queries, 3, codes=rb.pack(queries[:2])), "codes must have one row"),
        (
            lambda: Rerank(HammingIndex(25), rows).search(queries, 3),
            "Queries of dimension 24 do not make 25 bits by their signs",
        ),
        (
            lambda: Rerank(near_broken, broken).search(rows[5:6], 3),
            "embeddings must be finite; row 5 has nan, inf or overflows.",
        ),
        (lambda: quantize_int8(broken, tmp_path / "x.safetensors"), "finite; row 5 has nan or inf."),
        (lambda: quantize_int8(rows, tmp_path / "x.npy"), "must end in .safetensors."),
        (lambda: quantize_int8(rows[:0], tmp_path / "x.safetensors"), "must not be empty"),
        (lambda: export.to_numpy(rows), "A HammingIndex or Codes are wanted here; got ndarray."),
        (lambda: export.to_faiss(index, "flt"), "kind must be one of 'flat', 'ivf', 'hnsw'; got"),
        (lambda: export.to_faiss(index, "ivf", nprob=2), "no option 'nprob' (did you mean 'nprobe'?)"),
        (lambda: export.to_faiss(index, "hnsw", m=0), "m must be a whole number of at least 1"),
        (lambda: export.to_faiss(HammingIndex(8), "ivf"), "The index must not be empty; got 0 rows."),
        (
            lambda: export.to_faiss(HammingIndex(8).add(rb.pack(np.eye(8)[:1]), ["a"])),
            "faiss takes whole numbers as ids; this index holds strings.",
        ),
    ):  # fmt: skip
        with pytest.raises(rb.Refusal) as caught:
            call()
        text = str(caught.value)
        assert sentence in text and text.endswith(".") and "\n" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bits", [8, 12, 64, 100])
def test_faiss_finds_the_same_distances(bits):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(bits)
    codes, queries = rb.pack(rng.normal(size=(500, bits))), rb.pack(rng.normal(size=(9, bits)))
    index = HammingIndex(bits).add(codes, rng.permutation(500) + 10**12)
    index.remove(index.ids[::5])
    wanted = index.search(queries, 7)
    every = dict(zip(index.ids.tolist(), range(400), strict=True))
    table = rb.hamming(queries, index.codes())
    for peer in (
        export.to_faiss(index),
        export.to_faiss(index, "ivf", nlist=5, nprobe=5),
        export.to_faiss(index, "hnsw", m=32, ef=400),
    ):
        assert peer.ntotal == 400
        distances, ids = peer.search(queries.packed, 7)
        assert (ids >= 10**12).all()
        at = [[table[i, every[name]] for name in row] for i, row in enumerate(ids.tolist())]
        np.testing.assert_array_equal(distances, at)
        assert (distances == wanted.distances).mean() > 0.98
    flat = export.to_faiss(index)
    np.testing.assert_array_equal(flat.search(queries.packed, 7)[0], wanted.distances)
    own = export.to_faiss(codes)
    np.testing.assert_array_equal(own.search(codes.packed, 1)[0], 0)


def test_arrow_and_numpy_hold_the_same(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    codes = rb.pack(np.random.default_rng(0).normal(size=(6, 20)))
    for ids in (None, list("uvwxyz")):
        index = HammingIndex(20).add(codes, ids)
        index.remove(index.ids[2])
        table = export.to_arrow(index)
        names, packed = export.to_numpy(index)
        assert table["id"].to_pylist() == names.tolist() == index.ids.tolist()
        assert table["code"].to_pylist() == [row.tobytes() for row in packed]
        assert table.schema.field("code").type == pyarrow.binary(3)
        assert rb.Codes(packed, 20) == index.codes() == codes[[0, 1, 3, 4, 5]]
        parquet.write_table(table, tmp_path / "t.parquet")
        again = parquet.read_table(tmp_path / "t.parquet")
        assert again.equals(table) and again.schema.metadata[b"bits"] == b"20"
    assert export.to_arrow(codes)["id"].to_pylist() == list(range(6))
    assert len(export.to_arrow(HammingIndex(9))) == 0
