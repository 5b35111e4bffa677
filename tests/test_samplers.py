"""Samplers: who meets whom, how often, and that nobody who has a neighbour is left without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits.data.batches import Batches, RandomBatches
from rankbits.data.circles import Circle
from rankbits.data.samplers import (
    CategoryBatches,
    ClassBatches,
    PartlyCategoryBatches,
    make_sampler,
)


@st.composite
def data(draw, least_categories=2):
    """Labels in no order, classes of 1 to 9 images in a few categories; some rows have none."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=least_categories + 1, max_size=30))
    kinds = draw(st.integers(least_categories, min(6, len(sizes) - 1)))
    labels = np.repeat(np.arange(len(sizes)) * 7 - 3, sizes)
    categories = np.repeat(np.arange(len(sizes)) % (kinds + 1), sizes) - 1
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(len(labels))
    return labels[order], categories[order]


def made(kind, labels, categories, size, **options) -> Batches:
    even = max(4, size - size % 2)
    if kind == "shuffled":
        return RandomBatches(labels, size, **options)
    if kind == "random":
        return ClassBatches(labels, size, **options)
    if kind == "balanced":
        return ClassBatches(labels, max(2, min(size, len(set(labels.tolist())))), per_class=2)
    if kind == "hard":
        return CategoryBatches(labels, even, np.abs(categories), batches_per_pair=3, **options)
    if kind == "hard-pieces":
        return CategoryBatches(labels, even, np.abs(categories), per_class=3, **options)
    return PartlyCategoryBatches(labels, even, categories, **options)


KINDS = ("shuffled", "random", "balanced", "hard", "hard-pieces", "vehicleid")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data(), st.integers(2, 40), st.integers(0, 3))
def test_contract(kind, drawn, size, epoch):
    labels, categories = drawn
    one = made(kind, labels, categories, size)
    batches = list(one.plan(epoch))
    assert len(batches) == len(one) > 0
    for batch in batches:
        assert batch.dtype == np.int64 and 0 < len(batch) <= one.batch_size
        assert len(np.unique(batch)) == len(batch), "no row twice in a batch"
        assert batch.min() >= 0 and batch.max() < len(labels)
    again = list(made(kind, labels, categories, size).plan(epoch))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))


@pytest.mark.parametrize("kind", KINDS[1:])
@settings(max_examples=100, deadline=None)
@given(data(), st.integers(2, 40))
def test_whoever_has_a_neighbour_has_one_in_the_batch(kind, drawn, size):
    labels, categories = drawn
    one = made(kind, labels, categories, size)
    several = {c for c, n in zip(*np.unique(labels, return_counts=True), strict=True) if n > 1}
    for batch in itertools.chain(one.plan(0), one.plan(1)):
        found, counts = np.unique(labels[batch], return_counts=True)
        assert not several & set(found[counts == 1].tolist())


@settings(max_examples=100, deadline=None)
@given(data(), st.integers(2, 40))
def test_an_epoch_meets_every_class(drawn, size):
    labels, categories = drawn
    for kind in ("random", "balanced"):
        one = made(kind, labels, categories, size)
        met = np.concatenate([labels[batch] for batch in one.plan(2)])
        assert set(met.tolist()) == set(labels.tolist())
    rows = np.concatenate(list(RandomBatches(labels, size).plan(0)))
    assert len(np.unique(rows)) == len(rows) >= len(labels) - 1


@settings(max_examples=60, deadline=None)
@given(data(), st.integers(2, 20))
def test_half_and_half_by_category(drawn, half):
    labels, categories = drawn
    kinds = np.abs(categories)
    sizes = np.bincount(kinds)
    one = CategoryBatches(labels, 2 * half, kinds, batches_per_pair=2)
    pairs = []
    for batch in one.plan(0):
        found, counts = np.unique(kinds[batch], return_counts=True)
        assert len(found) == 2
        for category, count in zip(found, counts, strict=True):
            full = min(half, sizes[category])
            assert full - 1 <= count <= full, "one fewer only where a cut asks for it"
        pairs.append(tuple(found.tolist()))
    wanted = itertools.combinations(range(len(sizes)), 2)
    assert sorted(pairs) == sorted(2 * list(wanted))


