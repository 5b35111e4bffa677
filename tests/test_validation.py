"""Validation: held-out rows are judged by the figure that the user wants to be good at."""

from __future__ import annotations

import itertools
import re
import sys

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.cli import main
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.encoder import frozen
from rankbits.train import Validation
from rankbits.train.validation import DATABASE, QUERIES

PLAIN = torch.nn.Identity()
CPU = torch.device("cpu")


def make_rows(labels, seed=0):
    labels = np.asarray(labels)
    x = np.random.default_rng(seed).normal(size=(len(labels), 5)).astype(np.float32)
    return Examples(x, labels)


def make_digits(rows):
    images, labels = digits()
    return Examples(images[:rows].reshape(rows, 64).astype(np.float32) / 16, labels[:rows])


def test_weights_are_chosen_by_the_figure_that_was_asked_for(tmp_path):
    said = []
    run = rb.train(
        examples=make_digits(400), bits=8, epochs=6, lr=0.05,
        batch_size=64, validate_by="precision@5", out=str(tmp_path / "run"), say=said.append,
    )  # fmt: skip
    rows = [row for row in run.history if "validation_precision@5" in row]
    assert len(rows) == 6 and all(0 < row["validation_mAP"] < 1 for row in rows)
    best = max(row["validation_precision@5"] for row in rows)
    assert run.progress.best == best
    assert any("validation mAP 0." in line and ", precision@5 0." in line for line in said)
    again = rb.load_run(tmp_path / "run")
    assert again.progress.best == best and again.config.validate_by == "precision@5"


def test_the_figure_is_that_of_evaluate():
    held = make_rows(np.arange(60) % 3)
    for name in ("mAP", "hit@1", "MAP@R", "recall@7"):
        judged = Validation(held, held, binary=False, figure=name).judge(PLAIN, None, CPU)
        whole = rb.evaluate(held.inputs, held.inputs, held.labels, exclude_self=True, k=(1, 7))
        assert judged.chosen == pytest.approx(whole[name])
        assert judged.figures["mAP"] == pytest.approx(whole["mAP"])


def test_ndcg_grades_rows_by_the_labels_they_share():
    hot = np.random.default_rng(1).random((50, 4)) < 0.5
    hot[:, 0] |= ~hot.any(1)
    held = make_rows(hot)
    judged = Validation(held, held, binary=True, figure="NDCG@10").judge(PLAIN, None, CPU)
    codes = rb.pack(held.inputs)
    how = {"exclude_self": True, "relevance": "count", "k": 10}
    assert judged.chosen == pytest.approx(rb.evaluate(codes, codes, hot, **how)["NDCG@10"])
    assert judged.chosen != pytest.approx(
        rb.evaluate(codes, codes, hot, **how | {"relevance": "any"})["NDCG@10"]
    )


def test_a_cutoff_past_the_validation_rows_is_refused():
    held = make_rows(np.arange(60) % 3)
    sentence = r"validate_by = 'hit@60' needs longer rankings: validation ranks 59 rows\."
    with pytest.raises(rb.Refusal, match=sentence):
        Validation(held, held, binary=False, figure="hit@60")
    Validation(held, held, binary=False, figure="hit@59")


@pytest.mark.parametrize("name", ["map", "hit@0", "hit", "within 2", "validation", ""])
def test_a_name_that_no_figure_has_is_refused(name):
    with pytest.raises(rb.Refusal, match="validate_by"):
        rb.TrainConfig(validate_by=name)


def test_whole_classes_are_held_out_where_new_ones_will_be_searched():
    said = []
    settings = {"bits": 4, "epochs": 1, "validation": 0.3, "say": said.append}
    run = rb.train(examples=make_digits(400), hold_out="classes", **settings)
    counts = np.bincount(make_digits(400).labels)
    learned, held = map(int, re.findall(r"(\d+) (?:to learn|held out)", said[0]))
    assert learned + held == 400
    assert held in {sum(counts[list(c)]) for c in itertools.combinations(range(10), 3)}
    assert 0 < run.progress.best < 1


def test_too_few_classes_to_hold_one_out_are_refused():
    rows = make_rows(np.arange(40) % 2)
    with pytest.raises(rb.Refusal, match=r"needs more classes: validation = 0\.1 of 2 is none"):
        rb.train(examples=rows, bits=4, hold_out="classes", say=print)


def test_bits_of_a_frozen_network_are_judged_on_classes_held_out():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 30)
    features = (draw.normal(size=(10, 16))[labels] + draw.normal(size=(300, 16))).astype(np.float32)
    rows = Examples(features, labels)
    figures = {}
    for how in ("auto", "rows", "classes"):
        config = rb.TrainConfig(hold_out=how, validation=0.3)
        figures[how] = frozen._validate(rows, features, 8, config)
    assert figures["auto"] == figures["rows"] > figures["classes"] > 0


def test_the_command_names_the_figure(tmp_path, capsys):
    rows, file = make_digits(200), tmp_path / "digits.npz"
    np.savez(file, vectors=rows.inputs, labels=rows.labels)
    settings = "--bits 8 --epochs 1 --batch-size 64 --validate-by MAP@R"
    assert main(["train", str(file), *settings.split(), "--out", str(tmp_path / "run")]) == 0
    assert ", validation MAP@R 0." in capsys.readouterr().out


def test_many_rows_are_judged_by_a_draw(monkeypatch):
    module = sys.modules["rankbits.train.validation"]  # rankbits.train is the function
    monkeypatch.setattr(module, "QUERIES", 5)
    monkeypatch.setattr(module, "DATABASE", 9)
    assert QUERIES > 5 and DATABASE > 9
    labels = np.arange(40) % 4
    hot = np.eye(4, dtype=bool)[labels]
    for held in (make_rows(labels), make_rows(hot)):
        judge = Validation(held, held, binary=True)
        assert len(judge.queries) == 5 and len(judge.database) == 9
    strangers = Validation(make_rows(hot[:, ::-1] & hot), make_rows(hot), binary=True)
    assert strangers.database is strangers.queries
