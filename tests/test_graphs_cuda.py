"""Training by CUDA graphs, or compiled: the same weights as without, in one pass and in chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.data.examples import Examples
from rankbits.train.graphs import GraphedNetwork

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("chunk", [None, 16])
@pytest.mark.parametrize(
    "faster", [{"graphs": True}, {"compile": True}, {"graphs": True, "compile": True}]
)
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch's own use
def test_a_faster_run_has_the_same_weights(chunk, faster):
    draw = np.random.default_rng(0)
    labels = np.arange(200) % 5
    images = (draw.integers(0, 50, (200, 16, 16, 3)) + 40 * labels[:, None, None, None]) % 256
    examples = Examples(images.astype(np.uint8), labels)
    settings = {"batch_size": 40, "chunk": chunk, "epochs": 2, "dropout": 0.2, "augment": "shift"}
    settings |= {"model": "conv", "bits": 16, "validation": 0, "device": "cuda", "amp": "off"}
    runs = [rb.train(examples=examples, **settings, **more) for more in ({}, faster)]
    plain, changed = (dict(run.model.state_dict()) for run in runs)
    start = dict(rb.train(examples=examples, **settings | {"epochs": 0}).model.state_dict())
    moved = apart = 0.0
    for name, value in plain.items():
        if value.is_floating_point():
            moved += float((value - start[name]).square().sum())
            apart += float((value - changed[name]).square().sum())
    assert apart < 0.01 * moved  # kernels add up in any order, and steps of Adam follow signs


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_gradients_add_up_and_buffers_change_once():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6)).cuda()
    twin = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6)).cuda()
    twin.load_state_dict(model.state_dict())
    network = GraphedNetwork(model, torch.enable_grad)
    for rows in (10, 10, 7, 10):
        x, slope = torch.randn(rows, 8, device="cuda"), torch.randn(rows, 6, device="cuda")
        mine, theirs = network(x), twin(x)
        torch.testing.assert_close(mine, theirs)
        mine.backward(slope)
        theirs.backward(slope)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(one, other)
