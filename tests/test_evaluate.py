"""Reports: figures, ranges, protocols, forms."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import rankbits as rb


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 250)
    floats = rng.normal(size=(250, 10)) + rng.normal(size=(4, 10))[labels]
    return rb.pack(floats), labels, floats


def split(codes, labels, *rest):
    return codes[:50], codes[50:], labels[:50], labels[50:], *((r[:50], r[50:]) for r in rest)


def test_figures_are_the_metrics(sample):
    codes, labels, _ = sample
    pair = split(codes, labels)
    report = rb.evaluate(*pair, k=(5, 20))
    ranking = rb.rank_codes(*pair)
    for name, value in {
        "mAP": rb.average_precision(ranking),
        "mAP@5": rb.average_precision(ranking, 5),
        "mAP@5 retrieved": rb.average_precision(ranking, 5, divide_by="retrieved"),
        "NDCG@20": rb.ndcg(ranking, 20),
        "precision@20": rb.precision_at(ranking, 20),
        "hit@5": rb.hit_at(ranking, 5),
        "MRR": rb.reciprocal_rank(ranking),
        "MAP@R": rb.map_at_r(ranking),
        "recall within 2": rb.recall_within(ranking, 2),
    }.items():
        assert report[name] == pytest.approx(value.mean(), abs=1e-15)
        np.testing.assert_array_equal(report.per_query[name], value)
    figure = report.figures["mAP"]
    assert figure.worst < figure.value < figure.best
    assert figure.best == rb.average_precision(ranking, ties="best").mean()


def test_slices_of_queries_make_no_difference(sample, monkeypatch):
    import importlib

    module = importlib.import_module("rankbits.evaluate.rankings")
    codes, labels, floats = sample
    pair, floats = split(codes, labels)[:4], (floats[:50], floats[50:])
    multi = [np.eye(4)[part] for part in pair[2:]]
    calls = [
        lambda: rb.evaluate(*pair),
        lambda: rb.evaluate(*pair[:2], *multi, relevance="count"),
        lambda: rb.evaluate(*pair[:2], relevance=pair[2][:, None] == pair[3]),
        lambda: rb.evaluate(*pair, tie_break=floats),
    ]
    whole = [call().to_json() for call in calls]
    by_floats = rb.evaluate(*floats, *pair[2:])
    monkeypatch.setattr(module, "COUNTS", 1)
    monkeypatch.setattr(module, "PAIRS", 1)
    assert [call().to_json() for call in calls] == whole
    judged = rb.evaluate(*floats, *pair[2:])
    for name, figure in by_floats.figures.items():  # the sums have other lengths: other roundings
        assert judged[name] == pytest.approx(figure.value, abs=1e-13)
    assert json.loads(whole[0])["figures"] == json.loads(whole[2])["figures"]


def test_shuffling_the_database_changes_no_figure(sample):
    codes, labels, floats = sample
    order = np.random.default_rng(1).permutation(200)
    q, d, ql, dl, (fq, fd) = split(codes, labels, floats)
    for extra in ({}, {"tie_break": True}):
        one = rb.evaluate(q, d, ql, dl, **({"tie_break": (fq, fd)} if extra else {}))
        two = rb.evaluate(
            q, d[order], ql, dl[order], **({"tie_break": (fq, fd[order])} if extra else {})
        )
        assert one.to_json() == two.to_json()


def test_tie_break_is_hamming_then_distance_of_unit_vectors(sample):
    codes, labels, floats = sample
    q, d, ql, dl, (fq, fd) = split(codes, labels, floats)
    report = rb.evaluate(q, d, ql, dl, k=30, tie_break=(7 * fq, 0.1 * fd))
    assert "H2Q" in report.protocol and "Not a pure Hamming" in report.protocol
    unit = [f / np.linalg.norm(f, axis=1, keepdims=True) for f in (fq, fd)]
    values = []
    for i in range(50):
        squared = ((unit[0][i] - unit[1]) ** 2).sum(1)
        order = np.lexsort((squared, rb.hamming(q[i], d)[0]))[:30]
        places = np.flatnonzero(dl[order] == ql[i]) + 1
        values.append(np.mean(np.arange(1, len(places) + 1) / places) if len(places) else 0.0)
    figure = report.figures["mAP@30 retrieved"]
    assert figure.value == pytest.approx(np.mean(values), abs=1e-12)
    assert not figure.tied
    pure = rb.evaluate(q, d, ql, dl, k=30).figures["mAP@30 retrieved"]
    assert pure.worst <= figure.value <= pure.best


def test_queries_with_nothing_relevant_leave_the_mean_and_are_counted(sample):
    codes, labels, _ = sample
    q, d, ql, dl = split(codes, labels)
    ql = ql.copy()
    ql[:7] = 99
    report = rb.evaluate(q, d, ql, dl)
    assert report.without_relevant == 7 and "7 of 50 queries have nothing relevant" in str(report)
    assert report["mAP"] == pytest.approx(np.nanmean(report.per_query["mAP"]))
    assert np.isnan(report.per_query["MRR"][:7]).all()
    nothing = rb.evaluate(q, d, np.full(50, 99), dl)
    assert np.isnan(nothing["mAP"])
    assert json.loads(nothing.to_json())["figures"]["mAP"]["mean"] is None


def test_cutoffs_past_the_end_are_left_out_and_said(sample):
    codes, labels, _ = sample
    report = rb.evaluate(*split(codes, labels), k=(10, 5000))
    assert "mAP@5000" not in report.figures
    assert "5,000" in report.remarks[-1]


def test_exclude_self_judges_each_against_the_rest(sample):
    codes, labels, _ = sample
    report = rb.evaluate(codes, codes, labels, exclude_self=True)
    assert report.database == 249
    single = [
        rb.evaluate(codes[i], codes[np.arange(250) != i], labels[[i]], np.delete(labels, i))["mAP"]
        for i in range(20)
    ]
    np.testing.assert_allclose(report.per_query["mAP"][:20], single)


def test_forms_of_a_report(sample, tmp_path):
    codes, labels, _ = sample
    report = rb.evaluate(*split(codes, labels), k=5)
    figure = report.figures["mAP"]
    span = f"ties could make it {figure.worst:.4f} to {figure.best:.4f}"
    assert re.search(rf"mAP +{figure.value:.4f}  \({span}\)", str(report))
    table = json.loads(report.to_json())
    assert table["figures"]["mAP"]["mean"] == figure.value and table["bits"] == 10
    assert f"| mAP | {figure.value:.4f} | {figure.worst:.4f} to {figure.best:.4f} |" in (
        report.to_markdown()
    )
    report.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert f"{figure.value:.4f}" in page and "http" not in page and "<script" not in page
    assert repr(report).startswith("Report(mAP 0.")


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("alone", [False, True])
def test_embeddings_are_judged_as_their_distances_are(sample, distance, alone):
    _, labels, floats = sample
    floats = np.round(floats * 2)[:60] + 0.5  # few values: many ties
    queries, theirs = (floats, labels[:60]) if alone else (floats[:7], labels[:7])
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    q, d = (unit(x) if distance == "cosine" else x for x in (queries, floats))
    # the definition, in whole steps so that equal is equal
    exact = np.rint(((q[:, None] - d[None]) ** 2).sum(2) * 2**30)
    ranking = rb.rank(exact, theirs[:, None] == labels[None, :60], exclude_self=alone)
    report = rb.evaluate(
        queries, floats, theirs, labels[:60], k=5, distance=distance, exclude_self=alone
    )
    for ties, value in zip(
        ("mean", "worst", "best"),
        (report["mAP"], report.figures["mAP"].worst, report.figures["mAP"].best),
        strict=True,
    ):
        wanted = np.nanmean(rb.average_precision(ranking, ties=ties))
        assert value == pytest.approx(wanted, abs=1e-12)
    assert report["hit@5"] == pytest.approx(np.nanmean(rb.hit_at(ranking, 5)), abs=1e-12)
    assert report.bits is None and report.database == 60 - alone


def test_the_tie_break_protocol_can_leave_the_query_out(sample):
    codes, labels, floats = sample
    report = rb.evaluate(
        codes, codes, labels, labels, tie_break=(floats, floats), exclude_self=True
    )
    unit = floats / np.linalg.norm(floats, axis=1, keepdims=True)
    key = 8.0 * rb.hamming(codes, codes) + np.round(2 - 2 * unit @ unit.T, 9)
    ranking = rb.rank(key, labels[:, None] == labels, exclude_self=True)
    wanted = np.nanmean(rb.average_precision(ranking))
    assert report["mAP"] == pytest.approx(wanted, abs=1e-12)


def test_where_nothing_is_relevant_words_say_so(sample, tmp_path):
    codes, _, _ = sample
    report = rb.evaluate(codes[:5], codes[5:], ["owl"] * 5, ["ant"] * 245, k=10)
    sentence = "No query has a relevant item in the database: all 5 queries were left out"
    report.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    for text in (str(report), report.to_markdown(), page):
        assert sentence in text and "undefined" in text
        assert not re.search(r"\bnan\b", text)
    assert repr(report).startswith("Report(mAP undefined")
    again = rb.Report.from_json(report.to_json())
    assert str(again) == str(report)
    report = rb.evaluate(codes[:2], codes[2:], [0, 9], [0] * 248, k=10)
    assert "1 of 2 queries have nothing relevant in the database" in str(report)
    assert "undefined," in str(report) and "No query" not in str(report)


def test_a_report_is_a_frame_of_pandas(sample):
    pandas = pytest.importorskip("pandas")
    codes, labels, _ = sample
    report = rb.evaluate(*split(codes, labels), k=10)
    frame = report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["name", "value", "worst", "best"]
    assert frame["name"].tolist() == list(report.figures)
    row = frame.set_index("name").loc["mAP"]
    figure = report.figures["mAP"]
    assert (row["value"], row["worst"], row["best"]) == (figure.value, figure.worst, figure.best)
