"""The ranking losses: definitions, gradients, backends, and what a trainer does to a loss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import losses

FORMS = ("simple", "relaxed", "exact")
KINDS = ("classes", "multi-hot", "affinity", "database", "self_rows")


def every_loss():
    yield "fastap", lambda x, *a, **k: losses.fastap_loss(x, *a, bins=5, **k)
    yield "mihash", lambda x, *a, **k: losses.mihash_loss(x, *a, bins=4, **k)
    for form in FORMS:
        yield (
            f"ap-{form}",
            lambda x, *a, form=form, **k: losses.tie_aware_ap_loss(x, *a, form=form, **k),
        )
        yield (
            f"ndcg-{form}",
            lambda x, *a, form=form, **k: losses.tie_aware_ndcg_loss(x, *a, form=form, bins=4, **k),
        )


LOSSES = dict(every_loss())


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def batch(kind, rows=14, dim=6, dtype=torch.float64, seed=0):
    """Inputs that require gradients, and the arguments that grade their pairs."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=draw, dtype=dtype).requires_grad_()
    classes = torch.randint(0, 4, (rows,), generator=draw)
    if kind == "classes":
        return (x,), {"labels": classes}
    if kind == "multi-hot":
        return (x,), {"labels": torch.rand(rows, 5, generator=draw) < 0.35}
    if kind == "affinity":
        values = torch.tensor([0, 0, 0, 1, 2, 5])
        return (x,), {"affinity": values[torch.randint(0, 6, (rows, rows), generator=draw)]}
    y = torch.randn(rows + 5, dim, generator=draw, dtype=dtype)
    theirs = torch.randint(0, 4, (rows + 5,), generator=draw)
    if kind == "self_rows":
        y[:rows] = x.detach()
        theirs[:rows] = classes
    extra = {"self_rows": torch.arange(rows)} if kind == "self_rows" else {}
    return (x, y.requires_grad_()), {"labels": classes, "database_labels": theirs, **extra}


