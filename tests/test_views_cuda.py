"""Views of images on a GPU: as plain torch makes them; and a step that waits for nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankbits.data.augment import KINDS, View
from rankbits.data.examples import Examples
from rankbits.data.loading import Loader
from rankbits.data.samplers import make_sampler
from rankbits.losses.named import make_loss
from rankbits.train import TrainConfig
from rankbits.train.loop import Trainer
from rankbits.train.memory import BatchLoss
from rankbits.train.processes import Processes
from rankbits.train.run import Run, build_model, choose_inputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_are_those_of_plain_torch(kind, stored, channels, monkeypatch):
    draw = np.random.default_rng(0)
    for side, size in ((20, (20, 20)), (100, (114, 114)), (30, (9, 14)), (224, (32, 32))):
        images = torch.from_numpy(draw.integers(0, 256, (5, *size, stored), np.uint8))
        view = View(side, channels, kind)
        drawn = view.draw(5, 1)
        seen, wanted = view.see_changed(images.cuda(), drawn), view.see_changed(images, drawn)
        torch.testing.assert_close(seen.cpu(), wanted, rtol=0, atol=1e-4)
        # part of a batch sees what it sees in the whole
        assert torch.equal(view.see_changed(images[2:4].cuda(), drawn[2:4]), seen[2:4])


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("chunk", [None, 16])
@pytest.mark.parametrize("augment", ["flip", "strong"])
def test_a_step_does_not_wait_for_the_device(graphs, chunk, augment):
    draw = np.random.default_rng(0)
    examples = Examples(draw.integers(0, 256, (256, 16, 16, 3), np.uint8), np.arange(256) % 8)
    config = TrainConfig(
        model="conv", bits=16, batch_size=64, chunk=chunk, graphs=graphs, augment=augment, clip=1.0
    )
    inputs = choose_inputs(examples, config)
    run = Run(build_model(config, inputs), config, inputs)
    batches = make_sampler("auto", examples.labels, None, config.batch_size)
    loss = BatchLoss(make_loss("tie-aware-ap", config.width, examples.labels))
    trainer = Trainer(run, examples, None, batches, loss, Processes(torch.device("cuda")))
    loader = Loader(examples, batches.at(0), device=trainer.device)
    for number, batch in enumerate(loader):
        if number == 2:  # the first chooses alpha, and compiles; then graphs are recorded
            torch.cuda.set_sync_debug_mode("error")
        try:
            trainer.take_step(batch, 0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert number == 3
