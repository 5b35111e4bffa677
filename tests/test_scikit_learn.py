"""Quantizers in scikit-learn: its pipelines, its searches, its own checks of an estimator."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import rankbits as rb

base = pytest.importorskip("sklearn.base")
from sklearn.model_selection import GridSearchCV, cross_validate  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

DRAW = np.random.default_rng(0)
LABELS = np.arange(120) % 4
X = (DRAW.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS]).astype(np.float32)
EVERY = {
    "Sign": rb.Sign(),
    "RandomRotation": rb.RandomRotation(seed=1),
    "RandomRotation, 2 bits": rb.RandomRotation(2),
    "ITQ, 2 bits": rb.ITQ(2, steps=5),
    "H2Q, 2 bits": rb.H2Q(2),
    "Projection, 2 bits": rb.Projection(2),
    "SupervisedRotation, 2 bits": rb.SupervisedRotation(2, steps=3, climbs=1),
    "BRE, 2 bits": rb.BRE(2, anchors=5),
    "FastHash, 2 bits": rb.FastHash(2, rounds=2),
    "StructHash, 2 bits": rb.StructHash(2, rounds=2),
    "MACHash, 2 bits": rb.MACHash(2, steps=1),
}
EXPECTED_TO_FAIL = {
    "check_fit_score_takes_y": "the second argument is called labels; y= is taken too",
    "check_fit2d_predict1d": "one row, (dim,), is taken as (1, dim); scikit-learn refuses it",
    "check_estimators_dtypes": "int32 and int64 are refused: ids or labels rather than embeddings",
    "check_dtype_object": "arrays of objects are refused, even where each is a number",
    "check_complex_data": "refused in other words than scikit-learn's",
    "check_estimators_empty_data_messages": "refused in other words than scikit-learn's",
    "check_fit2d_1sample": "refused in other words than scikit-learn's",
    "check_n_features_in_after_fitting": "refused in other words than scikit-learn's",
}


@pytest.mark.parametrize("name", EVERY)
def test_the_checks_of_scikit_learn(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that Quantizer is no BaseEstimator, among others
        results = check_estimator(
            EVERY[name], on_fail=None, on_skip=None, expected_failed_checks=EXPECTED_TO_FAIL
        )
    failed = [
        f"{result['check_name']}: {result['exception']}"
        for result in results
        if result["status"] == "failed"
    ]
    assert not failed, "\n".join(failed)
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert len(passed) > 25 and not passed & set(EXPECTED_TO_FAIL)


@pytest.mark.parametrize("name", EVERY)
def test_a_clone_has_the_options_and_nothing_learned(name):
    fitted = EVERY[name].fit(X, LABELS)
    check_is_fitted(fitted)
    copy = base.clone(fitted)
    assert type(copy) is type(fitted) and copy.get_params() == fitted.get_params()
    with pytest.raises(ValueError, match="not fitted"):
        check_is_fitted(copy)
    assert fitted.n_features_in_ == 6 and not hasattr(copy, "n_features_in_")


def test_a_pipeline_encodes_as_its_steps_do():
    pipeline = make_pipeline(StandardScaler(), rb.SupervisedRotation(4, steps=3, climbs=1))
    outputs = pipeline.fit(X, LABELS).transform(X)
    scaled = StandardScaler().fit_transform(X)
    alone = rb.SupervisedRotation(4, steps=3, climbs=1).fit(scaled, LABELS)
    np.testing.assert_array_equal(outputs, alone.transform(scaled))
    assert rb.pack(outputs) == alone.encode(scaled)
    pipeline.set_params(supervisedrotation__bits=3)
    assert pipeline.fit_transform(X, LABELS).shape == (120, 3)


def mean_average_precision(quantizer, embeddings, labels):
    codes = rb.pack(quantizer.transform(embeddings))
    return rb.evaluate(codes, codes, labels, labels, exclude_self=True)["mAP"]


def test_a_search_finds_the_number_of_bits():
    pipeline = Pipeline([("scale", StandardScaler()), ("bits", rb.ITQ(steps=5))])
    options = {"bits__bits": np.array([1, 4]), "bits__start": ["identity", "random"]}
    search = GridSearchCV(pipeline, options, scoring=mean_average_precision, cv=3)
    search.fit(X, LABELS)
    assert search.best_params_["bits__bits"] == 4
    assert search.best_estimator_.named_steps["bits"].bits_ == 4
    scores = cross_validate(rb.H2Q(4), X, LABELS, scoring=mean_average_precision, cv=3)
    assert (scores["test_score"] > 0).all()


def test_labels_may_be_called_y():
    options = {"steps": 3, "climbs": 1}
    named = rb.SupervisedRotation(**options).fit(X, y=LABELS)
    plain = rb.SupervisedRotation(**options).fit(X, LABELS)
    assert torch.equal(named.weight_, plain.weight_)
    assert rb.ITQ().fit_transform(X, y=LABELS).shape == (120, 6)
    with pytest.raises(rb.Refusal, match="Give either labels or y, not both"):
        rb.ITQ().fit(X, LABELS, y=LABELS)


def test_frames_of_pandas_are_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    assert rb.ITQ(4).fit(frame).encode(frame) == rb.ITQ(4).fit(X).encode(X)


def test_sparse_rows_are_refused_in_a_sentence():
    sparse = pytest.importorskip("scipy.sparse")
    for rows in (sparse.csr_matrix(X), torch.from_numpy(X).to_sparse()):
        with pytest.raises(rb.Refusal, match="must be a dense array, not a sparse one"):
            rb.ITQ().fit(rows)


def test_nothing_of_this_needs_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None; import numpy as np, rankbits as rb; "
        "x = np.random.default_rng(0).normal(size=(20, 4)); "
        "print(rb.ITQ(2).fit(x, y=x[:, 0] > 0).set_params(steps=3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "ITQ(bits=2, steps=3)\n"