def call_loss(loss, inputs, options):
    options = dict(options)
    labels = options.pop("labels", None)
    if len(inputs) == 2:
        options["database"] = inputs[1]
    return loss(inputs[0], labels, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_equals_finite_differences(loss, kind):
    inputs, options = batch(kind)
    assert torch.autograd.gradcheck(lambda *x: call_loss(loss, x, options), inputs, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_backends_agree(loss, kind, dtype, monkeypatch):
    found = []
    for name in ("reference", "cpu"):
        monkeypatch.setenv("RANKBITS_BACKEND", name)
        inputs, options = batch(kind, rows=123, dim=16, dtype=dtype)
        value = call_loss(loss, inputs, options)
        value.backward()
        found.append((value.detach(), [x.grad for x in inputs]))
    (one, ones), (two, twos) = found
    limit = 1e-5 if dtype == torch.float32 else 1e-12
    assert one.dtype == dtype and abs(one - two) <= limit * abs(one)
    for a, b in zip(ones, twos, strict=True):
        assert (a - b).norm() <= limit * a.norm()


def test_tiles_make_no_difference(loss, monkeypatch):
    from rankbits.kernels import histogram

    inputs, options = batch("database", rows=50)
    whole = call_loss(loss, inputs, options)
    whole.backward()
    before = [x.grad.clone() for x in inputs]
    monkeypatch.setattr(histogram, "CELLS", {"cpu": 1})
    monkeypatch.setattr(histogram, "LEAST_ROWS", 7)
    monkeypatch.setattr(histogram, "KEEP", 0)
    inputs, options = batch("database", rows=50)
    tiled = call_loss(loss, inputs, options)
    tiled.backward()
    torch.testing.assert_close(whole, tiled, rtol=1e-12, atol=0)
    for a, x in zip(before, inputs, strict=True):
        torch.testing.assert_close(a, x.grad, rtol=1e-10, atol=1e-14)


def test_the_gather_of_a_batch_with_itself_is_the_batch(loss):
    """A database that is the batch, with self_rows, equals the batch alone, gradient included."""
    (x,), options = batch("classes")
    alone = call_loss(loss, (x,), options)
    (gradient,) = torch.autograd.grad(alone, x)
    y = x.detach().clone().requires_grad_()
    both = call_loss(
        loss,
        (x, y),
        {**options, "database_labels": options["labels"], "self_rows": torch.arange(len(x))},
    )
    torch.testing.assert_close(alone, both)
    at_x, at_y = torch.autograd.grad(both, (x, y))
    torch.testing.assert_close(gradient, at_x + at_y)


def hard_codes(rng, rows=40, bits=7):
    signs = torch.from_numpy(np.where(rng.random((rows, bits)) < 0.5, -1.0, 1.0))
    return 100 * signs, rb.pack(signs)


@pytest.mark.parametrize("seed", range(5))
def test_exact_form_is_the_metric_on_hard_codes(seed):
    rng = np.random.default_rng(seed)
    floats, codes = hard_codes(rng)
    classes = rng.integers(0, 5, 40)
    ranking = rb.rank_codes(codes, codes, classes, classes, exclude_self=True)
    for name, metric in {"ap": rb.average_precision, "ndcg": rb.ndcg}.items():
        got = getattr(losses, f"tie_aware_{name}_loss")(floats, torch.from_numpy(classes), "exact")
        assert float(got) == pytest.approx(1 - np.nanmean(metric(ranking)), abs=1e-10)
    sets = rng.random((40, 6)) < 0.3
    ranking = rb.rank_codes(codes, codes, sets, sets, "count", exclude_self=True)
    got = losses.tie_aware_ndcg_loss(floats, torch.from_numpy(sets), "exact")
    assert float(got) == pytest.approx(1 - np.nanmean(rb.ndcg(ranking)), abs=1e-10)
    got = losses.tie_aware_ap_loss(floats, torch.from_numpy(sets), "exact")
    assert float(got) == pytest.approx(1 - np.nanmean(rb.average_precision(ranking)), abs=1e-10)


def test_exact_form_against_a_separate_database_and_affinities():
    rng = np.random.default_rng(0)
    (queries, query_codes), (items, item_codes) = hard_codes(rng, 20), hard_codes(rng, 60)
    affinity = np.array([0, 0, 1, 2, 5])[rng.integers(0, 5, (20, 60))]
    ranking = rb.rank_codes(query_codes, item_codes, relevance=affinity)
    got = losses.tie_aware_ndcg_loss(queries, None, "exact", affinity=affinity, database=items)
    assert float(got) == pytest.approx(1 - rb.ndcg(ranking).mean(), abs=1e-10)


def brute_histograms(places, relevant, bins):
    """Soft counts by Eq. 14-15, item by item: (relevant, all), each (bins + 1,)."""
    found = np.zeros((2, bins + 1))
    for t, hit in zip(places, relevant, strict=True):
        for level in range(bins + 1):
            weight = max(0.0, 1 - abs(t - level))
            found[1, level] += weight
            found[0, level] += weight * hit
    return found


def brute_quality(name, plus, every, hits):
    """FastAP Eq. 14; TALR Eq. 62, 11, 66 and 12, bin by bin, as printed."""
    from scipy.special import expi

    total = 0.0
    for d in range(len(every)):
        c, cp = every[d], plus[d]
        a, ap = every[:d].sum(), plus[:d].sum()
        if name == "fastap":
            total += cp * (ap + cp) / (a + c) / hits if a + c else 0.0
        elif name == "ap-simple":
            total += cp / hits * (2 * ap + cp + 1) / (2 * a + c + 1)
        elif name == "ap-relaxed":
            bracket = ap + 1 - (cp - 1) / (c - 1) * (a + 1)
            total += cp * (cp - 1) / (hits * (c - 1))
            total += cp / (hits * c) * bracket * np.log((a + c) / a)
        elif name == "ndcg-simple":
            total += cp / np.log2(a + c / 2 + 1.5)
        else:
            total += np.log(2) * cp / c * (expi(np.log(a + c + 1)) - expi(np.log(a + 1)))
    if name.startswith("ndcg"):
        total /= sum(1 / np.log2(t + 1) for t in range(1, int(hits) + 1))
    return total


@pytest.mark.parametrize("name", ["fastap", "ap-simple", "ndcg-simple"])
def test_equals_the_printed_formula(name):
    rng = np.random.default_rng(0)
    x, labels, bins = rng.normal(size=(15, 6)), rng.integers(0, 3, 15), 5
    if name == "fastap":
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        distance = ((unit[:, None] - unit[None]) ** 2).sum(-1) * bins / 4
    else:
        phi = np.tanh(0.7 * x)
        distance = (6 - phi @ phi.T) / 2 * bins / 6
    values = []
    for i in range(15):
        rest = np.arange(15) != i
        relevant = labels[rest] == labels[i]
        plus, every = brute_histograms(distance[i, rest], relevant, bins)
        values.append(brute_quality(name, plus, every, relevant.sum()))
    inputs = torch.from_numpy(x), torch.from_numpy(labels)
    if name == "fastap":
        got = losses.fastap_loss(*inputs, bins=bins)
    else:
        kind, form = name.split("-")
        got = getattr(losses, f"tie_aware_{kind}_loss")(*inputs, form=form, alpha=0.7, bins=bins)
    assert float(got) == pytest.approx(1 - np.mean(values), abs=1e-12)


@pytest.mark.parametrize("name", ["ap-relaxed", "ndcg-relaxed"])
def test_relaxed_form_is_eq_11_and_12_away_from_their_singularities(name):
    """Counts chosen so that nothing is guarded: a full first bin apart from the relevant ones."""
    from rankbits.kernels.reference import continuation, quality

    rng = np.random.default_rng(0)
    for _ in range(20):
        every = rng.uniform(2, 9, 6)
        plus = every * rng.uniform(0, 1, 6)
        plus[0] = 0.0
        c, cp = torch.from_numpy(every)[None], torch.from_numpy(plus)[None]
        if name == "ap-relaxed":
            got = quality.ap_terms(cp, c, "ap-relaxed")[0, 1:].sum() / plus.sum()
        else:
            got = (cp * continuation.integral_discount(c.cumsum(1) - c, c))[0, 1:].sum()
            got = got / sum(1 / np.log2(t + 1) for t in range(1, int(plus.sum()) + 1))
        wanted = _terms_after_first(name, plus, every)
        assert float(got) == pytest.approx(wanted, rel=1e-9)


def _terms_after_first(name, plus, every):
    from scipy.special import expi

    total, hits = 0.0, plus.sum()
    for d in range(1, len(every)):
        c, cp, a, ap = every[d], plus[d], every[:d].sum(), plus[:d].sum()
        if name == "ap-relaxed":
            bracket = ap + 1 - (cp - 1) / (c - 1) * (a + 1)
            total += cp * (cp - 1) / (hits * (c - 1))
            total += cp / (hits * c) * bracket * np.log((a + c) / a)
        else:
            total += np.log(2) * cp / c * (expi(np.log(a + c + 1)) - expi(np.log(a + 1)))
    if name == "ndcg-relaxed":
        total /= sum(1 / np.log2(t + 1) for t in range(1, int(hits) + 1))
    return total


def terms(form, cp, c):
    from rankbits.kernels.reference import quality

    return quality.ap_terms(cp, c, f"ap-{form}").sum(dim=1)


def test_exact_form_is_continuous_through_one_item_and_empty_bins():
    """Eq. 11 jumps from -104 to 111 around c = 1; the digamma form does not move."""
    step = torch.tensor([-1e-2, -1e-4, -1e-7, 0.0, 1e-7, 1e-4, 1e-2], dtype=torch.float64)
    for middle in (0.0, 1.0):
        c = torch.tensor([2.0, middle, 3.0], dtype=torch.float64).repeat(7, 1)
        c[:, 1] = (c[:, 1] + step).clamp(min=0)
        cp = 0.4 * c
        values = terms("exact", cp, c)
        assert (values - values[3]).abs().max() < 2e-2
        assert (values[2:5] - values[3]).abs().max() < 1e-6
    singular = torch.tensor([[2.0, 0.9999], [2.0, 1.0001]], dtype=torch.float64)
    paper = [_terms_after_first("ap-relaxed", 0.4 * row, row) for row in singular.numpy()]
    assert abs(paper[1] - paper[0]) > 100
    guarded = terms("relaxed", 0.4 * singular, singular)
    assert torch.isfinite(guarded).all() and (guarded[1] - guarded[0]).abs() < 0.1


@pytest.mark.parametrize("before", [0.0, 1e-9, 1e-3, 0.5, 1 - 1e-6, 1.0, 1 + 1e-6, 3.5])
@pytest.mark.parametrize("items", [1e-9, 9e-5, 1.1e-4, 0.4, 1.0, 7.0])
def test_relaxed_ndcg_near_the_singularity_of_eq_12(before, items):
    """Eq. 12 integrates 1/log2(1 + t), infinite at t = 0, where no place weighs more than 1."""
    from scipy.integrate import quad

    from rankbits.kernels.reference import continuation

    a, c = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (before, items))
    value = continuation.integral_discount(a, c)
    end = before + items
    below = max(0.0, min(1.0, end) - before)
    past, _ = quad(lambda t: 1 / np.log2(1 + t), max(1.0, before), max(1.0, end))
    assert float(value.detach()) == pytest.approx((below + past) / items, rel=1e-6)
    for slope in torch.autograd.grad(value, (a, c)):
        assert -0.8 < float(slope) <= 1e-6  # 1/log2(1 + t) falls by at most .73, past the first


@pytest.mark.parametrize("before", [0.0, 1e-9, 1e-3, 0.36, 0.5, 1 - 1e-6, 1.0, 1 + 1e-6, 3.5])
@pytest.mark.parametrize("items", [1e-9, 9e-5, 1.1e-4, 0.4, 1.0, 7.0])
def test_relaxed_ap_near_the_singularity_of_eq_11(before, items):
    """Eq. 11 integrates 1/t, infinite at t = 0, where no place weighs more than 1."""
    from scipy.integrate import quad

    from rankbits.kernels.reference import continuation

    a, c = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (before, items))
    value = continuation.integral_reciprocal(a, c)
    end = before + items
    below = max(0.0, min(1.0, end) - before)
    past, _ = quad(lambda t: 1 / t, max(1.0, before), max(1.0, end))
    assert float(value.detach()) == pytest.approx((below + past) / items, rel=1e-6)
    for slope in torch.autograd.grad(value, (a, c)):
        assert -1.001 < float(slope) <= 1e-6  # an item more in front never raises the weight


