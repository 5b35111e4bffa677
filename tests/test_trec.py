"""TREC runs and qrels: joined as trec_eval joins them, ties averaged as it does not."""

from __future__ import annotations

import numpy as np
import pytest

import rankbits as rb
from rankbits.data.trec import read_judged


def write(path, rows):
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    run, qrels = [], []
    for q in range(12):
        returned = rng.permutation(80)[: rng.integers(5, 40)]
        scores = rng.normal(size=len(returned))
        run += [
            f"q{q} Q0 d{d} {i} {s} test"
            for i, (d, s) in enumerate(zip(returned, scores, strict=True))
        ]
        judged = rng.permutation(80)[:20]
        qrels += [
            f"q{q}\t0\td{d}\t{g}" for d, g in zip(judged, rng.integers(0, 3, 20), strict=True)
        ]
    return write(tmp_path / "run", run), write(tmp_path / "qrels", qrels)


def test_without_ties_pytrec_eval_agrees(files):
    import pytrec_eval

    with open(files[0]) as run, open(files[1]) as qrels:
        theirs = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(qrels),
            {
                "map",
                "map_cut.10",
                "P.10",
                "recall.10",
                "recip_rank",
                "Rprec",
                "ndcg",
                "ndcg_cut.10",
            },
        ).evaluate(pytrec_eval.parse_run(run))
    report = rb.evaluate_run(read_judged(*files), k=10, gain="linear")
    for ours, name in {
        "mAP": "map", "mAP@10": "map_cut_10", "precision@10": "P_10", "recall@10": "recall_10",
        "MRR": "recip_rank", "R-precision": "Rprec", "NDCG": "ndcg", "NDCG@10": "ndcg_cut_10",
    }.items():  # fmt: skip
        wanted = [theirs[f"q{q}"][name] for q in range(12)]
        np.testing.assert_allclose(report.per_query[ours], wanted, atol=1e-12, err_msg=ours)


def test_equal_scores_are_ties_whatever_the_document_is_called(tmp_path):
    qrels = write(tmp_path / "qrels", ["q 0 a 1"])
    values = []
    for first, second in (("a", "b"), ("b", "a")):
        run = write(tmp_path / "run", [f"q Q0 {first} 1 0.5 t", f"q Q0 {second} 2 0.5 t"])
        values.append(rb.evaluate_run(read_judged(run, qrels), k=1).figures["mAP"])
    assert values[0] == values[1]
    assert (values[0].worst, values[0].value, values[0].best) == (0.5, 0.75, 1.0)


def test_queries_the_run_lacks(tmp_path):
    qrels = write(tmp_path / "qrels", ["q1 0 a 1", "q2 0 a 1"])
    run = write(tmp_path / "run", ["q1 Q0 a 1 0.5 t", "q9 Q0 a 1 0.5 t"])
    zero, skip = (
        rb.evaluate_run(read_judged(run, qrels, missing=how), k=1) for how in ("zero", "skip")
    )
    assert zero["mAP"] == 0.5 and skip["mAP"] == 1.0
    assert "1 judged queries are not in the run: counted as returning nothing." in zero.notes
    assert "1 queries of the run have no judgements: left out." in skip.notes


def test_many_queries_are_ranked_in_slices(files):
    judged = read_judged(*files)
    whole = next(iter(judged.make_rankings(10**9)))
    parts = list(judged.make_rankings(100))
    assert len(parts) > 1 and sum(map(len, parts)) == len(whole) == 12
    np.testing.assert_allclose(
        np.concatenate([rb.average_precision(p) for p in parts]), rb.average_precision(whole)
    )


@pytest.mark.parametrize(
    ("run", "qrels", "sentence"),
    [
        (["q Q0 a 1 0.5 t"], ["q 0 a -1"], "line 1: grades must be non-negative; got -1"),
        (["q Q0 a 1 0.5 t"], ["q 0 a x"], "line 1: the grade must be a whole number; got 'x'."),
        (["q Q0 a 1 0.5 t"], ["q 0 a 999"], "line 1: grades must be at most 255; got 999."),
        (["q Q0 a 1 nan t"], ["q 0 a 1"], "line 1: the score must be a finite number; got 'nan'."),
        (["q Q0 a 1 0.5"], ["q 0 a 1"], "line 1 must be 'query Q0 document rank score tag'"),
        (["q Q0 a 1 1 t", "q Q0 a 2 0 t"], ["q 0 a 1"], "line 2: document 'a' is returned twice"),
        (["q Q0 a 1 0.5 t"], ["p 0 a 1"], "have no query in common."),
        ([], ["q 0 a 1"], "is empty; it must hold lines"),
    ],
)
def test_refusals(tmp_path, run, qrels, sentence):
    with pytest.raises(rb.Refusal) as caught:
        read_judged(write(tmp_path / "run", run), write(tmp_path / "qrels", qrels))
    assert sentence in str(caught.value)


def test_negative_grades_may_count_as_zero(tmp_path):
    qrels = write(tmp_path / "qrels", ["q 0 a -2", "q 0 b 1"])
    run = write(tmp_path / "run", ["q Q0 a 1 0.9 t", "q Q0 b 2 0.5 t"])
    assert rb.evaluate_run(read_judged(run, qrels, negative="zero"), k=1)["mAP"] == 0.5


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "run").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(rb.Refusal, match="is not a text file"):
        read_judged(tmp_path / "run", write(tmp_path / "qrels", ["q 0 a 1"]))