@settings(max_examples=60, deadline=None)
@given(data(), st.integers(2, 20))
def test_half_from_a_category_half_from_none(drawn, half):
    labels, categories = drawn
    one = PartlyCategoryBatches(labels, 2 * half, categories)
    sizes = np.bincount(categories + 1)
    times = np.zeros_like(sizes)
    for batch in one.plan(0):
        found, counts = np.unique(categories[batch], return_counts=True)
        assert len(found) == 2 and found[0] == -1
        assert all(
            min(half, sizes[f + 1]) - n in (0, 1) for f, n in zip(found, counts, strict=True)
        )
        times[found[1] + 1] += 1
    assert (times[1:] == np.ceil(sizes[1:] / half)).all()


def test_the_papers_arithmetic():
    """Products: 12 categories, 330 batches; In-Shop: 23, 506; VehicleID: sum of 2 N_c / M."""
    for categories, times, wanted in ((12, 5, 330), (23, 2, 506)):
        labels = np.repeat(np.arange(40 * categories), 5)
        one = CategoryBatches(labels, 256, labels // 40, batches_per_pair=times)
        assert len(one) == sum(1 for _ in one.plan(0)) == wanted
        assert all(len(batch) == 256 for batch in one.plan(0))
    labels = np.repeat(np.arange(600), 16)
    categories = np.where(labels < 300, labels // 30, -1)
    assert len(PartlyCategoryBatches(labels, 32, categories)) == 10 * 2 * 480 // 32


@pytest.mark.parametrize("together", [1, 3, 4])
def test_batches_of_another_number_of_categories(together):
    """The supplement's comparison: as many batches an epoch as with pairs, in equal parts."""
    labels = np.repeat(np.arange(60), 4)
    one = CategoryBatches(labels, 24, labels // 10, batches_per_pair=2, together=together)
    batches = list(one.plan(0))
    assert len(batches) == len(one) == 15 * 2
    times = np.zeros(6, int)
    for batch in batches:
        categories, counts = np.unique(labels[batch] // 10, return_counts=True)
        assert len(categories) == together and set(counts.tolist()) == {24 // together}
        assert np.unique(labels[batch], return_counts=True)[1].min() >= 2
        times[categories] += 1
    assert times.min() > 0 and len({tuple(batch) for batch in batches}) > 20


def test_cursors_go_on_where_the_batch_before_ended():
    """Classes of 4 divide M/2 = 8: stretches of a category follow each other without a gap."""
    labels = np.repeat(np.arange(30), 4)
    one = CategoryBatches(labels, 16, labels // 10, batches_per_pair=5)
    drawn = {0: [], 1: [], 2: []}
    for batch in one.plan(0):
        for half in (batch[:8], batch[8:]):
            drawn[int(labels[half[0]] // 10)] += half.tolist()
    for rows in drawn.values():
        assert len(rows) == 80 and rows[:40] == rows[40:], "a circle, and the same one all epoch"
        assert (np.bincount(labels[rows[:40]])[labels[rows[0]] // 10 * 10 :][:10] == 4).all()
        assert len(set(rows[:40])) == 40
    first = [batch.tolist() for batch in one.plan(0)]
    assert first != [batch.tolist() for batch in one.plan(1)], "reshuffled each epoch"


@pytest.mark.parametrize(
    ("runs", "size", "wanted"),
    [
        ([3, 3, 3], 4, [[0, 1, 3, 4], [4, 5, 6, 7], [7, 8, 0, 1]]),
        ([2, 2, 2], 3, [[0, 1], [2, 3], [4, 5], [0, 1]]),
        ([1, 1, 2], 3, [[0, 1], [2, 3, 0]]),
        ([5], 2, [[0, 1], [2, 3], [3, 4], [0, 1]]),
        ([2, 3], 5, [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]),
        ([2, 3], 9, [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]),
    ],
)
def test_the_cut(runs, size, wanted):
    """By hand: a lone last image gets a second one, a lone remainder is joined by a repeat."""
    rows = np.arange(sum(runs))
    circle = Circle(rows, np.repeat(np.arange(len(runs)), runs))
    assert [circle.take(size).tolist() for _ in wanted] == wanted


def test_classes_come_equally_often():
    sizes = np.array([3, 100, 7, 50, 4, 4, 90, 20])
    labels = np.repeat(np.arange(8), sizes)
    one = ClassBatches(labels, 12, per_class=3)
    visits = np.zeros(8, int)
    for batch in one.plan(0):
        classes, counts = np.unique(labels[batch], return_counts=True)
        assert len(classes) == 4 and (counts == 3).all()
        visits[classes] += 1
    assert visits.max() - visits.min() <= 1 and len(one) == -(-sizes.sum() // 12)


def test_large_classes_lie_apart_in_pieces():
    labels = np.repeat(np.arange(4), 50)
    one = CategoryBatches(labels, 40, labels // 2, per_class=5, batches_per_pair=8)
    both = [len(np.unique(labels[batch])) == 4 for batch in one.plan(0)]
    assert sum(both) >= 6
    whole = CategoryBatches(labels, 40, labels // 2, batches_per_pair=8)
    assert sum(len(np.unique(labels[batch])) == 4 for batch in whole.plan(0)) < 6


@pytest.mark.parametrize("world", range(1, 6))
@settings(max_examples=30, deadline=None)
@given(data(), st.integers(5, 40))
def test_shares_are_the_batch(world, drawn, size):
    labels, _ = drawn
    ranks = [ClassBatches(labels, size, rank=r, world=world) for r in range(world)]
    globally = [batch.tolist() for batch in ClassBatches(labels, size).plan(0)]
    for batch, *shares in zip(globally, *ranks, strict=True):
        assert list(itertools.chain(*shares)) == batch
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@settings(max_examples=40, deadline=None)
@given(data(), st.integers(2, 20), st.data())
def test_a_run_resumes_in_the_middle_of_an_epoch(drawn, size, choose):
    labels, categories = drawn
    whole = made("hard", labels, categories, size, seed=5)
    everything = [list(whole), list(whole)]
    assert (whole.epoch, whole.start) == (2, 0)
    cut = choose.draw(st.integers(0, len(whole)))
    first = made("hard", labels, categories, size, seed=5)
    walk = iter(first)
    begun = [next(walk) for _ in range(cut)]
    second = made("hard", labels, categories, size, seed=5)
    second.at(first.epoch, first.start)
    assert begun + list(second) == everything[0]
    assert list(second) == everything[1]
    assert list(second.at(0)) == everything[0]


def test_in_a_loader_with_workers():
    labels = np.repeat(np.arange(10), 6)
    rows = torch.utils.data.TensorDataset(torch.arange(60))
    one = ClassBatches(labels, 8, seed=1)
    wanted = [batch.tolist() for batch in one.plan(0)]
    loader = torch.utils.data.DataLoader(rows, batch_sampler=one, num_workers=2)
    assert len(loader) == len(one)
    assert [batch[0].tolist() for batch in loader] == wanted
    assert one.epoch == 1
    assert [batch[0].tolist() for batch in loader] == [b.tolist() for b in one.plan(1)]


def test_seeds_and_epochs_differ():
    labels = np.repeat(np.arange(50), 4)
    plans = {
        tuple(np.concatenate(list(ClassBatches(labels, 20, seed=seed).plan(epoch))).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(plans) == 9


def test_the_last_batch_of_a_shuffle():
    assert [len(b) for b in RandomBatches(np.zeros(10, int), 4).plan(0)] == [4, 4, 2]
    assert [len(b) for b in RandomBatches(np.zeros(9, int), 4).plan(0)] == [4, 4]
    assert [len(b) for b in RandomBatches(np.zeros(1, int), 4).plan(0)] == [1]
    assert len(RandomBatches(np.eye(6), 3)) == 2


def test_by_name():
    labels = np.repeat(np.arange(40), 3)
    categories = labels // 10
    kinds = {
        ("auto", None): ClassBatches,
        ("auto", "known"): CategoryBatches,
        ("shuffled", "known"): RandomBatches,
        ("random", "known"): ClassBatches,
        ("hard", "known"): CategoryBatches,
        ("auto", "partly"): ClassBatches,
        ("vehicleid", "partly"): PartlyCategoryBatches,
    }
    given = {None: None, "known": categories, "partly": categories - 1}
    for (name, which), kind in kinds.items():
        one = make_sampler(name, labels, given[which], 32, seed=3, batches_per_pair=2)
        assert type(one) is kind and one.seed == 3 and getattr(one, "per_class", None) is None
    assert type(make_sampler("auto", np.eye(4), None, 2)) is RandomBatches
    large = make_sampler("auto", np.repeat(np.arange(10), 500), None, 250)
    assert large.per_class == 25
    assert all((np.bincount(large.labels[b]) == 25).all() for b in large.plan(0))
    assert (
        make_sampler("auto", np.repeat(np.arange(10), 500), np.repeat([0, 1], 2500), 256).per_class
        == 8
    )
    few = make_sampler("auto", np.repeat(np.arange(2), 30), None, 7)
    assert few.per_class == 3
    assert all(len(np.unique(few.labels[b])) == 2 for b in few.plan(0))
    for size in range(90, 300, 7):  # every class there is, as many of each as fit
        one = make_sampler("auto", np.repeat(np.arange(10), 500), None, size)
        counts = {tuple(np.bincount(one.labels[b])) for b in one.plan(0)}
        assert counts == {(size // 10,) * 10}


LABELS = np.repeat(np.arange(6), 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ClassBatches(np.eye(4), 2), "ClassBatches needs one class for each row"),
        (lambda: CategoryBatches(np.eye(4), 4, [0, 0, 1, 1]), "RandomBatches takes those"),
        (lambda: ClassBatches([], 2), "must not be empty"),
        (lambda: ClassBatches([0.5, 1], 2), "whole numbers"),
        (lambda: ClassBatches([np.nan, 1], 2), "finite"),
        (lambda: ClassBatches(3, 2), "shape"),
        (lambda: ClassBatches(LABELS, 1), "batch_size must be a whole number of at least 2"),
        (lambda: ClassBatches(LABELS, 4, world=5), "at least 5"),
        (lambda: ClassBatches(LABELS, 4, rank=2, world=2), "rank must be less than world = 2"),
        (lambda: ClassBatches(LABELS, 4, seed=-1), "seed"),
        (lambda: ClassBatches(LABELS, 4, per_class=1), "per_class"),
        (lambda: ClassBatches(LABELS, 18, per_class=2), "there are 6 (per_class from 3 to 18)"),
        (lambda: ClassBatches(LABELS, 4, per_class=5), "means 0 classes"),
        (lambda: CategoryBatches(LABELS, 4, None), "needs the category of each row"),
        (lambda: CategoryBatches(LABELS, 4, LABELS[:5]), "one row for each"),
        (lambda: CategoryBatches(LABELS, 4, np.zeros(18, int)), "at least 2 categories; got 1"),
        (
            lambda: CategoryBatches(LABELS, 6, LABELS // 3, together=3),
            "at least 3 categories; got 2",
        ),
        (
            lambda: CategoryBatches(LABELS, 5, LABELS, together=3),
            "batch_size of at least 2 * 3; got 5",
        ),
        (lambda: CategoryBatches(LABELS, 5, LABELS // 3), "must be even and at least 4; got 5"),
        (lambda: CategoryBatches(LABELS, 2, LABELS // 3), "must be even and at least 4; got 2"),
        (lambda: CategoryBatches(LABELS, 4, LABELS // 3 - 1), "9 rows have none"),
        (lambda: CategoryBatches(LABELS, 4, np.zeros((18, 2))), "shape (n,)"),
        (lambda: PartlyCategoryBatches(LABELS, 4, LABELS), "18 with and 0 without"),
        (lambda: make_sampler("hrad", LABELS, None, 4), "did you mean 'hard'?"),
        (lambda: ClassBatches(LABELS, 4).at(0, 99), "start must be at most the 6 batches"),
        (lambda: ClassBatches(LABELS, 4).at(-1), "epoch"),
        (lambda: ClassBatches(LABELS, 4).at(1, "x"), "start"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call()
    assert sentence in str(caught.value) and str(caught.value).endswith(".")
