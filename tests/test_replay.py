"""Which batches are recorded, which recordings are kept, and how a loss uses them.

The recordings themselves need a GPU: ``test_losses_cuda.py``.
"""

from __future__ import annotations

import threading

import pytest
import torch

from rankbits import losses
from rankbits.kernels import Setting, replay
from rankbits.losses import histogram


@pytest.fixture
def recall(monkeypatch):
    """Ask for a kind by its name; each recording is the text of its name and number."""
    monkeypatch.setattr(replay, "_recordings", {})
    made = []

    def ask(kind):
        return replay._recall(kind, lambda: made.append(kind) or f"{kind}, {len(made)}")

    ask.made = made
    return ask


def test_a_kind_is_recorded_once_when_it_has_come_often_enough(recall):
    assert [recall("a") for _ in range(replay.FIRST + 2)] == [None] * replay.FIRST + ["a, 1"] * 2


def test_kinds_that_come_once_are_never_recorded(recall):
    for size in range(200):
        assert recall(size) is None
    assert not recall.made and len(replay._recordings) == replay.MOST


def test_the_kinds_used_last_are_kept(recall):
    for _ in range(replay.FIRST + 1):
        recall("often")
    for size in range(4 * replay.MOST):
        recall(size)
        assert recall("often") == "often, 1"
    for size in range(replay.MOST):
        recall(size)
    assert recall("often") is None  # forgotten, and counted anew


def test_a_recording_that_fails_is_tried_again(monkeypatch):
    monkeypatch.setattr(replay, "_recordings", {})

    def fail():
        raise RuntimeError("no memory")

    for _ in range(replay.FIRST):
        replay._recall("a", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        replay._recall("a", fail)
    assert [replay._recall("a", lambda: "made") for _ in range(replay.FIRST + 1)][-1] == "made"


def test_threads_share_one_recording(recall):
    for _ in range(replay.FIRST):
        recall("a")
    found = []
    threads = [threading.Thread(target=lambda: found.append(recall("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["a, 1"] * 8


def test_batches_on_a_cpu_are_not_recorded():
    x, labels = torch.randn(4, 8), torch.tensor([0, 0, 1, 1])
    for _ in range(replay.FIRST + 2):
        assert replay.find_recording(x, labels, Setting("fastap", 2, 10, 1), False) is None


class Recorded:
    """Stands for a recording: the loss is the sum of squares of alpha x."""

    def run(self, x, labels, alpha):
        return (alpha * x).square().sum(), 2 * alpha**2 * x


def test_a_replayed_loss_has_the_recorded_gradient():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def call(x):
        return histogram._ReplayedLoss.apply(x.tanh(), torch.arange(5), Recorded(), 1.5)

    torch.autograd.gradcheck(call, x)
    value = 3 * call(x)
    once = torch.autograd.grad(value, x, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], once)
    (slope,) = torch.autograd.grad(
        histogram._ReplayedLoss.apply(x, torch.arange(5), Recorded(), 1.5), x, create_graph=True
    )
    assert not slope.requires_grad  # a gradient of the gradient is refused, not wrong


@pytest.mark.parametrize(
    "options",
    [
        {"labels": [0, 0, 1, 1]},
        {"labels": torch.arange(4)},
        {"affinity": torch.eye(4)},
        {"labels": torch.arange(4), "database": torch.ones(4, 8), "database_labels": [0, 1, 2, 3]},
    ],
)
def test_a_batch_on_a_cpu_takes_the_plain_way(options, monkeypatch):
    asked = []
    monkeypatch.setattr(histogram, "find_recording", lambda *given, **more: asked.append(given))
    x = torch.randn(4, 8, requires_grad=True)
    assert losses.fastap_loss(x, **options).requires_grad
    assert not asked
