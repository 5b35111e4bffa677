"""Rows that are many, few or of no use: what is drawn of them, and what is learned all the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits._files import write_arrays
from rankbits.quantizers import rotations, rows

X = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_a_draw_is_in_the_order_of_the_file(kind):
    drawn, chosen = rows.sample(kind(X), 20, seed=3)
    assert len(set(chosen.tolist())) == 20 and (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(drawn.numpy(), X[chosen])
    assert (chosen == rows.sample(kind(X), 20, seed=3)[1]).all()
    whole, every = rows.sample(kind(X), 90, seed=3)
    assert len(whole) == len(every) == 90


def test_labels_follow_the_rows_that_are_drawn(monkeypatch):
    """A supervised rotation of a sample is that of the sample with its own labels."""
    labels = np.arange(90) % 3
    monkeypatch.setattr(rotations, "MOST_ROWS", 60)
    few = rb.SupervisedRotation(seed=1, steps=4).fit(X, labels)
    chosen = rows.sample(X, 60, 1)[1]
    monkeypatch.setattr(rotations, "MOST_ROWS", 1000)
    alone = rb.SupervisedRotation(seed=1, steps=4).fit(X[chosen], labels[chosen])
    torch.testing.assert_close(few.rotation_, alone.rotation_)


def test_fit_transform_is_both():
    one = rb.ITQ(seed=0).fit_transform(X)
    np.testing.assert_array_equal(one, rb.ITQ(seed=0).fit(X).transform(X))


def test_a_rotation_that_gains_nothing_is_not_taken():
    """Rows that are signs already: no rotation is nearer to its signs than they are."""
    signs = np.sign(X)
    made = rb.ITQ(steps=0, start="random").fit(signs)
    assert made.objectives_[0] > 0.1 and made.objective_ == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(made.rotation_, torch.eye(6))


def test_quantizers_that_are_none(tmp_path):
    path = tmp_path / "q.safetensors"
    good = {"weight_": np.eye(2, dtype=np.float32), "offset_": np.zeros(2, np.float32)}
    facts = {"class": "Sign", "options": "{}", "objective": "null"}
    write_arrays(path, "quantizer", facts, good, form=".safetensors")
    assert not hasattr(rb.load(path), "objective_") or rb.load(path).objective_ is None
    for change, arrays, said in (
        ({"class": "Nobody"}, good, "holds no quantizer that this version knows"),
        ({}, {"offset_": good["offset_"]}, "holds no quantizer that this version knows"),
        ({"options": "{"}, good, "is damaged: its options cannot be read"),
    ):
        write_arrays(path, "quantizer", {**facts, **change}, arrays, form=".safetensors")
        with pytest.raises(rb.Refusal, match=said):
            rb.load(path)
    assert json.loads(facts["options"]) == {}


def test_a_file_with_options_of_another_version_opens(tmp_path):
    path = tmp_path / "q.safetensors"
    arrays = {"weight_": np.eye(2, dtype=np.float32), "offset_": np.zeros(2, np.float32)}
    options = {"bits": None, "held_out": 0.25, "weights": [0.0, 1.0], "seed": 7}
    facts = {"class": "SupervisedRotation", "options": json.dumps(options), "objective": "0.5"}
    write_arrays(path, "quantizer", facts, arrays, form=".safetensors")
    opened = rb.load(path)
    assert opened.seed == 7 and opened.objective_ == 0.5
    assert opened.encode(np.array([[1.0, -1.0]])).signs().tolist() == [[1, -1]]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_small_whole_numbers_are_taken_as_floats(kind, tmp_path):
    """What services sell as int8 or uint8 embeddings."""
    low = np.iinfo(kind).min
    small = np.random.default_rng(1).integers(low, low + 256, (90, 6)).astype(kind)
    floats = small.astype(np.float32)
    np.save(tmp_path / "x.npy", small)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    quick = {"steps": 3, "climbs": 1}
    labels = np.arange(90) % 3
    for make in (
        lambda: rb.Sign(),
        lambda: rb.ITQ(4),
        lambda: rb.H2Q(),
        lambda: rb.Projection(4),
        lambda: rb.Projection(4, objective="neighbours", steps=2),
        lambda: rb.SupervisedRotation(**quick),
    ):
        wanted = make().fit(floats, labels)
        for rows_given in (small, mapped, torch.from_numpy(small)):
            fitted = make().fit(rows_given, labels)
            assert torch.equal(fitted.weight_, wanted.weight_)
            assert fitted.encode(rows_given) == wanted.encode(floats)
    part = rb.Projection(4).partial_fit(small)
    assert part.encode(small) == rb.Projection(4).partial_fit(floats).encode(floats)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_one_row_is_one_row(kind):
    fitted = rb.Projection(4).fit(X)
    assert fitted.transform(kind(X[0])).shape == (1, 4)
    assert fitted.encode(kind(X[0])) == fitted.encode(X[:1])
    with pytest.raises(rb.Refusal, match="must have dim 6, as in fit; got 5"):
        fitted.encode(kind(X[0, :5]))
    with pytest.raises(rb.Refusal, match=r"two dimensions \(n, dim\); got shape \(6,\)"):
        rb.Projection(4).fit(X[0])  # one row cannot be fitted to


def test_other_whole_numbers_are_refused():
    for kind in (np.int16, np.int64, bool):
        with pytest.raises(rb.Refusal, match="embeddings must be floats, int8 or uint8; got"):
            rb.Sign().fit(X.astype(kind))
