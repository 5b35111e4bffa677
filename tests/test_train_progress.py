"""Progress of long work: a bar on a terminal, lines elsewhere, nothing where it is short."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import _progress
from rankbits._progress import Meter
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.train import TrainConfig, embed, features
from rankbits.train.body import Body

OWN = Examples(np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32), np.arange(64) % 4)
SETTINGS = {"bits": 4, "epochs": 2, "batch_size": 16, "validation": 0, "tensorboard": False}


@pytest.fixture
def slow(monkeypatch):
    """Every piece of work takes long."""
    monkeypatch.setattr(_progress, "LINE_AFTER", 0.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_short_work_shows_nothing(capsys, monkeypatch):
    said: list[str] = []
    rb.train(examples=OWN, say=said.append, **SETTINGS)
    assert len(said) == 1 and "4 batches an epoch" in said[0]
    embed(torch.nn.Identity(), OWN, batch_size=8, progress=True)
    monkeypatch.setattr(sys, "stderr", Terminal())
    embed(torch.nn.Identity(), OWN, batch_size=8, progress=True)
    assert sys.stderr.getvalue() == "" and capsys.readouterr().err == ""


def test_lines_within_an_epoch(slow):
    said: list[str] = []
    rb.train(examples=OWN, log_every=1, say=said.append, **SETTINGS)
    lines = [line for line in said if line.startswith("epoch")]
    assert [line.split(",")[0] for line in lines] == [
        f"epoch {epoch}/2: {batch} of 4 batches" for epoch in (1, 2) for batch in (1, 2, 3)
    ]
    assert all("loss " in line and "examples/s" in line and " left" in line for line in lines)


def test_lines_while_embedding(slow, capsys):
    embed(torch.nn.Identity(), OWN, batch_size=16, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"embed: {n} of 64 rows" for n in (16, 32, 48)
    ]
    embed(torch.nn.Identity(), OWN, batch_size=16)
    assert capsys.readouterr().err == ""


def test_lines_while_features_are_computed(slow, capsys, monkeypatch, tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    body = Body(network, "small", View(8, 3))
    monkeypatch.setattr(features, "make_body", lambda *_: body)
    monkeypatch.setattr(features, "weights_path", lambda name: tmp_path)
    pixels = np.zeros((64, 8, 8, 3), np.uint8)
    config = TrainConfig(features="efficientnet-lite0", root=str(tmp_path), device="cpu", side=8)
    features.compute_features(Examples(pixels, OWN.labels), config)
    assert "embed: 32 of 64 rows" in capsys.readouterr().err
    features.compute_features(Examples(pixels, OWN.labels), config)  # kept: nothing is computed
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal_and_no_lines(slow, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    said: list[str] = []
    with Meter("embed", 4, "rows", say=said.append, silent_since=-1e9) as bar:
        for _ in range(4):
            bar.update(1, "loss 0.5")
    shown = sys.stderr.getvalue()
    assert "4/4" in shown and "embed" in shown and "loss 0.5" in shown and not said
    with Meter("embed", 4, "rows", shown=False, say=said.append, silent_since=-1e9) as bar:
        bar.update(1)
    assert sys.stderr.getvalue() == shown and not said


def test_short_pieces_of_long_work_share_a_silence(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    said: list[str] = []
    silent_since = None
    for epoch in range(6):  # 9 seconds each, and a line after 20
        with Meter(f"epoch {epoch}", 3, "batches", say=said.append, silent_since=silent_since) as m:
            for _ in range(3):
                now[0] += 3
                m.update(1)
        silent_since = m.silent_since
    assert said == ["epoch 2: 1 of 3 batches, 00:06 left", "epoch 4: 2 of 3 batches, 00:03 left"]
