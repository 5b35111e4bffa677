"""The histogram losses on a GPU: values and gradients, CUDA graphs, ``torch.compile``."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from rankbits import losses
from rankbits.kernels import replay

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


@pytest.fixture(autouse=True)
def forget_recordings(monkeypatch):
    monkeypatch.setattr(replay, "_recordings", {})


@pytest.fixture
def plainly(monkeypatch):
    """Find a loss and its gradient without a recording."""

    def find_plainly(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(replay, "_can_record", lambda *given: False)
            return find(*arguments)

    return find_plainly


def count_recordings():
    return sum(isinstance(seen, replay.Recording) for seen in replay._recordings.values())


@pytest.mark.parametrize(
    ("rows", "dim", "dtype"),
    [(2, 16, torch.float32), (33, 7, torch.float64), (256, 64, torch.float32)],
)
def test_a_recording_gives_the_same_digits(loss, rows, dim, dtype, plainly):
    for seed in range(replay.FIRST + 3):
        x, labels = draw_batch(rows, dim, dtype)
        x, labels = x + seed, labels.roll(seed)
        wanted = plainly(loss, x, labels)
        assert all(torch.equal(a, b) for a, b in zip(find(loss, x, labels), wanted, strict=True))
    assert count_recordings() == 1


def test_a_recording_serves_rows_that_lie_by_columns(loss, plainly):
    x, labels = draw_batch(65, 7, torch.float32)
    by_columns = x.t().contiguous().t()
    for _ in range(replay.FIRST + 2):
        for rows in (x, by_columns):
            wanted = plainly(loss, x, labels)
            for a, b in zip(find(loss, rows, labels), wanted, strict=True):
                torch.testing.assert_close(a, b)
    assert count_recordings() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_recording_serves_every_alpha(dtype, plainly):
    x, labels = draw_batch(64, 32, dtype)
    for step in range(12):
        alpha = 1.17**step

        def loss(x, labels, alpha=alpha):
            return 0.5 * losses.tie_aware_ap_loss(x, labels, alpha=alpha)

        for a, b in zip(find(loss, x, labels), plainly(loss, x, labels), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-6, atol=0)
    assert count_recordings() == 1


def test_earlier_outcomes_are_not_overwritten(loss, plainly):
    x, labels = draw_batch(64, 32, torch.float32)
    leaves = [(x * k).requires_grad_() for k in range(1, 9)]
    values = [loss(leaf, labels=labels) for leaf in leaves]
    gradients = [torch.autograd.grad(v, leaf)[0] for v, leaf in zip(values, leaves, strict=True)]
    assert count_recordings() == 1
    for leaf, *found in zip(leaves, values, gradients, strict=True):
        wanted = plainly(loss, leaf, labels)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_streams_have_recordings_of_their_own(plainly):
    batches = [draw_batch(512, 64, torch.float32) for _ in range(2)]
    batches[1] = (batches[1][0].flip(0).contiguous(), batches[1][1])
    streams, found = [torch.cuda.Stream() for _ in range(2)], [[], []]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, batch, kept in zip(streams, batches, found, strict=True):
            with torch.cuda.stream(stream):
                kept.append(find(losses.fastap_loss, *batch))
    torch.cuda.synchronize()
    assert count_recordings() == 2
    for batch, kept in zip(batches, found, strict=True):
        wanted = plainly(losses.fastap_loss, *batch)
        assert all(torch.equal(a, b) for one in kept for a, b in zip(one, wanted, strict=True))


def test_another_precision_of_products_has_a_recording_of_its_own(plainly):
    x, labels = draw_batch(256, 512, torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(replay.FIRST + 1):
                found = find(losses.fastap_loss, x, labels)
            wanted = plainly(losses.fastap_loss, x, labels)
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    finally:
        torch.set_float32_matmul_precision(before)
    assert count_recordings() == 2


def test_a_row_that_is_nan_makes_one_recorded_loss_nan(loss):
    x, labels = draw_batch(64, 32, torch.float32)
    wanted = [find(loss, x, labels) for _ in range(replay.FIRST + 1)][-1]
    bad = x.clone()
    bad[3] = torch.nan
    assert find(loss, bad, labels)[0].isnan()
    again = find(loss, x, labels)
    assert all(torch.equal(a, b) for a, b in zip(again, wanted, strict=True))


def test_a_step_is_recorded_by_its_user_after_ours(plainly):
    """Where the caller records a graph, no recording of ours is replayed inside it."""
    x, labels = draw_batch(96, 32, torch.float32)
    for _ in range(replay.FIRST + 2):
        find(losses.fastap_loss, x, labels)
    fixed = x.clone().requires_grad_()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        value = losses.fastap_loss(fixed, labels=labels)
        (gradient,) = torch.autograd.grad(value, fixed)
    with torch.no_grad():
        fixed.copy_(x.flip(0))
    graph.replay()
    wanted = plainly(losses.fastap_loss, x.flip(0).contiguous(), labels)
    assert torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])


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