@pytest.mark.parametrize("form", ["relaxed", "exact"])
def test_a_perfect_ranking_has_an_ap_of_one_whatever_its_soft_counts(form):
    draw = torch.Generator().manual_seed(0)
    near = torch.tensor([1e-6, 0.3, 0.95, 1.0, 1.05, 1.4, 2.0, 6.0], dtype=torch.float64)
    counts = near[torch.randint(0, 8, (200, 6), generator=draw)]
    relevant = counts.clone()
    relevant[:, 4:] = 0  # all irrelevant items come last
    torch.testing.assert_close(terms(form, relevant, counts), relevant.sum(dim=1))


@pytest.mark.parametrize("form", FORMS)
def test_an_irrelevant_item_in_the_first_bin_never_raises_ap(form):
    for size in torch.linspace(0.01, 3, 60, dtype=torch.float64):
        every = torch.tensor([[float(size), 2.0]], dtype=torch.float64, requires_grad=True)
        half = torch.cat([every[:, :1].detach() / 2, torch.ones(1, 1, dtype=torch.float64)], dim=1)
        (slope,) = torch.autograd.grad(terms(form, half, every).sum(), every)
        assert float(slope[0, 0]) <= 1e-9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["ap", "ndcg"])
def test_backends_agree_where_bins_are_empty_or_next_to_it(form, name, monkeypatch):
    """Rows all but equal to codes: counts next to 0, 1 and 2, where the forms have their guards."""
    draw = torch.Generator().manual_seed(3)
    signs = torch.randn(24, 6, generator=draw, dtype=torch.float64).sign()
    scale = torch.tensor([1.5, 4, 9, 40], dtype=torch.float64)[torch.arange(24) % 4]
    labels = torch.randint(0, 3, (24,), generator=draw)
    outcomes = []
    for backend in ("reference", "cpu"):
        monkeypatch.setenv("RANKBITS_BACKEND", backend)
        x = (scale[:, None] * signs).requires_grad_()
        value = getattr(losses, f"tie_aware_{name}_loss")(x, labels, form)
        outcomes.append((value.detach(), *torch.autograd.grad(value, x)))
    for a, b in zip(*outcomes, strict=True):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_a_gradient_may_be_taken_twice_but_not_of_itself(loss):
    (x,), options = batch("classes")
    value = call_loss(loss, (x,), options)
    one, two = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        torch.autograd.grad(gradient.sum(), x)


