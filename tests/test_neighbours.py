"""Neighbours without labels: thresholds and grades against their slow definition, and training."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import rankbits as rb
from rankbits._check import Refusal
from rankbits.data import Examples
from rankbits.data.protocol import Protocol
from rankbits.losses import (
    DPSH,
    DTSH,
    FastAP,
    HashNet,
    MIHash,
    Neighbours,
    TieAwareAP,
    TieAwareNDCG,
    neighbour_grades,
    neighbour_thresholds,
)
from rankbits.losses.named import make_loss
from rankbits.losses.neighbours import GRADES, SHARES
from rankbits.papers import neighbours as cells
from rankbits.papers.recipe import make_recipe
from rankbits.papers.rows import Settings
from rankbits.train.optimisers import set_alpha
from rankbits.train.source import Source

# whole numbers: their distances are exact however they are summed
POINTS = arrays(np.float32, st.tuples(st.integers(2, 12), st.integers(1, 3)),
                elements=st.integers(-20, 20))  # fmt: skip


def squared(a, b):
    return float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).sum())


def slow_thresholds(rows, shares):
    every = sorted(squared(a, b) for a, b in itertools.combinations(rows, 2))
    return [every[max(1, round(share * len(every))) - 1] for share in shares]


def slow_grades(queries, database, limits, grades):
    return [
        [max([g for t, g in zip(limits, grades, strict=True) if squared(a, b) <= t], default=0)
         for b in database] for a in queries
    ]  # fmt: skip


@given(POINTS)
@settings(max_examples=60, deadline=None)
def test_thresholds_and_grades_are_their_definition(rows):
    shares, grades = (0.6, 0.3, 0.1), (1, 2, 7)
    limits = slow_thresholds(rows, shares)
    assert neighbour_thresholds(rows, shares).tolist() == limits
    found = neighbour_grades(rows, rows[::2], limits, grades)
    assert found.tolist() == slow_grades(rows, rows[::2], limits, grades)
    assert found.dtype == torch.uint8


def test_a_share_of_the_pairs_is_near():
    rows = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
    grades = neighbour_grades(rows, rows, neighbour_thresholds(rows)).numpy()
    upper = grades[np.triu_indices(400, 1)]
    for share, grade in zip(SHARES, GRADES, strict=True):
        assert (upper >= grade).sum() == round(share * 400 * 399 / 2)


def test_far_from_the_origin_nothing_is_lost():
    rows = np.random.default_rng(0).standard_normal((50, 3)) * 0.01
    near, far = torch.tensor(rows), torch.tensor(rows) + 1e4
    limits = [neighbour_thresholds(x, (0.2, 0.05)) for x in (near, far)]
    assert torch.allclose(limits[0], limits[1], rtol=1e-3)


def test_the_slices_of_a_large_batch_are_the_whole(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 30, (40, 2)).astype(np.float32)
    limits = neighbour_thresholds(rows)
    grades = neighbour_grades(rows, rows, limits)
    monkeypatch.setattr("rankbits.losses.neighbours.CELLS", 100)
    assert torch.equal(neighbour_thresholds(rows), limits)
    assert torch.equal(neighbour_grades(rows, rows, limits), grades)


def test_thresholds_of_many_rows_are_those_of_some():
    rows = torch.arange(100.0)[:, None]
    some = neighbour_thresholds(rows, (0.5,), rows=20, seed=1)
    assert torch.equal(some, neighbour_thresholds(rows, (0.5,), rows=20, seed=1))
    assert not torch.equal(some, neighbour_thresholds(rows, (0.5,), rows=20, seed=2))
    assert 300 < float(some) < 2500  # all pairs: 29^2 = 841


LOSSES = [TieAwareNDCG(), TieAwareAP(form="exact"), MIHash(), FastAP(), DPSH(), DTSH(), HashNet()]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_wrapper_is_the_loss_with_grades_of_the_inputs(loss):
    draw = torch.Generator().manual_seed(0)
    inputs, z = torch.randn(30, 5, generator=draw), torch.randn(12, 8, generator=draw)
    rows = torch.randperm(30, generator=draw)[:12]
    wrapped = Neighbours(loss, inputs, shares=(0.4, 0.1), grades=(1, 3))
    limits = slow_thresholds(inputs.numpy(), (0.4, 0.1))
    grades = slow_grades(inputs[rows].numpy(), inputs[rows].numpy(), limits, (1, 3))
    z.requires_grad_()
    value = wrapped(z, rows)
    wanted = loss(z, None, affinity=torch.tensor(grades))
    assert torch.allclose(value, wanted)
    ours, theirs = (torch.autograd.grad(v, z)[0] for v in (value, wanted))
    assert torch.allclose(ours, theirs) and ours.abs().sum() > 0


def test_a_database_is_named_by_its_rows():
    draw = torch.Generator().manual_seed(0)
    inputs, z = torch.randn(30, 5, generator=draw), torch.randn(20, 8, generator=draw)
    rows = torch.arange(20)
    wrapped = Neighbours(TieAwareNDCG(), inputs, shares=(0.4,), grades=(2,))
    whole = wrapped(z, rows)
    split = wrapped(z, rows, database=z, database_labels=rows, self_rows=torch.arange(20))
    assert torch.allclose(whole, split)


def test_row_numbers_train_without_labels_and_alpha_grows():
    draw = np.random.default_rng(0)
    inputs = (draw.standard_normal((10, 6)).repeat(20, axis=0) * 3).astype(np.float32)
    inputs += draw.standard_normal(inputs.shape).astype(np.float32) * 0.3
    loss = Neighbours(TieAwareNDCG(), inputs)
    before = rb.Sign().fit(inputs[:, :4]).encode(inputs[:, :4])
    run = rb.train(
        examples=Examples(inputs, np.arange(200)), loss=loss, bits=8, batch_size=100, epochs=20,
        lr=0.02, continuation="grow", alpha_end=4.0, say=lambda line: None, device="cpu",
    )  # fmt: skip
    assert run.progress.finished and run.progress.step == 60 and run.progress.best is None
    assert 3.5 < run.history[-1]["alpha"] < 4.0 and loss.loss.alpha == 1
    grades = neighbour_grades(inputs, inputs, neighbour_thresholds(inputs)).numpy()
    after = rb.pack(run.embed(inputs).embeddings)
    values = [
        rb.ndcg(rb.rank_codes(codes, codes, relevance=grades, exclude_self=True))
        for codes in (before, after)
    ]
    assert np.nanmean(values[1]) > np.nanmean(values[0]) + 0.05 and not list(loss.state_dict())
    set_alpha(loss, 9.0)
    assert loss.loss.alpha == 9.0


REFUSED = [
    (lambda: neighbour_thresholds([[1.0]]), "at least 2 rows to be neighbours; got 1"),
    (lambda: neighbour_thresholds([[1.0], [np.nan]]), "inputs must be finite; row 1"),
    (lambda: neighbour_thresholds([[1.0], [2.0]], ()), "shares must be above 0 and at most 1"),
    (lambda: neighbour_thresholds([[1.0], [2.0]], (0.0,)), "shares must be above 0"),
    (lambda: neighbour_thresholds([[1.0], [2.0]], (1.5,)), r"at most 1; got \(1.5,\)"),
    (lambda: neighbour_thresholds([1.0, 2.0]), "inputs must have two dimensions"),
    (lambda: neighbour_grades([[1.0]], [[1.0, 2.0]], [1.0], (1,)), "database must have dim 1"),
    (lambda: neighbour_grades([[1.0]], [[1.0]], [1.0], (1, 2)), "one for each of 1 thresholds"),
    (lambda: neighbour_grades([[1.0]], [[1.0]], [1.0], (300,)), "at most 255"),
    (lambda: neighbour_grades([[1.0]], [[1.0]], [1.0], (0,)), "A grade must be a whole number"),
    (lambda: Neighbours(FastAP(), torch.eye(3), (0.5,), (1, 2)), "as many; got 1 and 2"),
    (lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), [0]), "row number of each of 2"),
    (lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), [0, 3]), "lie in 0 to 2"),
    (lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), [-1, 0]), "lie in 0 to 2"),
    (lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), [0.0, 1.0]), "row number of each"),
    (lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), None), "row number of each"),
    (
        lambda: Neighbours(FastAP(), torch.eye(3))(torch.eye(2), [0, 1], database=torch.eye(2)),
        "database_labels must be the row number of each of 2",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("act", "sentence"), REFUSED, ids=[s for _, s in REFUSED])
def test_refusals(act, sentence):
    with pytest.raises(Refusal, match=sentence):
        act()


def test_losses_of_another_library_see_classes_from_zero():
    pytest.importorskip("pytorch_metric_learning")
    labels = np.array([30, 7, 7, 30, 12])
    loss = make_loss("pml:ProxyNCALoss", 4, labels)
    assert loss.loss.proxies.shape == (3, 4)
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    value = loss(z, torch.tensor(labels))
    assert torch.equal(value, loss.loss(z, torch.tensor([2, 0, 0, 2, 1])))
    assert [name for name, _ in loss.named_parameters()] == ["loss.proxies"]
    with pytest.raises(Refusal, match="labels must be those of the training set"):
        loss(z, torch.tensor([8, 7, 7, 30, 12]))
    assert type(make_loss("pml:ContrastiveLoss", 4, labels)).__name__ == "ContrastiveLoss"


def table(**changes):
    facts = {
        "paper": "TALR", "place": "Table 3", "method": "m", "differs": "data", "metric": "NDCG",
        "kind": "neighbours", "bits": [8], "seeds": [0],
        "train": {"data": "clinc150-neighbours", "model": "linear", "loss": "tie-aware-ndcg",
                  "batch_size": 50, "epochs": 4},
    }  # fmt: skip
    return make_recipe("talr/table3/m", facts | changes)


@pytest.fixture
def source(monkeypatch):
    """Features in clusters, 200 to learn from, 40 queries, 240 in the database."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((28, 10)).repeat(10, axis=0) + draw.standard_normal((280, 10)) * 0.2
    rows = draw.permutation(280)
    examples = Examples(x.astype(np.float32), np.arange(280))
    how = Protocol("mine", examples, rows[:200], rows[240:], rows[:240], metric="NDCG")
    made = Source(examples.subset(how.train), None, how)
    monkeypatch.setattr(cells, "read_cell_source", lambda config, seen, short: made)
    return made


