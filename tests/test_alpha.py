"""The alpha of tanh(alpha f): found from the first batch, so that units do not matter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import Refusal
from rankbits.data.digits import digits
from rankbits.data.examples import Examples
from rankbits.losses import CEL, MIHash, Neighbours, TieAwareAP
from rankbits.papers.recipe import read_recipes
from rankbits.train import TrainConfig
from rankbits.train.log import LOG
from rankbits.train.optimisers import SPREAD, choose_alpha, find_alpha, get_alpha

SETTINGS = {"bits": 16, "epochs": 4, "batch_size": 100, "say": id, "tensorboard": False}
RECIPES = Path(__file__).parent.parent / "reproduce"


def make_own(scale: float = 1.0) -> Examples:
    images, labels = digits()
    return Examples(scale * images[:600].reshape(600, 64).astype(np.float32) / 16, labels[:600])


@pytest.mark.parametrize("loss", ["tie-aware-ap", "mihash", "tie-aware-ndcg"])
def test_it_is_found_in_the_units_of_the_outputs(loss):
    small, large = (
        rb.train(examples=make_own(scale), loss=loss, **SETTINGS) for scale in (1e-3, 1e3)
    )
    assert small.progress.alpha / large.progress.alpha == pytest.approx(1e6, rel=1e-3)
    untrained = rb.train(examples=make_own(1e-3), loss=loss, **SETTINGS | {"epochs": 0})
    outputs = untrained.embed(make_own(1e-3)).embeddings
    spread = np.sqrt(np.square(outputs).mean())  # of all rows, where the first batch had 100
    assert small.progress.alpha * spread == pytest.approx(SPREAD, rel=0.1)


@pytest.mark.parametrize("loss", ["tie-aware-ap", "mihash"])
def test_features_that_are_small_are_learned(loss):
    settings = SETTINGS | {"loss": loss, "lr": 3e-3, "schedule": "cosine", "epochs": 8}
    found, one = (
        rb.train(examples=make_own(0.1), **settings, alpha=a).progress.best for a in (None, 1.0)
    )
    assert found > one + 0.2, (found, one)


def test_what_is_said_is_taken(tmp_path):
    said = rb.train(examples=make_own(), alpha=3, **SETTINGS)
    assert said.progress.alpha == 3 and said.config.alpha == 3
    loss = TieAwareAP(alpha=7.0)
    theirs = {"examples": make_own(), "loss": loss, "out": str(tmp_path / "run")}
    for epochs in (2, 4):  # the second call goes on with the first
        settings = SETTINGS | {"epochs": epochs, "continuation": "grow"}
        given = rb.train(**theirs, **settings)
        assert given.progress.alpha == 7 and loss.alpha == 7  # grown meanwhile, and as it was
    both = rb.train(examples=make_own(), loss=loss, alpha=2, **SETTINGS)
    assert both.progress.alpha == 2 and loss.alpha == 7
    with pytest.raises(Refusal, match="alpha is a setting of the run; give it there"):
        rb.train(examples=make_own(), loss="mihash", options={"alpha": 2}, **SETTINGS)
    rb.train(examples=make_own(), loss="wglhh", options={"alpha": 0.2}, **SETTINGS)  # not tanh's


def test_a_log_tells_the_alpha_of_losses_that_have_one(tmp_path):
    for loss in ("mihash", "cel"):
        folder = tmp_path / loss
        run = rb.train(examples=make_own(), loss=loss, out=str(folder), log_every=1, **SETTINGS)
        rows = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
        told = {row.get("alpha") for row in rows if "loss" in row}
        assert told == ({run.progress.alpha} if loss == "mihash" else {None})
    assert get_alpha(CEL(16, 10)) is None
    assert get_alpha(Neighbours(MIHash(alpha=5.0), np.eye(4, dtype=np.float32))) == 5


def test_outputs_that_tell_nothing_leave_it_at_one():
    for outputs in (torch.zeros(3, 2), torch.empty(0, 2), torch.full((2, 2), torch.nan),
                    torch.full((2, 2), 1e-45)):  # fmt: skip
        assert choose_alpha(TrainConfig(), outputs) == 1
    dark = Examples(np.zeros((60, 8), np.float32), np.arange(60) % 3)
    assert rb.train(examples=dark, **SETTINGS).progress.alpha == 1


def test_it_grows_from_there_and_never_shrinks():
    growing = TrainConfig(continuation="grow")
    assert find_alpha(growing, 5.0, 10, 10) == pytest.approx(200)
    ended = TrainConfig(continuation="grow", alpha_end=20)
    assert find_alpha(ended, 5.0, 10, 10) == pytest.approx(20)
    assert find_alpha(ended, 50.0, 10, 10) == 50


def test_recipes_name_it_so_that_their_rows_stay():
    named = [
        recipe
        for recipe in read_recipes(RECIPES)
        if recipe.train.get("loss") in ("tie-aware-ap", "tie-aware-ndcg", "mihash")
        and recipe.kind != "example"  # nothing is trained there
    ]
    assert len(named) > 30
    for recipe in named:
        assert "alpha" in recipe.train or "alpha" in recipe.choose, recipe.name