def test_no_gradient_is_found_where_none_is_needed(loss, monkeypatch):
    from rankbits.kernels.cpu import histogram

    monkeypatch.setattr(histogram, "spread", None)  # would be called
    (x,), options = batch("classes")
    with torch.no_grad():
        call_loss(loss, (x,), options)
    call_loss(loss, (x.detach(),), options)
    with pytest.raises(TypeError):
        call_loss(loss, (x,), options)


@pytest.mark.parametrize(
    "name", ["mean_reciprocal", "tilt", "integral_discount", "spline_discount"]
)
def test_continuations_are_smooth_and_right(name):
    from rankbits.kernels.reference import continuation

    function = getattr(continuation, name)
    a = torch.tensor([0.5, 1.0, 2.5, 18.9, 19.1, 40.0], dtype=torch.float64)[:, None]
    near = [0.0099, 0.0101, 0.3, 0.9899, 0.9901, 1.0, 1.0099, 1.0101, 2.5, 60.0]
    c = torch.tensor(near, dtype=torch.float64)[None]
    a, c = (t.contiguous().requires_grad_() for t in torch.broadcast_tensors(a, c))
    assert torch.autograd.gradcheck(function, (a, c), eps=1e-6, atol=1e-5)


def test_harmonic_continuations_keep_their_digits():
    """Against 40-digit arithmetic, near their removable singularities and far down a ranking."""
    from mpmath import mp, mpf, psi

    from rankbits.kernels.reference import continuation

    mp.dps = 40
    for a, c in itertools.product(
        (0.0, 0.7, 18.99, 19.5, 3000.0, 1e6), (1e-3, 0.011, 0.99, 1.02, 9.5)
    ):
        mean = (psi(0, mpf(a) + mpf(c) + 1) - psi(0, mpf(a) + 1)) / mpf(c)
        tilt = (1 - (mpf(a) + 1) * mean) / (mpf(c) - 1)
        x, n = (torch.tensor([v], dtype=torch.float64) for v in (a, c))
        assert float(continuation.mean_reciprocal(x, n)) == pytest.approx(float(mean), rel=1e-11)
        assert float(continuation.tilt(x, n)) == pytest.approx(float(tilt), rel=1e-7)


