"""Kernels of the classical methods: equal to their references, and to enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rankbits.kernels.cuts import improve_signs
from rankbits.kernels.flips import search_weights
from rankbits.kernels.orders import find_violated
from rankbits.kernels.trees import boost_trees, score_trees


def run_both(monkeypatch, function):
    results = []
    for name in ("reference", "cpu"):
        monkeypatch.setenv("RANKBITS_BACKEND", name)
        results.append(function())
    return results


@pytest.mark.parametrize("whole", [True, False])
def test_a_cut_is_the_best_of_all_signs(monkeypatch, whole):
    draw = np.random.default_rng(int(whole))
    for size in (1, 2, 9):
        weights = -draw.integers(0, 6, (size, size)).astype(np.float32)
        weights += weights.T
        unary = draw.integers(-30, 30, size).astype(np.float32)
        if not whole:
            weights, unary = weights * np.float32(0.37), unary * np.float32(0.37)
        start = np.where(draw.random(size) > 0.5, 1.0, -1.0)
        np.fill_diagonal(weights, 7)  # which does not count

        def energy(signs, weights=weights, unary=unary):
            inner = weights - np.diag(weights.diagonal())
            return signs @ inner @ signs / 2 + unary @ signs

        best = min(energy(np.array(s)) for s in itertools.product((-1.0, 1.0), repeat=size))
        for signs in run_both(
            monkeypatch,
            lambda w=weights, u=unary, s=start: improve_signs(w, u, s, [np.arange(len(s))]),
        ):
            assert energy(signs) == pytest.approx(best, abs=1e-3)


def test_blocks_lower_the_energy_alike(monkeypatch):
    draw = np.random.default_rng(3)
    kinds = draw.integers(0, 6, 150)
    weights = draw.integers(0, 9, (150, 150)).astype(np.float32)
    weights = np.where(kinds[:, None] == kinds, -weights - weights.T, weights + weights.T)
    np.fill_diagonal(weights, 0)
    unary, start = draw.integers(-99, 99, 150), np.where(draw.random(150) > 0.5, 1.0, -1.0)
    blocks = [np.flatnonzero(kinds == k) for k in range(6)]
    slow, fast = run_both(monkeypatch, lambda: improve_signs(weights, unary, start, blocks))
    energies = [z @ weights @ z / 2 + unary @ z for z in (start, slow, fast)]
    assert energies[1] == energies[2] < energies[0]


def test_one_weight_is_searched_exactly(monkeypatch):
    draw = np.random.default_rng(0)
    kernel = draw.standard_normal((4, 30))
    kernel[1, 3] = 0  # a row that this weight cannot flip
    joined = np.triu(draw.random((30, 30)) < 0.3, 1)
    joined |= joined.T
    costs = draw.integers(-5, 6, (30, 30))
    costs = (costs + costs.T)[joined].astype(float)
    row_of, others = np.nonzero(joined)
    starts = np.searchsorted(row_of, np.arange(31))
    weights = draw.standard_normal(4)

    def add_costs(bits):
        return costs[bits[row_of] != bits[others]].sum()

    results = run_both(monkeypatch, lambda: search_weights(kernel, weights, starts, others, costs))
    assert add_costs(results[0][1]) == add_costs(results[1][1]) < add_costs(weights @ kernel > 0)
    for best, bits in results:
        np.testing.assert_array_equal(bits, best @ kernel > 0)
    # the first weight alone, against a fine grid
    one = search_weights(kernel[:1], weights[:1], starts, others, costs)[1]
    grid = [add_costs(v * kernel[0] > 0) for v in (-1.0, 0.0, 1.0)]
    assert add_costs(one) == min(grid)


@pytest.mark.parametrize("ndcg", [True, False])
@pytest.mark.parametrize("graded", [True, False])
def test_the_most_violated_order_is_that_of_enumeration(monkeypatch, ndcg, graded):
    draw = np.random.default_rng(2 * ndcg + graded)
    distances = draw.integers(0, 5, (40, 8)) * draw.random()
    gains = np.where(draw.random((40, 8)) < 0.5, draw.integers(1, 4 if graded else 2, (40, 8)), 0.0)
    own = np.full(40, 7)
    for coefficients, losses in run_both(
        monkeypatch, lambda: find_violated(distances, gains, own, ndcg)
    ):
        for q in range(40):
            reached = losses[q] - coefficients[q] @ distances[q]
            best = enumerate_orders(distances[q, :7], gains[q, :7], ndcg)
            assert reached == pytest.approx(best, abs=1e-6)
        assert (coefficients[:, 7] == 0).all()


def enumerate_orders(distances, gains, ndcg):
    """The greatest value over all numbers of others before each relevant item, in their order."""
    order = np.argsort(distances, kind="stable")
    relevant, others = order[gains[order] > 0], order[gains[order] <= 0]
    p, n = len(relevant), len(others)
    if not p or not n:
        return 0.0
    discount = 1 / np.log2(2 + np.arange(p + n))
    ideal = np.sort(gains[relevant])[::-1] @ discount[:p]
    values = []
    for counts in itertools.combinations_with_replacement(range(n + 1), p):
        value = 0.0
        for m, count in enumerate(counts):
            lost = gains[relevant[m]] * (discount[m] - discount[m + count]) / ideal
            value += lost if ndcg else count / (p * n)
            value -= (distances[others[:count]] - distances[relevant[m]]).sum() / (p * n)
        values.append(value)
    return max(values)


def test_trees_equal_the_reference_and_no_round_raises_the_loss(monkeypatch):
    draw = np.random.default_rng(0)
    bins = draw.integers(0, 6, (5, 60)).astype(np.uint8)
    wanted = (bins[0] > 2) ^ (bins[1] > 3) ^ (draw.random(60) < 0.1)
    columns = draw.integers(0, 5, (6, 3, 3))
    slow, fast = run_both(monkeypatch, lambda: boost_trees(bins, wanted, columns))
    np.testing.assert_array_equal(slow[0], fast[0])
    np.testing.assert_array_equal(slow[1], fast[1])
    np.testing.assert_allclose(slow[2], fast[2], atol=1e-5)
    np.testing.assert_allclose(slow[3], fast[3], rtol=1e-6)
    assert all(after <= before for before, after in itertools.pairwise(fast[3]))
    assert fast[3][-1] < 0.7 * fast[3][0]
    features, cuts, leaves, losses = fast
    thresholds = np.where(cuts == 255, np.inf, cuts).astype(np.float32)
    trees = features[None], thresholds[None], leaves[None]
    slow, fast = run_both(monkeypatch, lambda: score_trees(bins.T.astype(np.float32), *trees))
    np.testing.assert_allclose(slow, fast, atol=1e-5)
    margins = np.where(wanted, fast[:, 0], -fast[:, 0])
    assert np.exp(-margins).mean() == pytest.approx(losses[-1], rel=1e-5)
    assert score_trees(np.empty((0, 5), np.float32), *trees).shape == (0, 1)
