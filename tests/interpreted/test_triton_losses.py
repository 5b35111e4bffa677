"""The histogram losses in Triton: values and gradients are those of the definition."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from rankbits import losses
from rankbits.kernels import histogram
from rankbits.kernels.cuda import histogram as cuda

LOSSES = {"fastap": losses.fastap_loss, "mihash": losses.mihash_loss}
for form in ("simple", "relaxed", "exact"):
    LOSSES[f"ap-{form}"] = partial(losses.tie_aware_ap_loss, form=form)
    LOSSES[f"ndcg-{form}"] = partial(losses.tie_aware_ndcg_loss, form=form)
GRADINGS = ("classes", "sets", "affinity", "database", "self_rows")
PATHS = {"small": {}, "large": {"TOGETHER": 0, "FEW": 0, "SCATTERED": 0}}
WIDE = torch.float64


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """The kernels of a small batch, or those of a large one."""
    for name, value in PATHS[request.param].items():
        monkeypatch.setattr(cuda, name, value)


def draw(grading, rows, dim=7, dtype=WIDE, others=4):
    """Leaves (embeddings, and the database where there is one) and the arguments that grade."""
    seeded = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, dim, generator=seeded, dtype=WIDE).to(dtype)
    labels = torch.randint(0, 3, (rows,), generator=seeded)
    if grading == "classes":
        return [x], {"labels": labels}
    if grading == "sets":
        return [x], {"labels": torch.randint(0, 2, (rows, 4), generator=seeded)}
    if grading == "affinity":
        values = torch.tensor([0, 0, 0.5, 1, 3])
        return [x], {"affinity": values[torch.randint(0, 5, (rows, rows), generator=seeded)]}
    y = torch.cat([x, torch.randn(others, dim, generator=seeded, dtype=WIDE).to(dtype)])
    theirs = torch.cat([labels, torch.randint(0, 3, (others,), generator=seeded)])
    options = {"labels": labels, "database_labels": theirs}
    if grading == "self_rows":
        options["self_rows"] = torch.arange(rows).roll(1)
        options["self_rows"][2] = -1
    return [x, y], options


def find(loss, leaves, options):
    """The value of a loss, and its gradients."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    database = {"database": leaves[1]} if len(leaves) == 2 else {}
    value = loss(leaves[0], **options, **database)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


@pytest.fixture
def check(in_triton, monkeypatch):
    def compare(loss, leaves, options, rtol=1e-9, atol=1e-12):
        with in_triton():
            computed = find(loss, leaves, options)
        with monkeypatch.context() as patch:
            patch.setenv("RANKBITS_BACKEND", "reference")
            wanted = find(loss, leaves, options)
        for ours, theirs in zip(computed, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
        return computed

    return compare


@pytest.mark.parametrize("grading", GRADINGS)
@pytest.mark.usefixtures("path")
def test_every_grading(check, loss, grading):
    check(loss, *draw(grading, 6))


@pytest.mark.usefixtures("path")
def test_float32(check, loss):
    check(loss, *draw("classes", 16, dtype=torch.float32), rtol=1e-3, atol=1e-6)


@pytest.mark.usefixtures("path")
def test_many_bins_and_columns(check, loss):
    check(partial(loss, bins=40), *draw("database", 3, dim=41, others=70))


@pytest.mark.parametrize("bins", [1, 15, 16, 20, 100])
@pytest.mark.usefixtures("path")
def test_any_number_of_bins(check, bins):
    check(partial(losses.fastap_loss, bins=bins), *draw("classes", 5))


def test_columns_in_several_parts(check, monkeypatch):
    monkeypatch.setattr(cuda, "TOGETHER", 0)
    check(losses.tie_aware_ndcg_loss, *draw("database", 2, others=1100))


@pytest.mark.parametrize("scattered", [0, 1 << 19])
@pytest.mark.parametrize("few", [0, 1024])
@pytest.mark.parametrize("grading", GRADINGS)
def test_slopes_turned_or_not_averaged_or_not(check, grading, few, scattered, monkeypatch):
    monkeypatch.setattr(cuda, "FEW", few)
    monkeypatch.setattr(cuda, "SCATTERED", scattered)
    check(partial(losses.tie_aware_ndcg_loss, form="relaxed"), *draw(grading, 6))


@pytest.mark.parametrize("grading", ["classes", "database"])
def test_rows_that_lie_by_columns(check, loss, grading):
    leaves, options = draw(grading, 9, dtype=torch.float32)
    by_columns = [leaf.t().contiguous().t() for leaf in leaves]
    check(loss, by_columns, options, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("grading", GRADINGS)
@pytest.mark.usefixtures("path")
def test_a_batch_in_tiles(check, grading, monkeypatch):
    monkeypatch.setattr(histogram, "KEEP", 0)
    monkeypatch.setattr(histogram, "LEAST_ROWS", 4)
    monkeypatch.setattr(histogram, "CELLS", {"cpu": 1})
    check(losses.tie_aware_ndcg_loss, *draw(grading, 11))


@pytest.mark.usefixtures("path")
def test_no_neighbours_no_others_and_labels_of_other_types(check, loss):
    (x,), _ = draw("classes", 5)
    value, gradient = check(loss, [x], {"labels": torch.arange(5, dtype=torch.int32)})
    assert value == 0 and not gradient.any()
    check(loss, [x], {"labels": torch.zeros(5, dtype=torch.uint8)})
    check(loss, [x.round()], {"labels": torch.tensor([0, 0, 0, 0, 1], dtype=torch.int16)})


@pytest.mark.usefixtures("path")
def test_a_loss_without_its_gradient(loss, in_triton, monkeypatch):
    (x,), options = draw("classes", 9)
    with in_triton(), torch.no_grad():
        value = loss(x, **options)
    monkeypatch.setenv("RANKBITS_BACKEND", "reference")
    torch.testing.assert_close(value, loss(x, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.usefixtures("path")
def test_nan_stays_nan(check, loss):
    (x,), options = draw("classes", 6)
    x[2, 3] = float("nan")
    value, _ = check(loss, [x], options)
    assert value.isnan()
