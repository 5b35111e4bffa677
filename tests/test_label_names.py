"""Labels that are names: numbered in their order, and alike for queries and database."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import _check, losses
from rankbits.data import Examples, RandomBatches

DRAW = np.random.default_rng(0)
NAMES = np.array(["wren", "crow", "tit", "owl"])
NUMBERS = DRAW.integers(0, 4, 160)
X = (DRAW.normal(size=(160, 8)) + 2 * np.eye(4, 8)[NUMBERS]).astype(np.float32)
CODES = rb.pack(X)
FORMS = {
    "array": np.asarray,
    "list": np.ndarray.tolist,
    "objects": lambda names: names.astype(object),
    "strings of numpy 2": lambda names: names.astype(np.dtypes.StringDType()),
}


@pytest.mark.parametrize("form", FORMS)
def test_names_are_numbered_in_their_order(form):
    found = _check.labels("labels", FORMS[form](NAMES), 4, names=True)
    assert found.dtype == np.int64 and found.tolist() == [3, 0, 2, 1]


def test_series_of_pandas_are_names():
    pandas = pytest.importorskip("pandas")
    for series in (pandas.Series(NAMES), pandas.Series(NAMES, dtype="category")):
        assert _check.labels("labels", series, 4, names=True).tolist() == [3, 0, 2, 1]
    with pytest.raises(rb.Refusal, match="all be names or all whole numbers; row 1 has nan"):
        _check.labels("labels", pandas.Series(["a", None], dtype="str"), 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["codes", "floats", "tie_break", "exclude_self", "rank_codes"])
def test_evaluation_by_names_is_that_by_numbers(form, how):
    """The queries lack the class that comes first, so that numbering each side alone would fail."""
    own = NUMBERS[:40]
    own[own == NAMES.tolist().index("crow")] = 3
    rest = NUMBERS[40:]
    made = FORMS[form]
    sides = CODES[:40], CODES[40:]

    def judge(query, database):
        if how == "rank_codes":
            return rb.average_precision(rb.rank_codes(*sides, query, database)).tolist()
        if how == "exclude_self":
            return rb.evaluate(sides[1], sides[1], database, exclude_self=True).to_dict()
        if how == "floats":
            return rb.evaluate(X[:40], X[40:], query, database).to_dict()
        ties = (X[:40], X[40:]) if how == "tie_break" else None
        return rb.evaluate(*sides, query, database, tie_break=ties).to_dict()

    assert judge(made(NAMES[own]), made(NAMES[rest])) == judge(own, rest)


def test_quantizers_examples_batches_and_losses_take_names():
    names = NAMES[NUMBERS].tolist()
    _, numbers = np.unique(NAMES[NUMBERS], return_inverse=True)
    options = {"steps": 3, "climbs": 1}
    named = rb.SupervisedRotation(**options).fit(X, names)
    assert torch.equal(named.weight_, rb.SupervisedRotation(**options).fit(X, numbers).weight_)
    examples = Examples(X, names)
    assert examples.class_names == ("crow", "owl", "tit", "wren")
    assert examples.labels.tolist() == numbers.tolist()
    assert examples.subset([0, 1]).class_names == examples.class_names
    assert RandomBatches(names, 8).labels.tolist() == numbers.tolist()
    assert losses.ADSH(names, 8).labels.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rb.evaluate(CODES, CODES, NUMBERS, NAMES[NUMBERS]),
         "both names or both numbers; got numbers for the queries and names for the database."),
        (lambda: rb.evaluate(CODES, CODES, NAMES[NUMBERS], NUMBERS),
         "both names or both numbers; got names for the queries and numbers for the database."),
        (lambda: rb.evaluate(CODES, CODES, NAMES, NAMES[NUMBERS]),
         "query_labels must have one row for each of its codes: 160; got 4."),
        (lambda: rb.evaluate(CODES, CODES, None, NAMES[NUMBERS]), "query_labels must be given"),
        (lambda: rb.evaluate(CODES, CODES, NAMES[NUMBERS]), "database_labels must be given"),
        (lambda: rb.rank_codes(CODES, CODES, [["a", "b"]], ["a"]),
         "query_labels that are names must have shape (n,); got (1, 2)."),
        (lambda: _check.labels("labels", ["a", ""], 2),
         "labels must not be empty strings; row 1 is one."),
        (lambda: _check.labels("labels", ["a", None], 2), "row 1 has None."),
        (lambda: _check.labels("labels", [["a"], ["b", "c"]], 2), "must be an array of numbers"),
        (lambda: _check.labels("labels", NAMES, 4), "numbers here; got names such as 'wren'."),
        (lambda: Examples(X[:2], ["a", "b"], class_names=("c", "d")), "class_names cannot be"),
        (lambda: Examples(X[:2], ["a"]), "labels must have one row for each of the inputs: 2; got"),
    ],
)  # fmt: skip
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call()
    assert sentence in str(caught.value)
