"""Other libraries where they agree: on ties scikit-learn's NDCG, without ties all of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

import rankbits as rb


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("k", [None, 1, 7, 40])
def test_linear_ndcg_averages_ties_as_scikit_learn_does(rng, k):
    distances, grades = rng.integers(0, 8, (30, 40)), rng.integers(0, 4, (30, 40))
    got = rb.ndcg(rb.rank(distances, grades), k, gain="linear")
    wanted = [ndcg_score(g[None], -d[None], k=k) for g, d in zip(grades, distances, strict=True)]
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_average_precision_without_ties_is_scikit_learns(rng):
    distances, relevance = rng.random((30, 50)), rng.integers(0, 2, (30, 50))
    got = rb.average_precision(rb.rank(distances, relevance))
    wanted = [average_precision_score(r, -d) for r, d in zip(relevance, distances, strict=True)]
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_without_ties_pytrec_eval_agrees(rng):
    import pytrec_eval

    distances, grades = rng.random((20, 60)), rng.integers(0, 3, (20, 60))
    qrels = {str(q): {str(d): int(g) for d, g in enumerate(row)} for q, row in enumerate(grades)}
    run = {
        str(q): {str(d): -float(v) for d, v in enumerate(row)} for q, row in enumerate(distances)
    }
    measures = {"map", "map_cut.5,20", "P.5", "recall.5", "recip_rank", "Rprec", "ndcg"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    ranking = rb.rank(distances, grades)
    for name, values in {
        "map": rb.average_precision(ranking),
        "map_cut_5": rb.average_precision(ranking, 5),
        "map_cut_20": rb.average_precision(ranking, 20),
        "P_5": rb.precision_at(ranking, 5),
        "recall_5": rb.recall_at(ranking, 5),
        "recip_rank": rb.reciprocal_rank(ranking),
        "Rprec": rb.r_precision(ranking),
        "ndcg": rb.ndcg(ranking, gain="linear"),
    }.items():
        wanted = [theirs[str(q)][name] for q in range(20)]
        np.testing.assert_allclose(values, wanted, atol=1e-12, err_msg=name)
