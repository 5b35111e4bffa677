"""A run that does not learn says so, once, and what to try."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import TrainConfig
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.train.advice import Advisor
from rankbits.train.validation import Validation


def make_digits(rows: int = 600) -> Examples:
    images, labels = digits()
    return Examples(images[:rows].reshape(rows, 64).astype(np.float32) / 16, labels[:rows])


def advise(figures, constant=None, kind="features", **settings):
    """The lines that a run with these validations says, each with the number of its validation."""
    advisor = Advisor(TrainConfig(**{"bits": 20, "lr": 0.01} | settings), kind, 0.1, 50)
    history = [{"step": 0, "loss": 1.0}]
    said = []
    for number, figure in enumerate(figures):
        history.append({"validation_mAP": figure})
        if constant:
            history[-1]["constant_bits"] = constant[number]
        said += [(number, line) for line in advisor.advise(history)]
        history.append({"step": number + 1, "loss": 1.0})
    return said


@pytest.mark.parametrize(
    ("figures", "at", "words"),
    [
        ([0.1, 0.11, 0.105, 0.1, 0.1], 2, "is no better than chance (0.1000) over 3 validations"),
        ([0.6, 0.1, 0.1, 0.1], 3, "is no better than chance"),
        ([0.30001, 0.30004, 0.3, 0.3, 0.3], 2, "has not moved from 0.3000 over 3 validations"),
        ([0.5, 0.3, 0.3, 0.3], 3, "has not moved from 0.3000"),
    ],
)
def test_a_figure_that_stands_still_is_mentioned_once(figures, at, words):
    [(number, line)] = advise(figures)
    assert number == at and words in line and line.endswith("try a smaller lr than 0.01.")


@pytest.mark.parametrize(
    "figures",
    [[0.1, 0.1], [0.1, 0.2, 0.3, 0.3, 0.3], [0.1, 0.1, 0.2, 0.1], [1.0] * 5, [float("nan")] * 5],
    ids=["too few", "learned", "moved", "perfect", "undefined"],
)
def test_a_run_that_learns_hears_nothing(figures):
    assert advise(figures) == []


def test_advice_fits_the_run():
    still = [0.1] * 3
    [(_, line)] = advise(still, kind="images")
    assert "--preset fine-tune" in line and "--preset frozen" in line
    [(_, line)] = advise(still, kind="images", weights="imagenet")
    assert "pretrained" not in line and "--preset frozen" in line and "lr than 0.01" in line


def test_constant_bits_are_mentioned_once():
    assert advise([0.2, 0.3], [2, 2]) == []
    assert advise([0.2, 0.3, 0.4], [9, 0, 9]) == []  # they have come to life
    [(number, line)] = advise([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0, 3, 5, 3, 0, 3, 3])
    assert number == 2
    assert line.startswith("5 of 20 bits are the same for all 50 validation rows")


def test_constant_bits_are_mentioned_at_the_end_of_a_short_run():
    advisor = Advisor(TrainConfig(bits=20), "features", 0.1, 50)
    row = {"validation_mAP": 0.5, "constant_bits": 3}
    assert advisor.advise([row]) == []
    [line] = advisor.advise([row], last=True)
    assert line.startswith("3 of 20 bits")
    better = {"validation_mAP": 0.6, "constant_bits": 3}
    assert advisor.advise([row, row, better], last=True) == []


class Stuck(torch.nn.Module):
    """Four bits of which one tells inputs apart, and no gradient that would change it."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        bit = (x.sum(1, keepdim=True) > x.sum(1).median()).float() - 0.5
        return torch.cat([bit, torch.ones(len(x), 3)], 1) + self.shift * 1e-9


def test_a_run_says_it_and_a_resumed_run_does_not_say_it_again(tmp_path):
    said: list[str] = []
    settings = {"bits": 4, "batch_size": 64, "validation": 0.2, "say": said.append}
    examples = make_digits(300)
    for epochs in (2, 4, 6):
        out = str(tmp_path / "run")
        run = rb.train(examples=examples, model=Stuck(), out=out, epochs=epochs, **settings)
    assert run.progress.epoch == 6
    advice = [line for line in said if ": try " in line]
    assert len(advice) == 2
    assert advice[0].startswith("3 of 4 bits are the same for all 60 validation rows")
    assert advice[1].startswith("validation mAP ") and "over 3 validations" in advice[1]
    rows = [row for row in run.history if "validation_mAP" in row]
    assert [row["constant_bits"] for row in rows] == [3] * 6


def test_chance_is_the_mean_precision_of_random_orders():
    draw = np.random.default_rng(0)
    held = Examples(draw.normal(size=(200, 3)).astype(np.float32), np.arange(200) % 4)
    judge = Validation(held, held, binary=False)
    assert judge.database is judge.queries
    chance = judge.judge(torch.nn.Identity(), None, torch.device("cpu")).chance
    precisions = []
    for _ in range(300):  # of a query with 49 relevant rows among 199
        places = np.sort(draw.permutation(199)[:49]) + 1
        precisions.append(np.mean(np.arange(1, 50) / places))
    assert abs(np.mean(precisions) - chance) < 0.01
    few = Validation(held, held.subset(np.arange(12)), binary=True)
    assert few.judge(torch.nn.Identity(), None, torch.device("cpu")).constant_bits is None
