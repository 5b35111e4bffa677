# ruff: noqa: E501
"""Bad input and the sentence it gets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.kernels import words
from rankbits.kernels.codes import Words
from rankbits.types.codes import _pack_on_device

CODES = rb.pack(np.eye(6))
LABELS = np.arange(6) % 2
RANKING = rb.rank([[1, 2, 2]], [[1, 0, 1]])
FLOATS = torch.eye(6, 4) + 0.1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rb.pack([[1.0, np.nan]]), "signs must be finite; row 0 has nan or inf."),
        (lambda: rb.pack(torch.tensor([[1.0, torch.inf]])), "signs must be finite"),
        (lambda: rb.pack([1, 2]), "signs must have two dimensions (rows, columns); got shape (2,)."),
        (lambda: rb.pack(np.empty((3, 0))), "must be a whole number of at least 1; got 0."),
        (lambda: rb.pack("text"), "signs must be an array of numbers"),
        (lambda: rb.pack([[1, 2], [3]]), "signs must be an array of numbers"),
        (lambda: rb.Codes(np.zeros((2, 2), np.uint8), 3), "packed must have shape (n, 1)"),
        (lambda: rb.Codes(np.ones((2, 1), np.uint8), 3), "pad bits after the last of 3 bits"),
        (lambda: rb.Codes(np.zeros((2, 1)), 3), "packed must be uint8; got float64"),
        (lambda: rb.Codes(np.zeros((2, 1), np.uint8), 0), "bits must be a whole number"),
        (lambda: rb.hamming(CODES, rb.pack(np.eye(7))), "same number of bits; got 6 and 7."),
        (lambda: rb.hamming(CODES, np.eye(6)), "Codes are wanted here"),
        (lambda: rb.hamming_topk(CODES, CODES[:0], 1), "The database must not be empty; got 0 rows."),
        (lambda: rb.hamming_topk(CODES, CODES, 0), "k must be a whole number of at least 1; got 0."),
        (lambda: rb.hamming_topk(CODES, CODES, 2.5), "k must be a whole number of at least 1; got 2.5."),
        (lambda: rb.hamming_topk(CODES, CODES, True), "k must be a whole number"),
        (lambda: rb.hamming_within(CODES, CODES, -1), "radius must be a whole number of at least 0"),
        (lambda: rb.rank([[1.0, np.nan]], [[1, 0]]), "distances must be finite; row 0"),
        (lambda: rb.rank([[1.0, np.inf]], [[1, 0]]), "distances must be finite; row 0"),
        (lambda: rb.rank([[1, 2]], [[1, -1]]), "relevance must be non-negative grades; got -1."),
        (lambda: rb.rank([[1, 2]], [[1, 0.5]]), "relevance must be whole grades"),
        (lambda: rb.rank([[1, 2]], [[1, 300]]), "relevance must be grades of at most 255; got 300."),
        (lambda: rb.rank([[1, 2]], [[1, 0, 1]]), "relevance must have the shape of distances"),
        (lambda: rb.rank(np.empty((2, 0)), np.empty((2, 0))), "The database must not be empty"),
        (lambda: rb.rank_codes(CODES, CODES, LABELS[:5], LABELS), "query_labels must have one row"),
        (lambda: rb.rank_codes(CODES, CODES, LABELS, LABELS[:5]), "database_labels must have one row"),
        (lambda: rb.rank_codes(CODES, CODES, None, LABELS), "query_labels must be given"),
        (lambda: rb.rank_codes(CODES, CODES, LABELS, np.eye(6)), "labels must be of one kind"),
        (lambda: rb.rank_codes(CODES, CODES, 2 * np.eye(6), np.eye(6)), "must be multi-hot"),
        (lambda: rb.rank_codes(CODES, CODES, LABELS + 0.5, LABELS), "whole numbers; got fractions"),
        (
            lambda: rb.rank_codes(CODES, CODES, LABELS, LABELS, "shared"),
            "relevance must be one of 'any', 'count'; got 'shared'.",
        ),
        (
            lambda: rb.rank_codes(CODES, CODES, LABELS, LABELS, "cuont"),
            "got 'cuont' (did you mean 'count'?).",
        ),
        (lambda: rb.rank_codes(CODES, CODES, LABELS, LABELS, np.eye(6)), "either labels or a matrix"),
        (lambda: rb.rank_codes(CODES, CODES, relevance=np.eye(5)), "relevance must have shape"),
        (
            lambda: rb.rank_codes(CODES, CODES[:3], LABELS, LABELS[:3], exclude_self=True),
            "exclude_self needs the database to be the queries themselves",
        ),
        (lambda: rb.average_precision(RANKING, k=0), "k must be a whole number of at least 1; got 0."),
        (lambda: rb.average_precision(RANKING, ties="avg"), "ties must be one of 'mean', 'best'"),
        (lambda: rb.average_precision(RANKING, divide_by="k"), "divide_by must be one of"),
        (lambda: rb.ndcg(RANKING, gain="exp"), "gain must be one of 'exp2', 'linear'"),
        (lambda: rb.precision_within(RANKING, np.nan), "radius must be a finite number"),
        (lambda: rb.evaluate(CODES[:0], CODES, [], LABELS), "The queries must not be empty"),
        (lambda: rb.evaluate(CODES, CODES, LABELS, LABELS, k=(5, 0)), "k must be a whole number"),
        (
            lambda: rb.evaluate(CODES, CODES, LABELS, LABELS, tie_break=(np.eye(6), np.zeros((6, 6)))),
            "database embeddings must have no row of zeros; row 0 is one.",
        ),
        (lambda: rb.Ranking(np.ones((2, 2))), "counts must be whole numbers of shape"),
        (lambda: RANKING + RANKING, "Only rankings of codes can be added"),
        (
            lambda: rb.rank_codes(CODES, CODES, LABELS, LABELS) + rb.rank_codes(CODES[:2], CODES, LABELS[:2], LABELS),
            "Rankings of two shards must have the same queries and levels",
        ),
        (
            lambda: rb.rank_codes(CODES, CODES[::-1], LABELS, LABELS, exclude_self=True),
            "exclude_self needs the database to be the queries themselves.",
        ),
        (lambda: CODES.save("x.safetensors", ids=np.array(list("abcdef"))), "ids that are strings need an .npz"),
        (lambda: _pack_on_device(torch.ones(3)), "signs must have two dimensions (rows, columns); got shape (3,)."),
        (lambda: _pack_on_device(torch.tensor([[torch.nan]])), "signs must be finite; some row has nan or inf."),
        (lambda: rb.ITQ().fit(torch.ones(3)), "embeddings must have two dimensions (n, dim); got shape (3,)."),
        (lambda: rb.ITQ().fit(np.ones((3, 0), np.float32)), "embeddings must have at least one column"),
        (lambda: rb.Projection(4).partial_fit(FLOATS[:1]), "embeddings vary in 0 directions only, too few for 4 bits: at least 2 are needed."),
        (lambda: rb.fastap_loss(FLOATS, torch.zeros(6, 2, 2)), "labels must have shape (n,) or (n, C); got (6, 2, 2)."),
        (
            lambda: rb.fastap_loss(FLOATS, torch.arange(6), database=FLOATS, database_labels=torch.eye(6)),
            "labels and database_labels must be of one kind",
        ),
        (
            lambda: rb.tie_aware_ap_loss(FLOATS, LABELS, database=FLOATS, database_labels=LABELS, self_rows=[9] * 6),
            "self_rows must name a row of the database, or -1, for each of 6 queries.",
        ),
        (lambda: rb.report.compare([]), "Give a list of runs, reports or codes to compare; got none."),
        (lambda: rb.report.compare([rb.evaluate(CODES, CODES, LABELS, LABELS)]), "report (.json) or two files of codes; got Report."),
        (lambda: rb.models.Classic("alexnet", dropout=1.0), "dropout must be at least 0 and less than 1; got 1.0."),
        (lambda: rb.open_index("duckdb:x.duckdb", bits=1 << 40), "bits must be at most"),
    ],
)  # fmt: skip
def test_one_sentence(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rb.Refusal) as caught:
        call()
    text = str(caught.value)
    assert sentence in text
    assert text.endswith(".") and "\n" not in text
    assert not list(tmp_path.iterdir())  # what is refused leaves nothing behind


@pytest.mark.parametrize("address", ["idx", "file:idx", "duckdb:idx", "milvus:idx.db"])
@pytest.mark.parametrize("bits", [None, 0, 1 << 40])
def test_an_index_that_is_refused_is_not_made(address, bits, tmp_path, monkeypatch):
    """A mistyped address, above all: the next command would find it there, and empty."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rb.Refusal, match=r"give bits to make it|bits must be"):
        rb.open_index(address, bits=bits)
    assert not list(tmp_path.iterdir())


def test_a_forced_backend_must_exist(monkeypatch):
    monkeypatch.setenv("RANKBITS_BACKEND", "gpu")
    with pytest.raises(rb.Refusal, match="RANKBITS_BACKEND must be one of"):
        rb.hamming(CODES, CODES)
    monkeypatch.setenv("RANKBITS_BACKEND", "cuda")
    with pytest.raises(rb.Refusal, match="needs a CUDA device and triton"):
        rb.hamming(CODES, CODES)


def test_words_on_a_gpu_stay_there():
    """A GPU's words are tensors, on whatever device torch puts them."""
    on_gpu = Words(torch.zeros(1, 6, dtype=torch.int64), 6)
    assert on_gpu.on("cuda") is on_gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_no_gpu_is_one_sentence():
    with pytest.raises(rb.Refusal, match="Searching on a GPU needs a CUDA device and triton"):
        words(CODES).on("cuda")
    with pytest.raises(rb.Refusal, match="Searching on a GPU needs a CUDA device and triton"):
        rb.HammingIndex(6, device="cuda").add(CODES).search(CODES, 1)
