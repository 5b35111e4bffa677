"""A package that is missing is one sentence, which names what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import rankbits as rb
from rankbits.data.arrays import read_array
from rankbits.data.folders import read_examples
from rankbits.indexes.export import to_arrow, to_faiss
from rankbits.papers.publishers.labelme import _read_matlab
from rankbits.papers.publishers.omniglot import _decode

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
INDEX = rb.HammingIndex(4).add(rb.pack(X))


@pytest.mark.parametrize(
    ("package", "call", "sentence"),
    [
        ("pyarrow", lambda path: read_array(path), "Parquet files need the package pyarrow"),
        ("pyarrow", lambda path: read_examples(path), "pip install 'rankbits[parquet]'"),
        ("pyarrow", lambda path: to_arrow(INDEX), "to_arrow needs pyarrow"),
        ("faiss", lambda path: to_faiss(INDEX), "to_faiss needs the package faiss-cpu"),
        ("faiss", lambda path: rb.Sign().fit(X).to_faiss(), "to_faiss needs the package faiss-cpu"),
        ("onnx", lambda path: rb.Sign().fit(X).to_onnx("x.onnx"), "to_onnx needs the package onnx"),
        ("pandas", lambda path: rb.Report({}, "", 0, 0).to_frame(), "to_frame needs the package"),
        ("scipy", lambda path: _read_matlab(path), "needs the package scipy: pip install scipy"),
        (
            "scipy",
            lambda path: rb.StructHash(4).fit(X, X[:, 0] > 0),
            "StructHash needs the package",
        ),
        ("PIL", lambda path: _decode("a.png", b""), "Images need Pillow"),
    ],
)
def test_is_named_in_one_sentence(monkeypatch, tmp_path, package, call, sentence):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(rb.Refusal) as told:
        call(path)
    text = str(told.value)
    assert sentence in text and text.endswith(".") and "\n" not in text
    assert "pip install" in text
