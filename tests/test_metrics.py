"""Every metric x tie policy x cutoff equals enumeration of all orders of the tied items."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits.metrics.ranking import compact, rank_keys, rank_runs

TIES = ("mean", "best", "worst")


def orders(levels: list[list[int]]) -> np.ndarray:
    """(M, N) grades in each of the equally likely orders of the ranking."""
    per_level = [list(itertools.permutations(level)) for level in levels]
    return np.array([sum(pick, ()) for pick in itertools.product(*per_level)])


def brute(name: str, seq: np.ndarray, k: int | None, total: np.ndarray) -> np.ndarray:
    """The textbook value of each order; ``total`` has the grades of all items, unretrieved too."""
    n = seq.shape[1]
    rel = seq > 0
    relevant = int((total > 0).sum())
    cut = k
    k = {"map_at_r": relevant, "r_precision": relevant}.get(name, n if k is None else k)
    place = np.arange(1, n + 1)
    top = place <= k
    precision = np.cumsum(rel, axis=1) / place
    retrieved = (rel & top).sum(axis=1)
    if name in ("ap_relevant", "map_at_r"):
        return (precision * rel * top).sum(axis=1) / relevant
    if name == "ap_retrieved":
        return (precision * rel * top).sum(axis=1) / np.maximum(retrieved, 1)
    if name in ("recall_at", "r_precision"):
        return retrieved / relevant
    if name == "precision_at":
        return retrieved / k
    if name == "hit_at":
        return (retrieved > 0).astype(float)
    if name == "reciprocal_rank":
        first = np.where(rel, place, n + 1).min(axis=1)
        return np.where(first <= min(k, n), 1 / first, 0.0)
    kind, gain = name.split("_")
    worth = (lambda g: 2.0**g - 1) if gain == "exp2" else (lambda g: g.astype(float))
    discount = 1 / np.log2(place + 1)
    value = (worth(seq) * discount * top).sum(axis=1)
    if kind == "dcg":
        return value
    ideal = np.sort(total)[::-1]
    length = len(ideal) if cut is None else min(cut, len(ideal))
    return value / (worth(ideal[:length]) / np.log2(np.arange(2, length + 2))).sum()


def ours(name: str, ranking: rb.Ranking, k: int | None, ties: str) -> np.ndarray:
    if name.startswith("ap_"):
        return rb.average_precision(ranking, k, ties, divide_by=name[3:])
    if name in ("map_at_r", "r_precision"):
        return getattr(rb, name)(ranking, ties)
    if name.startswith(("dcg", "ndcg")):
        kind, gain = name.split("_")
        return getattr(rb, kind)(ranking, k, ties, gain)
    return getattr(rb, name)(ranking, k, ties=ties)


FREE_CUTOFF = (
    "ap_relevant", "ap_retrieved", "reciprocal_rank", "dcg_exp2", "dcg_linear", "ndcg_exp2",
    "ndcg_linear",
)  # fmt: skip
NEEDS_CUTOFF = ("precision_at", "recall_at", "hit_at")
NO_CUTOFF = ("map_at_r", "r_precision")

small_rankings = st.lists(
    st.lists(st.integers(0, 3), min_size=0, max_size=5), min_size=1, max_size=4
).filter(lambda levels: 1 <= sum(map(len, levels)) <= 6)


def ranking_of(levels: list[list[int]], unretrieved: list[int] = []) -> rb.Ranking:  # noqa: B006
    counts = np.array([[np.bincount(level, minlength=4) for level in levels]])
    rest = np.bincount(np.array(unretrieved, int), minlength=4)[None]
    return rb.Ranking(counts.astype(np.int64), unretrieved=rest if unretrieved else None)


def check_all(levels: list[list[int]], unretrieved: list[int], names_cutoffs) -> None:
    ranking = ranking_of(levels, unretrieved)
    total = np.array([g for level in levels for g in level] + unretrieved)
    every = orders([level for level in levels if level])
    for name, k in names_cutoffs:
        got = {t: ours(name, ranking, k, t)[0] for t in TIES}
        if not (total > 0).any():
            assert all(np.isnan(v) for v in got.values()), name
            continue
        values = brute(name, every, k, total)
        expected = {"mean": values.mean(), "best": values.max(), "worst": values.min()}
        for t in TIES:
            assert got[t] == pytest.approx(expected[t], abs=1e-12), (name, k, t)
        assert got["worst"] <= got["mean"] + 1e-12 and got["mean"] <= got["best"] + 1e-12


@settings(max_examples=150, deadline=None)
@given(small_rankings)
def test_equals_enumeration(levels):
    n = sum(map(len, levels))
    cases = [(m, k) for m in FREE_CUTOFF for k in (None, *range(1, n + 2))]
    cases += [(m, k) for m in NEEDS_CUTOFF for k in range(1, n + 2)]
    check_all(levels, [], cases + [(m, None) for m in NO_CUTOFF])


@settings(max_examples=60, deadline=None)
@given(small_rankings, st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_unretrieved_items_count_in_denominators_only(levels, unretrieved):
    n = sum(map(len, levels))
    cases = [(m, k) for m in ("ap_relevant", "ap_retrieved", "ndcg_exp2") for k in (1, 2, n + 4)]
    cases += [("recall_at", 2), ("precision_at", 2), ("map_at_r", None), ("r_precision", None)]
    check_all(levels, unretrieved, cases)


@settings(max_examples=60, deadline=None)
@given(small_rankings)
def test_whole_levels_leave_nothing_to_ties(levels):
    ranking = ranking_of(levels)
    if ranking.relevant[0] == 0:
        return
    precision, recall = rb.precision_recall_curve(ranking)
    for radius in range(len(levels)):
        inside = [g for level in levels[: radius + 1] for g in level]
        hits = sum(g > 0 for g in inside)
        assert precision[0, radius] == rb.precision_within(ranking, radius)[0]
        assert recall[0, radius] == rb.recall_within(ranking, radius)[0]
        assert precision[0, radius] == pytest.approx(hits / max(1, len(inside)), abs=1e-15)
        assert recall[0, radius] == pytest.approx(hits / ranking.relevant[0], abs=1e-15)
    points = range(1, sum(map(len, levels)) + 1)
    for ties in TIES:
        at_k = rb.precision_recall_curve(ranking, points, ties)
        for i, k in enumerate(points):
            assert at_k[0][0, i] == rb.precision_at(ranking, k, ties)[0]
            assert at_k[1][0, i] == rb.recall_at(ranking, k, ties)[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shuffling_the_database_changes_no_bit(data):
    rows, seed = data.draw(st.integers(2, 40)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 6, (3, rows)) / 3
    grades = rng.integers(0, 3, (3, rows))
    order = rng.permutation(rows)
    first, second = rb.rank(distances, grades), rb.rank(distances[:, order], grades[:, order])
    for name in (*FREE_CUTOFF, *NEEDS_CUTOFF, *NO_CUTOFF):
        for ties in TIES:
            a, b = (ours(name, r, 2, ties) for r in (first, second))
            assert a.tobytes() == b.tobytes()


def test_bfloat16_scores_keep_their_ties():
    import torch

    scores = torch.linspace(0.90, 0.91, 50)
    relevance = np.arange(50)[None] % 2
    fine = rb.rank(-scores[None], relevance)
    coarse = rb.rank(-scores.bfloat16()[None], relevance)
    assert fine.items.max() == 1 and coarse.items.max() > 1
    assert rb.average_precision(coarse, ties="best") > rb.average_precision(coarse, ties="worst")


def test_large_ties_keep_their_digits():
    """Late in a long ranking, against 50-digit arithmetic."""
    from mpmath import mp, mpf

    mp.dps = 50
    n, p, before, hits = 40, 7, 3_000_000, 11
    counts = np.zeros((1, 2, 2), np.int64)
    counts[0, 0] = before - hits, hits
    counts[0, 1] = n - p, p
    wanted = sum(
        mpf(p) / n * (hits + 1 + mpf(i - 1) * (p - 1) / (n - 1)) / (before + i)
        for i in range(1, n + 1)
    )
    head = (
        mpf(hits)
        / before
        * sum((1 + mpf(i - 1) * (hits - 1) / (before - 1)) / i for i in range(1, 2001))
    )
    got = rb.average_precision(rb.Ranking(counts))[0] * (hits + p)
    alone = rb.average_precision(rb.Ranking(counts[:, :1]))[0] * hits
    assert got - alone == pytest.approx(float(wanted), rel=1e-9)
    cut = rb.average_precision(rb.Ranking(counts[:, :1]), k=2000)[0] * hits
    assert cut == pytest.approx(float(head), rel=1e-13)


def test_retrieved_denominator_with_a_huge_straddling_tie_is_finite_and_ordered():
    counts = np.array([[[5, 3], [900_000, 60_000], [10, 10]]])
    low, mid, high = (
        rb.average_precision(rb.Ranking(counts), 5000, t, "retrieved")[0]
        for t in ("worst", "mean", "best")
    )
    assert 0 < low < mid < high <= 1
    drawn = np.random.default_rng(0)
    head, values = np.array([0] * 5 + [1] * 3), []
    for _ in range(300):
        drawn.shuffle(head)
        j = drawn.hypergeometric(60_000, 900_000, 4992)
        tail = np.zeros(4992, int)
        tail[drawn.permutation(4992)[:j]] = 1
        seq = np.concatenate([head, tail])
        places = np.flatnonzero(seq) + 1
        values.append(np.mean(np.arange(1, len(places) + 1) / places))
    assert mid == pytest.approx(np.mean(values), abs=4 * np.std(values) / np.sqrt(300))


def test_compact_changes_no_metric():
    rng = np.random.default_rng(3)
    ranking = rb.rank(rng.integers(0, 30, (20, 60)), rng.integers(0, 3, (20, 60)) // 2)
    small = compact(ranking)
    assert small.counts.shape[1] < ranking.counts.shape[1]
    for name in (*FREE_CUTOFF, *NEEDS_CUTOFF, *NO_CUTOFF):
        for ties in TIES:
            np.testing.assert_allclose(
                ours(name, small, 7, ties), ours(name, ranking, 7, ties), rtol=0, atol=1e-14
            )


def test_shards_add_up():
    rng = np.random.default_rng(0)
    query, database = rb.pack(rng.normal(size=(4, 12))), rb.pack(rng.normal(size=(50, 12)))
    labels, theirs = rng.integers(0, 3, 50), rng.integers(0, 3, 4)
    whole = rb.rank_codes(query, database, theirs, labels)
    split = rb.rank_codes(query, database[:20], theirs, labels[:20]) + rb.rank_codes(
        query, database[20:], theirs, labels[20:]
    )
    np.testing.assert_array_equal(whole.counts, split.counts)


def test_rank_codes_is_rank_of_hamming_distances():
    rng = np.random.default_rng(1)
    query, database = rb.pack(rng.normal(size=(5, 9))), rb.pack(rng.normal(size=(70, 9)))
    ql, dl = rng.random((5, 6)) < 0.4, rng.random((70, 6)) < 0.4
    by_codes = rb.rank_codes(query, database, ql, dl, "count")
    by_floats = rb.rank(rb.hamming(query, database), ql.astype(int) @ dl.T.astype(int))
    for name in (*FREE_CUTOFF, *NEEDS_CUTOFF, *NO_CUTOFF):
        np.testing.assert_allclose(
            ours(name, by_codes, 6, "mean"), ours(name, by_floats, 6, "mean"), atol=1e-14
        )
    np.testing.assert_allclose(rb.precision_within(by_codes, 3), rb.precision_within(by_floats, 3))


@pytest.mark.parametrize("kind", ["single", "any", "count", "dense", "sparse"])
def test_exclude_self_takes_each_query_out(kind):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(2)
    codes = rb.pack(rng.normal(size=(12, 5)))
    single, multi = rng.integers(0, 3, 12), rng.random((12, 4)) < 0.4
    grades = rng.integers(0, 3, (12, 12))
    arguments, relevance = {
        "single": ((single, single), single[:, None] == single),
        "any": ((multi, multi, "any"), (multi @ multi.T)),
        "count": ((multi, multi, "count"), multi.astype(int) @ multi.T.astype(int)),
        "dense": ((None, None, grades), grades),
        "sparse": ((None, None, csr_array(grades)), grades),
    }[kind]
    one = rb.rank_codes(codes, codes, *arguments, exclude_self=True)
    two = rb.rank(rb.hamming(codes, codes), relevance, exclude_self=True)
    np.testing.assert_array_equal(one.by_grade[:, : two.by_grade.shape[1]], two.by_grade)
    np.testing.assert_allclose(rb.average_precision(one), rb.average_precision(two), atol=1e-14)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 30), st.sampled_from([1, 2, 4]))
def test_runs_of_grades_are_the_compact_ranking(seed, queries, items, most):
    draw = np.random.default_rng(seed)
    distances = draw.integers(0, draw.integers(1, 60), (queries, items))
    keys = np.sort(distances * 256 + draw.integers(0, most + 1, (queries, items)), axis=1)
    runs, wanted = rank_runs(keys), compact(rank_keys(keys))
    for k in (None, 1, 3):
        for ties in ("mean", "best", "worst"):
            np.testing.assert_allclose(
                rb.average_precision(runs, k=k, ties=ties),
                rb.average_precision(wanted, k=k, ties=ties), rtol=1e-12,
            )  # fmt: skip
            np.testing.assert_allclose(
                rb.ndcg(runs, k=k, ties=ties), rb.ndcg(wanted, k=k, ties=ties), rtol=1e-12
            )
    assert runs.counts.sum() == queries * items