def test_whole_places_have_their_true_discount():
    from rankbits.kernels.reference import continuation

    for before, count in itertools.product((0, 1, 5, 100), (1, 2, 7)):
        a, c = (torch.tensor([float(v)], dtype=torch.float64) for v in (before, count))
        places = range(before + 1, before + count + 1)
        wanted = np.mean([1 / np.log2(t + 1) for t in places])
        assert float(continuation.spline_discount(a, c)) == pytest.approx(wanted, abs=1e-14)
        wanted = np.mean([1 / t for t in places])
        assert float(continuation.mean_reciprocal(a, c)) == pytest.approx(wanted, abs=1e-12)
    first = torch.tensor([0.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    assert float(continuation.integral_discount(*first)) == pytest.approx(1, abs=1e-12)
    assert float(continuation.integral_reciprocal(*first)) == pytest.approx(1, abs=1e-12)


def test_fastap_is_that_of_pytorch_metric_learning():
    from pytorch_metric_learning.losses import FastAPLoss

    x, labels = torch.randn(64, 16), torch.randint(0, 6, (64,))
    ours = losses.fastap_loss(x, labels, bins=8)
    assert float(ours) == pytest.approx(float(FastAPLoss(num_bins=8)(x, labels)), abs=1e-5)


def test_scaling_the_loss_scales_the_gradient(loss):
    (x,), options = batch("classes")
    (one,) = torch.autograd.grad(call_loss(loss, (x,), options), x)
    (many,) = torch.autograd.grad(1024 * call_loss(loss, (x,), options), x)
    torch.testing.assert_close(many, 1024 * one)


def test_gradients_accumulate(loss):
    (x,), options = batch("classes")
    call_loss(loss, (x,), options).backward()
    once = x.grad.clone()
    call_loss(loss, (x,), options).backward()
    torch.testing.assert_close(x.grad, 2 * once)


def test_classes_of_one_member_leave_the_mean(loss):
    (x,), options = batch("classes")
    base = call_loss(loss, (x,), options)
    lonely = torch.cat([x.detach(), torch.full((2, 6), 50.0, dtype=x.dtype)])
    labels = torch.cat([options["labels"], torch.tensor([77, 88])])
    value = call_loss(loss, (lonely,), {"labels": labels})
    assert torch.isfinite(value) and value != base


def test_a_batch_without_neighbours_gives_zero_and_zero_gradient(loss):
    for labels in (torch.arange(5), torch.zeros(5, 3)):
        x = torch.randn(5, 6, requires_grad=True)
        value = call_loss(loss, (x,), {"labels": labels})
        value.backward()
        assert value == 0 and (x.grad == 0).all()


def test_an_empty_batch_gives_zero_and_an_empty_gradient(loss):
    x = torch.empty(0, 6, requires_grad=True)
    value = call_loss(loss, (x,), {"labels": torch.empty(0, dtype=torch.long)})
    value.backward()
    assert value == 0 and x.grad.shape == (0, 6)


@pytest.mark.parametrize("name", ["fastap", "ap-simple", "ap-exact", "ndcg-exact"])
def test_one_class_for_all_is_perfect(name):
    (x,), _ = batch("classes")
    value = call_loss(LOSSES[name], (x,), {"labels": torch.zeros(14)})
    assert float(value.detach()) == pytest.approx(0, abs=1e-12)


def test_identical_rows_have_a_finite_gradient(loss):
    x = torch.ones(6, 6, requires_grad=True)
    value = call_loss(loss, (x,), {"labels": torch.tensor([0, 0, 0, 1, 1, 1])})
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(x.grad).all()


def test_a_row_of_zeros_does_not_explode():
    x = torch.randn(8, 4)
    x[3] = 0
    x.requires_grad_()
    losses.fastap_loss(x, torch.arange(8) % 2).backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().max() < 100 and (x.grad[3] == 0).all()


def test_a_nan_makes_the_loss_nan_and_nothing_worse(loss):
    (x,), options = batch("classes")
    for bad in (torch.nan, torch.inf):
        y = x.detach().clone()
        y[2, 1] = bad
        value = call_loss(loss, (y.requires_grad_(),), options)
        if not torch.isfinite(y.tanh()).all() or loss is LOSSES["fastap"]:
            assert torch.isnan(value)
    lonely = torch.full((1, 6), torch.nan, dtype=x.dtype)
    labels = torch.cat([options["labels"], torch.tensor([99])])
    assert torch.isnan(call_loss(loss, (torch.cat([x.detach(), lonely]),), {"labels": labels}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened(loss, dtype):
    (x,), options = batch("classes")
    half = x.detach().to(dtype).requires_grad_()
    value = call_loss(loss, (half,), options)
    wide = call_loss(loss, (half.detach().float(),), options)
    assert value.dtype == torch.float32 and value.detach() == wide
    value.backward()
    assert half.grad.dtype == dtype and torch.isfinite(half.grad).all()


def test_autocast_leaves_the_loss_alone(loss):
    (x,), options = batch("classes", dtype=torch.float32)
    plain = call_loss(loss, (x,), options)
    (gradient,) = torch.autograd.grad(plain, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = call_loss(loss, (x,), options)
        (under,) = torch.autograd.grad(cast, x)
    assert cast.dtype == torch.float32
    torch.testing.assert_close(cast, plain, rtol=0, atol=0)
    torch.testing.assert_close(under, gradient, rtol=0, atol=0)


def test_a_gradient_scaler_gets_what_it_expects():
    model = torch.nn.Linear(6, 8)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, labels = torch.randn(16, 6), torch.arange(16) % 4
    losses.fastap_loss(model(x), labels).backward()
    plain = model.weight.grad.clone()
    optimiser.zero_grad()
    scaler.scale(losses.fastap_loss(model(x), labels)).backward()
    scaler.unscale_(optimiser)
    torch.testing.assert_close(model.weight.grad, plain)


def test_calls_are_deterministic(loss):
    found = set()
    for _ in range(5):
        inputs, options = batch("classes", rows=300, dim=16, dtype=torch.float32)
        value = call_loss(loss, inputs, options)
        value.backward()
        found.add((value.detach().numpy().tobytes(), inputs[0].grad.numpy().tobytes()))
    assert len(found) == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_model_gets_the_same_loss():
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 8)
    loss = losses.TieAwareAP()
    x, labels = torch.randn(16, 6), torch.arange(16) % 4

    def step(x):
        return loss(model(x).relu(), labels)

    wanted = step(x)
    wanted.backward()
    gradient = model.weight.grad.clone()
    model.weight.grad = None
    got = torch.compile(step, backend="eager")(x)
    got.backward()
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(model.weight.grad, gradient)


def test_modules_are_their_functions():
    (x,), options = batch("classes")
    labels = options["labels"]
    assert losses.FastAP(bins=7)(x, labels) == losses.fastap_loss(x, labels, 7)
    for form in FORMS:
        for name in ("AP", "NDCG"):
            module = getattr(losses, f"TieAware{name}")(form, alpha=0.5, bins=3)
            function = getattr(losses, f"tie_aware_{name.lower()}_loss")
            assert module(x, labels) == function(x, labels, form, 0.5, 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, y: losses.fastap_loss(x[0], y), "embeddings must be a float tensor of shape"),
        (lambda x, y: losses.fastap_loss(x.long(), y), "embeddings must be a float tensor of"),
        (lambda x, y: losses.fastap_loss([[1.0]], y), "float tensor of shape (n, dim); got list."),
        (lambda x, y: losses.fastap_loss(x, y, bins=0), "bins must be a whole number of at least"),
        (lambda x, y: losses.fastap_loss(x, y[:3]), "labels must have one row for each of its"),
        (lambda x, y: losses.fastap_loss(x), "labels must be given, or an affinity matrix"),
        (lambda x, y: losses.fastap_loss(x, y, database=x), "database_labels must be given"),
        (lambda x, y: losses.fastap_loss(x, y, database_labels=y), "without a database"),
        (
            lambda x, y: losses.fastap_loss(x, y, database=x[:, :2], database_labels=y),
            "dim 4; got 2.",
        ),
        (lambda x, y: losses.fastap_loss(x, y, affinity=torch.eye(6)), "either labels or an"),
        (lambda x, y: losses.fastap_loss(x, affinity=torch.eye(5)), "shape (6, 6); got (5, 5)."),
        (lambda x, y: losses.fastap_loss(x, y, self_rows=y), "self_rows belongs to a database"),
        (lambda x, y: losses.tie_aware_ap_loss(x, y, "exactly"), "(did you mean 'exact'?)"),
        (lambda x, y: losses.tie_aware_ap_loss(x, y, alpha=0), "alpha must be above zero; got 0"),
        (lambda x, y: losses.tie_aware_ap_loss(x, y, bins=5), "the number of bits, 4; got 5."),
        (lambda x, y: losses.tie_aware_ndcg_loss(x, affinity=-torch.eye(6)), "non-negative and"),
        (
            lambda x, y: losses.tie_aware_ndcg_loss(
                x.repeat(4, 1), affinity=torch.arange(576.0).view(24, 24)
            ),
            "few values, at most 128; got 576.",
        ),
        (lambda x, y: losses.gather(x, y, gradients="average"), "gradients must be one of"),
    ],
)
def test_refusals(call, sentence):
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    with pytest.raises(rb.Refusal) as caught:
        call(x, y)
    assert sentence in str(caught.value)


def test_a_graph_can_be_differentiated_twice(loss):
    (x,), options = batch("classes")
    value = call_loss(loss, (x,), options)
    (one,) = torch.autograd.grad(value, x, retain_graph=True)
    (two,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
