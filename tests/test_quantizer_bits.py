"""Every quantizer takes its number of bits first, and any number of them."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import quantizers
from rankbits._files import write_arrays
from rankbits.quantizers import make_quantizer

DIM = 10
X = np.random.default_rng(0).normal(size=(120, DIM)).astype(np.float32) @ np.diag(
    np.linspace(3, 1, DIM, dtype=np.float32)
)
LABELS = np.arange(120) % 4
CLASSES = (
    rb.Sign, rb.RandomRotation, rb.ITQ, rb.H2Q, rb.Projection, rb.SupervisedRotation,
    rb.SupervisedProjection,
)  # fmt: skip
QUICK = {rb.SupervisedRotation: {"steps": 3, "climbs": 1}}


@pytest.mark.parametrize("kind", CLASSES)
def test_bits_come_first_and_all_else_has_a_name(kind):
    first, *others = inspect.signature(kind).parameters.values()
    assert first.name == "bits" and first.default is None
    assert all(other.kind is inspect.Parameter.KEYWORD_ONLY for other in others)
    assert kind(7).bits == 7 and kind().bits is None


@pytest.mark.parametrize("kind", CLASSES)
def test_no_number_means_as_many_bits_as_dimensions(kind):
    options = QUICK.get(kind, {})
    fitted, same = (kind(bits, **options).fit(X, LABELS) for bits in (None, DIM))
    assert fitted.bits_ == DIM and torch.equal(fitted.weight_, same.weight_)


@pytest.mark.parametrize("bits", [1, 4, 9, 11, 25])
@pytest.mark.parametrize("kind", CLASSES[1:-1])
def test_any_number_of_bits(kind, bits, tmp_path):
    fitted = kind(bits=bits, **QUICK.get(kind, {})).fit(X, LABELS)
    assert fitted.encode(X).bits == fitted.bits_ == bits
    assert fitted.weight_.shape == (bits, DIM) and np.isfinite(fitted.objective_)
    assert np.abs(fitted.transform(X).mean(axis=0)).max() < 1e-4  # centred
    weight = fitted.weight_.double()
    product = weight @ weight.T if bits <= DIM else weight.T @ weight
    torch.testing.assert_close(product, torch.eye(min(bits, DIM)).double(), atol=1e-5, rtol=0)
    fitted.save(tmp_path / "q")
    assert rb.load(tmp_path / "q").bits == bits
    assert rb.load(tmp_path / "q").encode(X) == fitted.encode(X)


def test_fewer_bits_are_rotations_of_the_principal_components():
    components = torch.from_numpy(np.linalg.svd(X - X.mean(axis=0))[2][:4].copy())
    for kind in (rb.RandomRotation, rb.ITQ, rb.H2Q):
        weight = kind(4).fit(X).weight_
        torch.testing.assert_close(weight.T @ weight, components.T @ components, atol=1e-4, rtol=0)


@pytest.mark.parametrize("bits", [4, 25])
def test_learned_rotations_lose_less_than_random_ones(bits):
    random = rb.RandomRotation(bits).fit(X).objective_
    assert rb.ITQ(bits).fit(X).objective_ < random
    assert rb.H2Q(bits).fit(X).objective_ <= rb.ITQ(bits).fit(X).objective_ + 1e-3
    assert rb.H2Q(bits, solver="sgd", epochs=3).fit(X).bits_ == bits


def test_numbers_of_numpy_are_saved(tmp_path):
    rb.ITQ(np.int64(4), steps=np.int32(3)).fit(X).save(tmp_path / "q")
    assert rb.load(tmp_path / "q").get_params() == rb.ITQ(4, steps=3).get_params()


def test_files_of_before_bits_were_an_option_open(tmp_path):
    arrays = {"weight_": np.eye(2, dtype=np.float32), "offset_": np.zeros(2, np.float32)}
    for kind, options in (("H2Q", {"loss": "l1", "seed": 5}), ("ITQ", {"steps": 9}), ("Sign", {})):
        facts = {"class": kind, "options": json.dumps(options), "objective": "0.5"}
        write_arrays(tmp_path / kind, "quantizer", facts, arrays, form=".safetensors")
        opened = rb.load(tmp_path / kind)
        assert opened.bits is None and opened.bits_ == 2
        assert {name: getattr(opened, name) for name in options} == options


def test_a_quantizer_says_what_is_not_its_default():
    assert repr(rb.ITQ(8, start="random")) == "ITQ(bits=8, start='random')"
    assert repr(rb.H2Q()) == "H2Q()"


@pytest.mark.parametrize("method", quantizers.METHODS)
@pytest.mark.parametrize("bits", [None, 4, 25])
def test_methods_by_name(method, bits):
    if method == "sign" and bits is not None:
        with pytest.raises(rb.Refusal, match="method 'sign' gives as many bits as dimensions, 10"):
            make_quantizer(method, bits, DIM, labelled=False, seed=2)
        return
    quantizer = make_quantizer(method, bits, DIM, labelled=False, seed=2)
    assert quantizer.bits == (bits or DIM) and getattr(quantizer, "seed", 2) == 2


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rb.Sign(4).fit(X), "Sign gives as many bits as dimensions, 10; for 4 bits use"),
        (lambda: rb.ITQ(0).fit(X), "bits must be a whole number of at least 1; got 0."),
        (lambda: rb.H2Q("l1").fit(X), "bits must be a whole number of at least 1; got 'l1'."),
        (lambda: rb.ITQ(4).fit(X[:1]), "0 directions only, too few for 4 bits: at least 2 are"),
        (lambda: rb.ITQ(4).fit(X[:, [0, 0, 0, 0, 0]]), "1 direction only, too few for 4 bits"),
        (lambda: rb.H2Q(4).fit(X * np.nan), "embeddings must be finite; row 0 has nan or inf."),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call()
    assert sentence in str(caught.value)


@pytest.mark.parametrize("make", [rb.Projection, rb.ITQ, rb.H2Q, rb.RandomRotation])
@pytest.mark.parametrize("bits", [3, 5, 16, 40])
@pytest.mark.parametrize(
    ("rows", "directions"),
    [(X[:, [0, 0, 1, 1, 1, 0]], 2), (X[:4], 3), (np.c_[X[:, :3], np.ones((len(X), 2))], 3)],
)
def test_any_number_of_bits_of_few_directions(make, bits, rows, directions):
    quantizer = make(bits)
    if bits == rows.shape[1]:
        pytest.skip("a rotation alone")
    if directions < min(bits, rows.shape[1]):
        with pytest.warns(UserWarning, match=f"vary in {directions} directions only"):
            quantizer.fit(rows)
    else:
        quantizer.fit(rows)
    codes = quantizer.encode(rows)
    assert codes.bits == bits and len(codes) == len(rows)
    far = rb.hamming(codes, codes)
    assert far.max() > 0 and (np.diag(far) == 0).all()
