"""The gradient of a batch: chunks, processes and memory change nothing but the memory it takes."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rankbits import Refusal
from rankbits.data.augment import View
from rankbits.losses.named import LOSSES, make_loss
from rankbits.train import Memory, Replay, batch_gradient
from rankbits.train.memory import BatchLoss
from rankbits.train.step import derive_seed, freeze_statistics
from unmeasured import UNMEASURED

ROWS, BITS = 24, 12


@pytest.fixture
def images():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (ROWS, 9, 9, 1), "u1"))


@pytest.fixture
def labels():
    return torch.arange(ROWS) % 5


def network(norm: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    middle = [torch.nn.BatchNorm1d(12)] if norm else []
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 12), *middle, torch.nn.Tanh(),
        torch.nn.Dropout(0.3), torch.nn.Linear(12, BITS),
    ).double()  # fmt: skip


def gradients(model, images, labels, loss, *, chunk, graph=None, view=None, step=3):
    """Value and gradients; ``graph``: rows embedded at a time, with all their graphs kept."""
    model = copy.deepcopy(model)
    loss = copy.deepcopy(loss)
    view = view or View(8, 1, "full")
    drawn = view.draw(len(images), derive_seed(0, step))
    rows = torch.arange(len(images))
    replay = Replay(model, 0, step)

    def embed(start, stop):
        return model(view.see_changed(images[start:stop], drawn[start:stop]).double())

    if graph is None:
        value, _ = batch_gradient(
            embed, len(images), lambda z: loss(z.double(), labels, rows), replay,
            chunk=chunk, own=list(loss.parameters()),
        )  # fmt: skip
    else:
        parts = []
        for start in range(0, len(images), graph):
            replay.set_seed(start)
            parts.append(embed(start, min(start + graph, len(images))))
        value = loss(torch.cat(parts), labels, rows)
        value.backward()
    found = [p.grad for p in [*model.parameters(), *loss.parameters()]]
    return value.detach(), found, [b.clone() for b in model.buffers()]


def close(one, two, tolerance=1e-6):
    for a, b in zip(one, two, strict=True):
        scale = b.abs().max().clamp(min=1e-12)
        assert (a - b).abs().max() <= tolerance * scale


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("chunk", [1, 5, 8, ROWS])
def test_two_passes_are_the_full_batch(images, labels, name, chunk):
    """Dropout and augmentation on; the reference keeps every chunk's graph in memory."""
    torch.manual_seed(1)
    loss = BatchLoss(make_loss(name, BITS, labels.numpy())).double()
    wanted, full, _ = gradients(network(), images, labels, loss, chunk=None, graph=chunk)
    value, found, _ = gradients(network(), images, labels, loss, chunk=chunk)
    assert value == pytest.approx(float(wanted), rel=1e-6)
    assert any(g.abs().max() > 0 for g in full)
    close(found, full)


def test_without_accidents_the_chunk_does_not_matter_at_all(images, labels):
    model = network().eval()
    loss = BatchLoss(make_loss("fastap", BITS, labels.numpy()))
    view = View(8, 1)
    _, full, _ = gradients(model, images, labels, loss, chunk=None, view=view)
    for chunk in (1, 7, 100):
        _, found, _ = gradients(model, images, labels, loss, chunk=chunk, view=view)
        close(found, full)


def test_what_a_row_draws_differs_between_steps_and_places(images):
    view = View(8, 1, "full")
    one, two = (view.see_changed(images, view.draw(ROWS, derive_seed(0, step))) for step in (1, 2))
    assert not torch.equal(one, two)
    torch.testing.assert_close(
        view.see_changed(images[5:9], view.draw(ROWS, derive_seed(0, 1))[5:9]), one[5:9]
    )


def test_batch_norm_takes_each_chunk_and_learns_from_it_once(images, labels):
    loss = BatchLoss(make_loss("cel", BITS, labels.numpy()))
    _, full, ran = gradients(network(norm=True), images, labels, loss, chunk=None, graph=8)
    _, found, buffers = gradients(network(norm=True), images, labels, loss, chunk=8)
    close(found, full)
    close(buffers, ran, 1e-12)  # three chunks, three updates: the second pass leaves none


def test_frozen_batch_norm_knows_no_chunks(images, labels):
    model = network(norm=True)
    for _ in range(5):
        model(torch.rand(16, 64).double())
    model.train()
    model[4].p = 0.0  # dropout draws for a chunk
    freeze_statistics(model)
    loss = BatchLoss(make_loss("cel", BITS, labels.numpy()))
    _, full, _ = gradients(model, images, labels, loss, chunk=None)
    for chunk in (1, 7):
        _, found, _ = gradients(model, images, labels, loss, chunk=chunk)
        close(found, full)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_chunks_bound_the_memory_not_the_batch():
    """Peak growth of a deep network, as the allocator sees it, each in a process of its own."""
    script = """
import os, re, torch
from rankbits.train import Replay, batch_gradient
torch.set_num_threads(1)
rows = 32768
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)], torch.nn.Linear(64, 16))
x = torch.randn(1, 64).expand(rows, 64)
step = lambda n, c: batch_gradient(
    lambda a, b: model(x[a:b]), n, lambda z: z.square().mean(), Replay(model, 0), chunk=c)
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
for chunk in (None, 512):
    child = os.fork()
    if child == 0:
        step(512, 512)
        open("/proc/self/clear_refs", "w").write("5")  # the peak starts from here
        before = peak()
        step(rows, chunk)
        print((peak() - before) / 1024, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=UNMEASURED
    )
    whole, parts = map(float, done.stdout.split())
    assert whole > 125  # 20 layers x 32,768 x 64 floats
    assert parts < whole / 4


def test_memory_joins_the_database(labels):
    torch.manual_seed(0)
    z, past = torch.randn(6, BITS), torch.randn(10, BITS)
    inner = make_loss("fastap", BITS, labels.numpy())
    loss = BatchLoss(inner, memory=10)
    loss.memory.add(past, torch.arange(10) % 5)
    own = torch.arange(6) % 5
    found = loss(z, own, torch.arange(6))
    wanted = inner(
        z, own, database=torch.cat([z, past]), self_rows=torch.arange(6),
        database_labels=torch.cat([own, torch.arange(10) % 5]),
    )  # fmt: skip
    assert found == wanted != inner(z, own)
    loss.remember()
    torch.testing.assert_close(loss.memory.rows, torch.cat([past, z])[-10:])
    pairs = BatchLoss(make_loss("cel", BITS, labels.numpy()), memory=10)
    pairs.memory.add(past, torch.arange(10) % 5)
    every = torch.cat([own, torch.arange(10) % 5])
    assert pairs(z, own, own) == pairs.loss(torch.cat([z, past]), every)


def test_memory_is_first_in_first_out():
    memory = Memory(5)
    for i in range(4):
        memory.add(torch.full((2, 3), float(i)), torch.full((2,), i))
    assert memory.labels.tolist() == [1, 2, 2, 3, 3]
    big = Memory(3)
    big.add(torch.arange(8.0)[:, None], torch.arange(8))
    assert big.labels.tolist() == [5, 6, 7]


def test_a_chunk_of_nothing_is_refused():
    model = torch.nn.Linear(2, 2)
    with pytest.raises(Refusal, match="chunk must be a whole number of at least 1"):
        batch_gradient(
            lambda a, b: model(torch.ones(b - a, 2)), 4, torch.sum, Replay(model), chunk=0
        )
