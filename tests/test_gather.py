"""Two processes with half the batch each equal one process with the whole batch."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from rankbits import losses
from rankbits.train.processes import Processes
from rankbits.train.step import sum_gradients

SIZES = (9, 6)


def model_and_batch():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)
    ).double()
    return model, torch.randn(sum(SIZES), 5, dtype=torch.float64), torch.arange(sum(SIZES)) % 4


LOSSES = {
    "fastap": losses.fastap_loss,
    "ap": losses.tie_aware_ap_loss,
    "ndcg": lambda x, y: losses.tie_aware_ndcg_loss(x, y, "exact"),
    "any other": lambda x, y: ((x @ x.T - (y[:, None] == y).double()) ** 2).mean(),
}


def gather_facts(rank: int) -> list:
    """Gather what the trainer's processes exchange; the second has no gradient for ``idle``."""
    here = Processes.join(torch.device("cpu"))
    norm = torch.nn.BatchNorm1d(2)
    norm.running_mean.fill_(rank)
    here.average_buffers(norm)
    used, idle = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))
    used.grad = torch.full((3,), rank + 1.0)
    if rank == 0:
        idle.grad = torch.ones(2)
    sum_gradients([used, idle])
    here.wait()
    facts = [here.rank, here.world, here.find_first(SIZES[rank])]
    facts += [here.any(rank == 1), here.any(False)]
    return [*facts, norm.running_mean.tolist(), used.grad.tolist(), idle.grad.tolist()]


def work(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=len(SIZES)
    )
    torch.set_num_threads(1)
    found = {gradients: losses_and_gradients(rank, gradients) for gradients in ("mean", "sum")}
    torch.save(found | {"shared": gather_facts(rank)}, os.path.join(folder, f"{rank}.pt"))
    dist.destroy_process_group()


def losses_and_gradients(rank: int, gradients: str) -> dict:
    """By the name of a loss: its value, and the gradients of all parameters."""
    model, inputs, labels = model_and_batch()
    whole = torch.nn.parallel.DistributedDataParallel(model) if gradients == "mean" else model
    part = slice(sum(SIZES[:rank]), sum(SIZES[: rank + 1]))
    found = {}
    for name, loss in LOSSES.items():
        model.zero_grad()
        value = loss(*losses.gather(whole(inputs[part]), labels[part], gradients=gradients))
        value.backward()
        if gradients == "sum":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        found[name] = (value.detach(), [p.grad.clone() for p in model.parameters()])
    return found


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each process found; starting the two takes longer than all they do."""
    folder = tmp_path_factory.mktemp("gather")
    mp.spawn(work, (str(folder),), nprocs=len(SIZES))
    return [torch.load(folder / f"{rank}.pt") for rank in range(len(SIZES))]


def test_processes_tell_each_other_what_the_trainer_needs(reports):
    for rank, report in enumerate(reports):
        told = [rank, 2, sum(SIZES[:rank]), True, False, [0.5] * 2, [3.0] * 3, [1.0] * 2]
        assert report["shared"] == told


@pytest.mark.parametrize("gradients", ["mean", "sum"])
def test_many_processes_equal_one(reports, gradients):
    for report in reports:
        for name, loss in LOSSES.items():
            model, inputs, labels = model_and_batch()
            value = loss(model(inputs), labels)
            value.backward()
            got, gradient = report[gradients][name]
            torch.testing.assert_close(got, value.detach(), rtol=1e-12, atol=0)
            for ours, parameter in zip(gradient, model.parameters(), strict=True):
                torch.testing.assert_close(ours, parameter.grad, rtol=1e-6, atol=1e-12)


def test_without_processes_nothing_happens():
    x, y = torch.randn(3, 2), torch.arange(3)
    assert losses.gather(x, y)[0] is x