def test_a_cell_gives_a_row_for_each_quantizer(source):
    recipe = table(quantizers=["none", *cells.METHODS])
    rows = cells.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))
    assert [row["quantizer"] for row in rows] == ["none", *cells.METHODS]
    for row in rows:
        assert row["worst"] <= row["value"] <= row["best"]
        assert 0.3 < row["value"] <= 1 and row["figures"]["NDCG"] == row["value"]
        assert json.loads(json.dumps(row)) == row
    assert rows[0]["steps"] == 20 and rows[0]["seconds"]["train"] > 0
    assert "fit" in rows[1]["seconds"] and rows[1]["steps"] == 0


def test_the_value_is_the_ndcg_of_the_codes(source):
    recipe = table(quantizers=["pca-sign"])
    (row,) = cells.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))
    known, how = source.train.inputs, source.protocol
    asked, found = (how.examples.inputs[rows] for rows in (how.queries, how.database))
    values, vectors = np.linalg.eigh(np.cov(known.T))
    best = vectors[:, np.argsort(-values)[:8]]
    codes = [rb.pack((rows - known.mean(0)) @ best) for rows in (asked, found)]
    limits = slow_thresholds(known, SHARES)
    grades = np.array(slow_grades(asked, found, limits, GRADES))
    wanted = np.nanmean(rb.ndcg(rb.rank_codes(*codes, relevance=grades)))
    assert row["value"] == pytest.approx(wanted, abs=2e-3)  # a pair at a threshold may round
    assert row["without_neighbours"] == int((grades.max(axis=1) == 0).sum())


def test_a_candidate_is_chosen_on_rows_it_did_not_learn(source):
    recipe = table(choose={"lr": [1e-6, 0.05]})
    (row,) = cells.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))
    assert row["chosen"] == {"lr": 0.05} and 0 < row["validation"] <= 1
    again = cells.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))[0]
    assert again["value"] == row["value"] and again["validation"] == row["validation"]


def test_a_quantizer_without_labels_is_refused_by_the_nearest(source):
    recipe = table(quantizers=["itqq"])
    with pytest.raises(Refusal, match=r"one of 'lsh', .* got 'itqq' .did you mean 'itq'"):
        cells.run_cell(recipe, recipe.cells()[0], Settings(device="cpu"))
