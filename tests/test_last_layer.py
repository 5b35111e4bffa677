"""A last layer that starts at the principal components of what it reads."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from torch import nn

import rankbits as rb
from rankbits import Refusal
from rankbits.data import Examples, digits
from rankbits.models import make_embedder
from rankbits.train import last_layer
from rankbits.train.last_layer import start_at_components

QUIET = {"say": lambda line: None, "validation": 0.0, "last_layer": "principal"}


@pytest.fixture(scope="module")
def own():
    images, labels = digits()
    return Examples(images[:400].reshape(400, 64).astype(np.float32) / 16, labels[:400])


def project(x, width):
    """The part of centred rows that lies in their first principal directions."""
    centred = x - x.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:width]
    return centred @ directions.T @ directions


@pytest.mark.parametrize("size", [{"bits": 8}, {"dim": 8}])
def test_the_outputs_are_a_turned_projection_onto_the_components(own, size):
    run = rb.train(examples=own, epochs=0, **size, **QUIET)
    outputs = run.embed(own).embeddings.astype(np.float64)
    expected = project(own.inputs.astype(np.float64), 8)
    products, theirs = outputs @ outputs.T, expected @ expected.T
    scale = np.sqrt((products**2).sum() / (theirs**2).sum())
    np.testing.assert_allclose(products, scale * theirs, atol=1e-4 * np.abs(products).max())
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-5 * np.abs(outputs).max())
    spread = outputs.std(axis=0)
    assert spread.max() < 4 * spread.min()  # turned; the components' own ratio is above 2,000 to 1


def test_the_weights_are_as_large_as_those_they_replace(own):
    for head in ("hash", "embedding"):
        model = make_embedder("mlp", 12, head, inputs=64)
        before = float(model.head.weight.detach().square().mean())
        start_at_components(model, own)
        assert float(model.head.weight.detach().square().mean()) == pytest.approx(before, rel=1e-5)


def test_other_layers_and_the_mode_stay_as_they_are(own):
    model = make_embedder("mlp", 12, inputs=64, dropout=0.5).train()
    before = {n: p.clone() for n, p in model.named_parameters() if not n.startswith("head")}
    start_at_components(model, own)
    assert model.training
    assert before and all(
        torch.equal(dict(model.named_parameters())[n], p) for n, p in before.items()
    )
    assert not model.head._forward_pre_hooks


def test_more_outputs_than_directions_are_a_frame(own):
    model = make_embedder("linear", 100, inputs=64)
    start_at_components(model, own)
    weight = model.head.weight.detach().double().numpy()
    sizes = np.linalg.svd(weight)[1]
    kept = sizes > 1e-6 * sizes[0]
    assert kept.sum() < 64
    np.testing.assert_allclose(sizes[kept], sizes[0], rtol=1e-5)


def test_images_reach_the_layer_through_the_network():
    images, labels = digits()
    images = images[:200, :, :, None].repeat(2, axis=1).repeat(2, axis=2)
    own = Examples(images, labels[:200])
    run = rb.train(examples=own, dim=4, epochs=0, augment="shift", **QUIET)
    outputs = run.embed(own).embeddings
    network = run.model.eval()
    with torch.no_grad():
        seen = run.inputs.make_view().see_centre(torch.from_numpy(own.inputs))
        features = network.backbone(seen).numpy().astype(np.float64)
    expected = project(features, 4)
    products, theirs = outputs @ outputs.T, expected @ expected.T
    scale = np.sqrt((products**2).sum() / (theirs**2).sum())
    np.testing.assert_allclose(products, scale * theirs, atol=1e-3 * np.abs(products).max())


def test_few_examples_are_enough_where_there_are_many(own, monkeypatch):
    """The components are found from examples that are evenly spaced."""
    monkeypatch.setattr(last_layer, "MOST", 100)
    model, less = (make_embedder("linear", 4, inputs=64) for _ in range(2))
    start_at_components(model, own, seed=1)
    rows = np.linspace(0, 399, 100).astype(np.int64)
    monkeypatch.setattr(last_layer, "MOST", 400)
    less.load_state_dict(model.state_dict())
    start_at_components(less, own.subset(rows), seed=1)
    torch.testing.assert_close(model.head.weight, less.head.weight)


def test_a_run_that_goes_on_keeps_its_weights(own, tmp_path, monkeypatch):
    settings = QUIET | {"bits": 8, "out": str(tmp_path / "run"), "checkpoint_minutes": 0.0}
    rb.train(examples=own, epochs=1, **settings)
    whole = rb.train(examples=own, epochs=2, **settings | {"out": str(tmp_path / "whole")})

    def refuse(*_, **__):
        raise AssertionError("the components were found twice")

    start = importlib.import_module("rankbits.train.start")
    monkeypatch.setattr(start, "start_at_components", refuse)
    longer = rb.train(examples=own, epochs=2, **settings)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, longer.model.state_dict()[name])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"last_layer": "pca"}, "last_layer must be one of 'random', 'principal'"),
        ({"model": nn.Linear(64, 4)}, "needs a network whose last layer is linear"),
    ],
)
def test_refusals(own, settings, sentence):
    with pytest.raises(Refusal, match=sentence):
        rb.train(examples=own, bits=4, **QUIET | settings)


def test_examples_that_are_all_alike_are_refused():
    same = Examples(np.ones((5, 3), np.float32), np.arange(5))
    with pytest.raises(Refusal, match="needs examples that differ"):
        rb.train(examples=same, bits=4, **QUIET)
