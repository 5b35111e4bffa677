"""The histogram losses on a GPU: values and gradients, CUDA graphs, ``torch.compile``."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from rankbits import losses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("triton") is None,
        reason="needs a CUDA device and triton",
    ),
]
LOSSES = {"fastap": losses.fastap_loss, "mihash": losses.mihash_loss}
for form in ("simple", "relaxed", "exact"):
    for metric in ("ap", "ndcg"):
        LOSSES[f"{metric}-{form}"] = lambda x, form=form, metric=metric, **options: getattr(
            losses, f"tie_aware_{metric}_loss"
        )(x, form=form, **options)


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def draw_batch(rows, dim, dtype, kind="classes"):
    draw = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, dim, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 4, (rows,), generator=draw)
    if kind == "sets":
        labels = torch.randint(0, 2, (rows, 4), generator=draw)
    return x.to("cuda", dtype), labels.cuda()


def find(loss, x, labels):
    leaf = x.detach().requires_grad_()
    value = loss(leaf, labels=labels)
    return [value.detach(), torch.autograd.grad(value, leaf)[0]]


@pytest.mark.parametrize("kind", ["classes", "sets"])
@pytest.mark.parametrize(("rows", "dim"), [(2, 16), (33, 7), (257, 48)])
@pytest.mark.parametrize("together", [0, 1 << 28])
def test_values_and_gradients_are_those_of_the_definition(
    loss, kind, rows, dim, together, monkeypatch
):
    from rankbits.kernels.cuda import histogram

    monkeypatch.setattr(histogram, "TOGETHER", together)
    x, labels = draw_batch(rows, dim, torch.float64, kind)
    one, two = (find(loss, x, labels) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    monkeypatch.setenv("RANKBITS_BACKEND", "reference")
    for a, b in zip(one, find(loss, x, labels), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


def test_rows_that_are_not_aligned_give_the_same(loss):
    x, labels = draw_batch(65, 7, torch.float32)
    for shifted in (torch.cat([x[:1], x])[1:], x.t().contiguous().t()):
        for a, b in zip(find(loss, x, labels), find(loss, shifted, labels), strict=True):
            torch.testing.assert_close(a, b)  # the products may come by another of cuBLAS's kernels


def test_a_step_replayed_from_a_graph_is_the_step(loss):
    x, labels = draw_batch(96, 32, torch.float32)
    fixed = x.clone().requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(loss(fixed, labels=labels), fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(fixed, labels=labels)
        (gradient,) = torch.autograd.grad(value, fixed)
    other = torch.randn_like(x)
    with torch.no_grad():
        fixed.copy_(other)
    graph.replay()
    wanted = find(loss, other, labels)
    assert torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_does_not_wait_for_the_gpu(loss):
    x, labels = draw_batch(96, 32, torch.float32)
    find(loss, x, labels)
    torch.cuda.set_sync_debug_mode("error")
    try:
        find(loss, x, labels)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at it
def test_a_compiled_network_gets_the_same_gradient(loss):
    x, labels = draw_batch(64, 32, torch.float32)
    layer = torch.nn.Linear(32, 16).cuda()

    def step(rows):
        return loss(layer(rows).relu(), labels=labels)

    outcomes = []
    for run in (step, torch.compile(step, backend="eager")):
        value = run(x)
        outcomes.append([value.detach(), torch.autograd.grad(value, layer.weight)[0]])
    for a, b in zip(*outcomes, strict=True):
        torch.testing.assert_close(a, b)
