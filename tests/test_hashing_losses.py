"""The hashing losses: METHODS' formulas in slow loops, gradients, and what every loss must keep."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits import losses
from rankbits.losses import discrete, proxies, triplets

KINDS = ("classes", "multi-hot")
BITS = 12


def batch(kind="classes", rows=11, dtype=torch.float64, seed=0):
    """Outputs and labels: 4 classes, or label sets of which some are empty and some large."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, BITS, generator=draw, dtype=dtype)
    if kind == "classes":
        return z, torch.randint(0, 4, (rows,), generator=draw)
    return z, (torch.rand(rows, 4, generator=draw) < 0.35).long()


# ---- the definitions, one number at a time -------------------------------------------------------


def share(a, b):
    return bool(a == b) if np.ndim(a) == 0 else any(x and y for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return sum(a * b) / math.sqrt(sum(a * a)) / math.sqrt(sum(b * b))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sign(x):
    return 1.0 if x > 0 else -1.0


def log_cosh(x):
    return math.log(math.cosh(x))


def l2(z):
    return np.mean([sum((x - sign(x)) ** 2 for x in row) for row in z])


def cauchy(z, gamma):
    distance = [BITS * (1 - cosine(np.abs(row), np.ones(BITS))) / 2 for row in z]
    return np.mean([math.log(1 + d / gamma) for d in distance])


def cosh(z, variant):
    if variant == "h2q":
        return np.mean([sum(log_cosh(abs(x)) - 1 for x in row) for row in z])
    return np.mean([sum(log_cosh(abs(x) - 1) for x in row) for row in z])


def cel(a, b, s, variant, delta):
    return 1 - cosine(a, b) if s else max(0, cosine(a, b) - delta)


def dpsh(a, b, s, variant):
    theta = dot(a, b) / 2 if variant == "original" else dot(a, b)
    return math.log(1 + math.exp(theta)) - s * theta


def dhn(a, b, s, variant):
    return math.log(1 + math.exp(dot(a, b))) - s * dot(a, b)


def dch(a, b, s, variant, gamma):
    part = min(max((1 - cosine(a, b)) / 2, 1e-5), 1 - 1e-5)
    d = BITS * part
    return s * math.log(d / gamma) + math.log(1 + gamma / d)


def hashnet(a, b, s, variant, beta):
    theta = 10 / BITS * dot(np.tanh(beta * a), np.tanh(beta * b))
    return math.log(1 + math.exp(theta)) - s * theta


def wglhh(a, b, s, variant):
    c = cosine(a, b)
    q = math.exp(-0.1 * (BITS * (1 - c) / 2) ** 2)
    weight = math.exp(abs((c + 1) / 2 - s))
    if not s:
        return weight * (q * math.log(2) if variant == "original" else q)
    value = q * math.log(q) - (1 + q) * math.log(1 + q)
    return weight * (value + (1 + q) * math.log(2) if variant == "original" else value)


def slow(z, labels, each, variant="original", penalty=0.0, quantization=None, p=None, **options):
    """The mean over pairs of each, weighted where p is 'batch' or a number."""
    z = np.tanh(z) if penalty else z
    values = []
    for i, j in itertools.product(range(len(z)), repeat=2):
        if i != j or variant == "h2q":
            s = share(labels[i], labels[j])
            values.append((s, each(z[i], z[j], s, variant, **options)))
    if p == "batch":
        p = sum(s for s, _ in values) / len(values)
    weight = dict.fromkeys((True, False), 1.0) if p is None else {True: 1 / p, False: 1 / (1 - p)}
    total = sum(weight[s] * value for s, value in values) / len(values)
    return total + (penalty * quantization(z) if penalty else 0)


def golden(loss, z, labels, wanted):
    got = loss(z, labels)
    assert got.shape == () and got.dtype == torch.float64
    assert float(got.detach()) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["original", "h2q"])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
class TestDefinitions:
    def test_cel(self, kind, variant, penalty):
        z, labels = batch(kind)
        options = {"penalty": penalty, "variant": variant}
        wanted = slow(z.numpy(), labels.numpy(), cel, delta=-1 / 3, quantization=l2, **options)
        golden(losses.CEL(BITS, 3, **options), z, labels, wanted)
        wanted = slow(z.numpy(), labels.numpy(), cel, delta=0.2, quantization=l2, **options)
        golden(losses.CEL(delta=0.2, **options), z, labels, wanted)

    def test_dpsh(self, kind, variant, penalty):
        z, labels = batch(kind)
        options = {"penalty": penalty, "variant": variant}
        wanted = slow(z.numpy(), labels.numpy(), dpsh, quantization=l2, **options)
        golden(losses.DPSH(**options), z, labels, wanted)

    def test_dhn(self, kind, variant, penalty):
        z, labels = batch(kind)
        options = {"penalty": penalty, "variant": variant}
        wanted = slow(
            z.numpy(), labels.numpy(), dhn, quantization=lambda z: cosh(z, variant), **options
        )
        golden(losses.DHN(**options), z, labels, wanted)

    @pytest.mark.parametrize("p", [None, 0.15])
    def test_dch(self, kind, variant, penalty, p):
        z, labels = batch(kind)
        z[1] = z[0]
        options = {"penalty": penalty, "variant": variant}
        for gamma in (10.0, 3.0):
            wanted = slow(
                z.numpy(), labels.numpy(), dch, p=p or "batch", gamma=gamma,
                quantization=lambda z, gamma=gamma: cauchy(z, gamma), **options,
            )  # fmt: skip
            golden(losses.DCH(gamma, similar_share=p, **options), z, labels, wanted)

    @pytest.mark.parametrize("p", [None, 0.15])
    def test_wglhh(self, kind, variant, penalty, p):
        z, labels = batch(kind)
        options = {"penalty": penalty, "variant": variant}
        wanted = slow(z.numpy(), labels.numpy(), wglhh, p=p or "batch", quantization=l2, **options)
        golden(losses.WGLHH(similar_share=p, **options), z, labels, wanted)

    def test_hyp2(self, kind, variant, penalty):
        z, labels = batch(kind, rows=24)
        loss = losses.HyP2(BITS, 4, beta=0.75, delta=0.1, penalty=penalty, variant=variant).double()
        given = z.numpy()
        given = np.tanh(given) if penalty else given
        p = loss.proxies.detach().numpy()
        p = np.tanh(p) if variant == "h2q" else p
        sets = [set(np.flatnonzero(y)) if np.ndim(y) else {int(y)} for y in labels.numpy()]
        own, others, apart = [], [], []
        for i, j in itertools.product(range(24), range(4)):
            c = cosine(given[i], p[j])
            own += [-c] if j in sets[i] else []
            others += [] if j in sets[i] else [max(0, c - 0.1)]
        for i, j in itertools.permutations(range(24), 2):
            several = len(sets[i]) > 1 and len(sets[j]) > 1
            if not sets[i] & sets[j] and (several or variant == "h2q"):
                apart.append(max(0, cosine(given[i], given[j]) - 0.1))
        assert bool(apart) == (kind == "multi-hot" or variant == "h2q")
        wanted = np.mean(own) + np.mean(others) + 0.75 * (np.mean(apart) if apart else 0)
        golden(loss, z, labels, wanted + penalty * l2(given))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["original", "h2q"])
@pytest.mark.parametrize("p", [None, 0.15])
def test_hashnet(kind, variant, p):
    z, labels = batch(kind)
    loss = losses.HashNet(p, variant)
    for step, beta in {0: 1, 199: 1, 200: math.sqrt(2), 401: math.sqrt(3), 3000: 4}.items():
        loss.step.fill_(step)
        wanted = slow(
            z.numpy(), labels.numpy(), hashnet, variant=variant, p=p or "batch", beta=beta
        )
        golden(loss, z, labels, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("least", [None, 0.5])
def test_dtsh(kind, penalty, least, monkeypatch):
    z, labels = batch(kind)
    u, y = (np.tanh(z.numpy()) if penalty else z.numpy()), labels.numpy()
    values = []
    for i, j, k in itertools.permutations(range(len(u)), 3):
        if share(y[i], y[j]) and not share(y[i], y[k]):
            gap = (dot(u[i], u[j]) - dot(u[i], u[k])) / 2 - (BITS / 2 if least is None else least)
            values.append(math.log(1 + math.exp(-gap)))
    wanted = np.mean(values) + penalty * l2(u)
    golden(losses.DTSH(least, penalty=penalty), z, labels, wanted)
    monkeypatch.setattr(triplets, "TRIPLETS", 300)
    golden(losses.DTSH(least, penalty=penalty), z, labels, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bins", [None, 5])
def test_mihash(kind, bins):
    z, labels = batch(kind, rows=14)
    u, y, n = np.tanh(0.7 * z.numpy()), labels.numpy(), bins or BITS
    found = []
    for i in range(14):
        table = np.zeros((2, n + 1))
        for j in range(14):
            if i != j:
                distance = (BITS - dot(u[i], u[j])) / 2
                for b in range(n + 1):
                    away = abs(distance - b * BITS / n) / (BITS / n)
                    table[int(share(y[i], y[j])), b] += max(0, 1 - away)
        if (table.sum(1) > 0).all():
            table /= 13
            expected = np.outer(table.sum(1), table.sum(0))
            cells = table > 0
            found.append((table[cells] * np.log(table[cells] / expected[cells])).sum())
    assert len(found) > 5
    golden(losses.MIHash(alpha=0.7, bins=bins), z, labels, -np.mean(found))


@pytest.mark.parametrize("kind", KINDS)
def test_adsh(kind):
    z, labels = batch(kind, rows=30)
    loss = losses.ADSH(labels, BITS, gamma=7)
    y, v, u = labels.numpy(), loss.signs.numpy().astype(float), np.tanh(z.numpy())
    similar = np.array([[share(a, b) for b in y] for a in y])
    r = similar.sum() / (~similar).sum()
    rows = torch.tensor([3, 29, 8, 0])
    total = 0.0
    for i in rows.tolist():
        total += 7 * sum((v[i] - u[i]) ** 2)
        for j in range(30):
            total += (dot(u[i], v[j]) - BITS * ((1 + r) * similar[i, j] - r)) ** 2
    golden(lambda z, y: loss(z[rows], y[rows], rows), z, labels, total / (4 * 30))


def test_penalties():
    z = torch.randn(9, BITS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z[0, 0] = 0
    x = z.numpy()
    close = {"rel": 1e-12, "abs": 1e-12}
    assert float(losses.quantization_l2(z)) == pytest.approx(l2(x), **close)
    wanted = np.mean([sum(abs(a - sign(a)) for a in row) for row in x])
    assert float(losses.quantization_l1(z)) == pytest.approx(wanted, **close)
    for variant in ("original", "h2q"):
        assert float(losses.quantization_cosh(z, variant)) == pytest.approx(
            cosh(x, variant), **close
        )
    assert float(losses.quantization_cauchy(z, 3)) == pytest.approx(cauchy(x, 3), **close)
    draw = torch.Generator().manual_seed(5)
    coins = 2 * torch.randint(0, 2, (9, BITS), generator=torch.Generator().manual_seed(5)) - 1
    wanted = np.mean((np.sort(x, axis=0) - np.sort(coins.numpy(), axis=0)) ** 2)
    assert float(losses.hswd(z, draw)) == pytest.approx(wanted, **close)


# ---- what was found wrong elsewhere --------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_variants_differ(kind):
    """Beyond self pairs: the H2Q code's formulas are other formulas."""
    z, labels = batch(kind)
    for make in (losses.DPSH, losses.WGLHH, lambda **o: losses.DHN(penalty=1.0, **o)):
        one, two = make(variant="original")(z, labels), make(variant="h2q")(z, labels)
        assert abs(one - two) > 0.05
    torch.manual_seed(0)
    one, two = losses.HyP2(BITS, 4), losses.HyP2(BITS, 4, variant="h2q")
    two.load_state_dict(one.state_dict())
    assert abs(one(z, labels) - two(z, labels)) > 1e-4


def test_the_h2q_penalty_of_dhn_pulls_to_zero():
    z = torch.full((1, BITS), 0.5, requires_grad=True)
    (right,) = torch.autograd.grad(losses.quantization_cosh(z), z)
    (wrong,) = torch.autograd.grad(losses.quantization_cosh(z, "h2q"), z)
    assert (right < 0).all() and (wrong > 0).all()


def test_penalties_lead_zero_to_its_bit():
    z = torch.zeros(1, 3, requires_grad=True)
    for penalty in (losses.quantization_l2, losses.quantization_l1, losses.quantization_cosh):
        (gradient,) = torch.autograd.grad(penalty(z), z)
        step = -0.1 * gradient
        assert (step < 0).all() and not rb.pack(torch.zeros(1, 3)).packed.any()
        assert penalty(step) < penalty(z)


def test_mutual_information_rises_as_classes_separate():
    """A public port minimises it: ours falls when classes part, and training parts them."""
    labels = torch.arange(24) % 3
    centres = torch.tensor([[1.0, 1, 1, 1], [-1, -1, 1, 1], [1, -1, -1, -1]])
    noise = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    values = [float(losses.MIHash()(s * centres[labels] + noise, labels)) for s in (0, 1, 2, 4)]
    assert values == sorted(values, reverse=True) and values[-1] < 3 * values[0]
    z = noise.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], 0.1)
    for _ in range(60):
        optimiser.zero_grad()
        losses.MIHash()(z, labels).backward()
        optimiser.step()
    codes = rb.pack(z.detach())
    before = rb.evaluate(rb.pack(noise), rb.pack(noise), labels, labels, exclude_self=True)
    after = rb.evaluate(codes, codes, labels, labels, exclude_self=True)
    assert after["mAP"] > before["mAP"] + 0.2


def test_perfect_codes_reach_the_entropy_of_the_indicator():
    labels = torch.arange(20) % 2
    z = 40.0 * (2 * labels[:, None] - 1) * torch.ones(1, 5)
    p = 9 / 19
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert float(losses.MIHash()(z, labels)) == pytest.approx(-entropy, rel=1e-6)


# ---- state ---------------------------------------------------------------------------------------


def test_hashnet_continues():
    z, labels = batch()
    loss = losses.HashNet()
    first = loss(z, labels)
    assert int(loss.step) == 1
    loss.eval()
    loss(z, labels)
    assert int(loss.step) == 1
    loss.train()
    for _ in range(199):
        loss(z, labels)
    assert int(loss.step) == 200 and float(loss.beta) == pytest.approx(math.sqrt(2))
    assert loss(z, labels) != first
    other = losses.HashNet()
    other.load_state_dict(loss.state_dict())
    assert int(other.step) == 201 and other(z, labels) == loss.eval()(z, labels)


def test_hswd_tosses_the_same_coins_again():
    z, _ = batch()
    one, two = losses.HSWD(seed=3), losses.HSWD(seed=3)
    values = [float(one(z)) for _ in range(4)]
    assert len(set(values)) == 4
    assert [float(two(z)) for _ in range(2)] == values[:2]
    again = losses.HSWD(seed=3)
    again.load_state_dict(two.state_dict())
    assert float(again(z)) == values[2]
    assert float(losses.HSWD(seed=4)(z)) not in values
    assert float(losses.HSWD(weight=1, seed=3)(z)) == pytest.approx(10 * values[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cells", [2**25, 50])
def test_no_bit_of_adsh_raises_the_objective(kind, cells, monkeypatch):
    monkeypatch.setattr(discrete, "CELLS", cells)
    z, labels = batch(kind, rows=40)
    loss = losses.ADSH(labels, BITS, seed=1)
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:17]
    values = [float(loss(z[rows], labels[rows], rows))]
    for _ in range(2):
        for bit in range(BITS):
            before = loss.signs.clone()
            loss.update_codes(z[rows], rows, bits=[bit])
            values.append(float(loss(z[rows], labels[rows], rows)))
            changed = (before != loss.signs).any(dim=0).nonzero().flatten().tolist()
            assert changed in ([], [bit])
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values))
    assert values[-1] < 0.9 * values[0]
    whole = losses.ADSH(labels, BITS, seed=1)
    for _ in range(2):
        whole.update_codes(z[rows], rows)
    assert torch.equal(whole.signs, loss.signs)


def test_a_bit_of_adsh_is_the_best_one():
    """Every code against both values of the bit, the rest held."""
    z, labels = batch(rows=12)
    loss, rows = losses.ADSH(labels, BITS), torch.arange(5)
    loss.update_codes(z[rows], rows, bits=[4])
    best = loss(z[rows], labels[rows], rows)
    for row in range(12):
        loss.signs[row, 4] *= -1
        assert loss(z[rows], labels[rows], rows) > best
        loss.signs[row, 4] *= -1


def test_adsh_learns_codes():
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    inputs = torch.nn.functional.one_hot(labels, 3) + 0.3 * torch.randn(60, 3)
    model = torch.nn.Linear(3, 16)
    loss, optimiser = losses.ADSH(labels, 16), torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(10):
        sample = torch.randperm(60)[:30]
        for rows in sample.split(10):
            optimiser.zero_grad()
            loss(model(inputs[rows]), labels[rows], rows).backward()
            optimiser.step()
        loss.update_codes(model(inputs[sample]), sample)
    codes = rb.pack(loss.signs)
    assert rb.evaluate(codes, codes, labels, labels, exclude_self=True)["mAP"] > 0.95


# ---- the margin ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "classes", "delta"),
    [
        (16, 2, -1), (16, 3, -0.25), (16, 4, -0.25), (16, 10, 0), (16, 16, 0), (16, 17, 0),
        (12, 21, 0.3333), (24, 5, -0.0833), (32, 80, 0.125), (48, 100, 0.0833), (48, 129, 0.0833),
        (64, 10, -0.03125), (64, 129, 0.09375), (64, 1000, 0.125), (64, 1024, 0.125),
        (128, 3, -0.3281), (128, 10, -0.0625), (128, 256, 0), (128, 257, 0.0625), (32, 200, 0.1875),
    ],
)  # fmt: skip
def test_margin(bits, classes, delta):
    assert losses.margin(bits, classes) == pytest.approx(delta, abs=5e-5)
    assert losses.CEL(bits, classes).delta == losses.HyP2(bits, classes).delta
    assert losses.CEL(bits, classes).delta == losses.margin(bits, classes)


def test_distances_are_possible():
    """No code beats the Griesmer bound, none with more words is farther apart."""
    for bits, distances in proxies.DISTANCES.items():
        assert len(distances) == 10 and list(distances) == sorted(distances, reverse=True)
        for k, d in enumerate(distances, start=1):
            assert sum(-(-d // 2**i) for i in range(k)) <= bits


# ---- the contract: every loss --------------------------------------------------------------------


def every_loss():
    """name -> the loss for these labels, called with outputs, labels and their rows."""
    for variant in ("original", "h2q"):
        for penalty in (0.0, 0.1):
            options = {"variant": variant, "penalty": penalty}
            word = f"{variant}-{penalty}"
            yield f"cel-{word}", lambda o=options: losses.CEL(BITS, 4, **o)
            yield f"dpsh-{word}", lambda o=options: losses.DPSH(**o)
            yield f"dhn-{word}", lambda o=options: losses.DHN(**o)
            yield f"dch-{word}", lambda o=options: losses.DCH(**o)
            yield f"wglhh-{word}", lambda o=options: losses.WGLHH(**o)
            yield f"hyp2-{word}", lambda o=options: losses.HyP2(BITS, 4, **o)
    yield "hashnet", losses.HashNet
    yield "hashnet-share", lambda: losses.HashNet(0.1, "h2q")
    yield "dch-share", lambda: losses.DCH(similar_share=0.1)
    yield "dtsh", losses.DTSH
    yield "dtsh-penalty", lambda: losses.DTSH(penalty=0.1)
    yield "mihash", losses.MIHash
    yield "hswd", lambda: losses.HSWD(seed=0)
    yield "adsh", None


LOSSES = dict(every_loss())
COSINES = [name for name in LOSSES if name.startswith(("cel", "dch", "wglhh", "hyp2"))]


@pytest.fixture(params=LOSSES)
def make(request):
    """labels -> loss(z, labels, rows), the same each time."""

    def make(labels):
        torch.manual_seed(0)
        if request.param == "adsh":
            return losses.ADSH(labels, BITS)
        loss = LOSSES[request.param]().eval()
        return lambda z, y, rows: loss(z, y)

    return make


def differentiate(loss, z, labels, rows=None):
    z = z.detach().clone().requires_grad_()
    value = loss(z, labels, torch.arange(len(z)) if rows is None else rows)
    (gradient,) = torch.autograd.grad(value, z)
    return value.detach(), gradient


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_equals_finite_differences(make, kind):
    z, labels = batch(kind, rows=7)
    loss, rows = make(labels), torch.arange(7)
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, labels, rows), (z,), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["original", "h2q"])
def test_gradient_at_the_proxies(kind, variant):
    z, labels = batch(kind, rows=7)
    loss = losses.HyP2(BITS, 4, variant=variant).double()

    def at(proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (z, labels))

    assert torch.autograd.gradcheck(at, (loss.proxies.detach().requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_scalar_in_float32(make, kind, dtype):
    z, labels = batch(kind, dtype=torch.float32)
    loss = make(labels)
    value, gradient = differentiate(loss, z.to(dtype), labels)
    wide, _ = differentiate(loss, z.to(dtype).float(), labels)
    assert value.shape == () and value.dtype == torch.float32 and torch.isfinite(value)
    assert gradient.dtype == dtype and torch.isfinite(gradient).all() and gradient.any()
    assert value == wide


def test_autocast_leaves_the_loss_alone(make):
    z, labels = batch("multi-hot", dtype=torch.float32)
    loss = make(labels)
    value, gradient = differentiate(loss, z, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, under = differentiate(loss, z, labels)
    assert cast.dtype == torch.float32 and cast == value
    torch.testing.assert_close(under, gradient, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_batch_does_not_matter(make, kind):
    z, labels = batch(kind)
    loss = make(labels)
    value, gradient = differentiate(loss, z, labels)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(1))
    other, permuted = differentiate(loss, z[order], labels[order], order)
    torch.testing.assert_close(other, value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(permuted, gradient[order], rtol=1e-10, atol=1e-12)


def hard_batches():
    z, labels = batch("classes", rows=4, dtype=torch.float32)
    yield "all similar", z, torch.zeros(4, dtype=torch.long)
    yield "none similar", z, torch.arange(4)
    yield "no labels", z, torch.zeros(4, 4, dtype=torch.long)
    yield "one row", z[:1], labels[:1]
    yield "identical rows", z[:1].repeat(4, 1), torch.tensor([0, 0, 1, 1])
    yield "opposite rows", torch.cat([z[:2], -z[:2]]), torch.tensor([0, 1, 0, 1])
    yield "zeros", torch.zeros(4, BITS), torch.tensor([0, 0, 1, 1])
    yield "a row of zeros", z * torch.tensor([[0.0], [1], [1], [1]]), torch.tensor([0, 0, 1, 1])
    yield "large", 1e6 * z, torch.tensor([0, 0, 1, 1])
    yield "large signs", 1e4 * z.sign(), torch.tensor([0, 0, 1, 1])
    yield "small", 1e-30 * z, torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(("z", "labels"), [pytest.param(*b[1:], id=b[0]) for b in hard_batches()])
def test_hard_batches_give_finite_numbers(make, z, labels):
    value, gradient = differentiate(make(labels), z, labels)
    assert value.dtype == torch.float32 and torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", COSINES)
def test_cosines_know_no_size(name):
    z, labels = batch(dtype=torch.float32)
    torch.manual_seed(0)
    loss = LOSSES[name]()
    if loss.penalty:
        assert torch.isfinite(loss(1e30 * z, labels))
    else:
        torch.testing.assert_close(loss(1e30 * z, labels), loss(z, labels))
        torch.testing.assert_close(loss(1e-15 * z, labels), loss(z, labels))


def test_an_empty_batch_is_zero():
    z, none = torch.zeros(0, BITS, requires_grad=True), torch.zeros(0, dtype=torch.long)
    for name in LOSSES:
        if name == "adsh":
            value = losses.ADSH(torch.arange(5), BITS)(z, none, none)
        else:
            value = LOSSES[name]()(z, none)
        assert value.dtype == torch.float32 and value.requires_grad and value == 0, name


@pytest.mark.parametrize("make", [losses.DCH, losses.WGLHH, losses.HashNet])
def test_a_missing_kind_of_pair_adds_nothing(make):
    """With p from the batch the two kinds are two means; one that is missing is 0."""
    z, _ = batch()
    labels = torch.tensor([0] * 5 + [1] * 6)
    loss = make().eval()
    similar = labels[:, None] == labels
    alike = loss(z, affinity=torch.ones_like(similar))
    apart = loss(z, affinity=torch.zeros_like(similar))
    assert torch.isfinite(alike) and torch.isfinite(apart) and alike != 0 and apart != 0
    assert loss(z, labels) == loss(z, affinity=similar)


@pytest.mark.parametrize("name", [n for n in LOSSES if not n.startswith(("hyp2", "hswd", "adsh"))])
def test_labels_may_be_an_affinity_matrix(name):
    for kind in KINDS:
        z, labels = batch(kind)
        loss = LOSSES[name]().eval()
        hot = labels if labels.ndim == 2 else torch.nn.functional.one_hot(labels)
        affinity = (hot @ hot.T).double()
        torch.testing.assert_close(loss(z, None, affinity=affinity), loss(z, labels))


def test_classes_and_their_one_hot_rows_are_the_same(make):
    z, labels = batch()
    hot = torch.nn.functional.one_hot(labels, 4)
    rows = torch.arange(len(z))
    for other in (hot, hot.bool(), hot.float()):
        torch.testing.assert_close(make(labels)(z, labels, rows), make(other)(z, other, rows))


@pytest.mark.parametrize("name", ["cel-original-0.0", "dpsh-original-0.0", "dch-original-0.0",
                                  "wglhh-original-0.0", "hashnet", "dtsh", "mihash",
                                  "hyp2-original-0.0", "dhn-original-0.1"])  # fmt: skip
def test_training_by_each_ranks_better(name):
    """Free embeddings of 3 classes, a few steps: tie-aware mAP of the signs rises."""
    torch.manual_seed(0)
    labels = torch.arange(30) % 3
    z = torch.randn(30, BITS, requires_grad=True)
    loss = LOSSES[name]()
    before = codes_map(z, labels)
    optimiser = torch.optim.Adam([z, *loss.parameters()], 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        loss(z, labels).backward()
        optimiser.step()
    assert codes_map(z, labels) > before + 0.3


def codes_map(z, labels):
    codes = rb.pack(z.detach())
    return rb.evaluate(codes, codes, labels, labels, exclude_self=True)["mAP"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_step_gets_the_same_loss():
    z, labels = batch(dtype=torch.float32)
    for loss in (losses.CEL(BITS, 4), losses.HyP2(BITS, 4), losses.DTSH()):
        wanted = loss(z.relu(), labels)
        got = torch.compile(lambda z, y, loss=loss: loss(z.relu(), y), backend="eager")(z, labels)
        torch.testing.assert_close(got, wanted)


# ---- other people's losses -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ContrastiveLoss", "TripletMarginLoss", "MultiSimilarityLoss"])
def test_losses_of_pytorch_metric_learning_keep_the_contract(name):
    """What a trainer relies on; they take classes only, and answer in the dtype they are given."""
    library = pytest.importorskip("pytorch_metric_learning.losses")
    loss = getattr(library, name)()
    z, labels = batch(dtype=torch.float32)
    value, gradient = differentiate(lambda z, y, _: loss(z, y), z, labels)
    assert value.shape == () and value.dtype == torch.float32 and torch.isfinite(value)
    assert torch.isfinite(gradient).all() and gradient.any()
    order = torch.randperm(len(z))
    torch.testing.assert_close(loss(z[order], labels[order]), value)
    for labels in (torch.zeros(11, dtype=torch.long), torch.arange(11)):
        value, gradient = differentiate(lambda z, y, _: loss(z, y), z, labels)
        assert value.shape == () and torch.isfinite(value) and torch.isfinite(gradient).all()


# ---- a function and its class --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "function", "settings"),
    [
        (losses.CEL(delta=0.2, penalty=0.1), losses.cel_loss, {"delta": 0.2, "penalty": 0.1}),
        (losses.DPSH(0.2, "h2q"), losses.dpsh_loss, {"penalty": 0.2, "variant": "h2q"}),
        (losses.DHN(penalty=0.3), losses.dhn_loss, {"penalty": 0.3}),
        (losses.DCH(3, similar_share=0.2), losses.dch_loss, {"gamma": 3, "similar_share": 0.2}),
        (losses.WGLHH(0.4), losses.wglhh_loss, {"alpha": 0.4}),
        (losses.HashNet(0.2), losses.hashnet_loss, {"similar_share": 0.2}),
        (losses.DTSH(0.5), losses.dtsh_loss, {"margin": 0.5}),
    ],
)
def test_a_class_calls_its_function(loss, function, settings):
    z, labels = batch("multi-hot")
    wanted = function(z, labels, **settings)
    assert loss(z, labels) == wanted and wanted != function(z, labels)
    shown = repr(loss)
    assert all(f"{name}={getattr(loss, name)!r}" in shown for name in settings)


def test_a_class_takes_the_settings_of_its_function_only():
    for call in (lambda: losses.DPSH(gamma=1), lambda: losses.DCH(1, 2), lambda: losses.DTSH(z=1)):
        with pytest.raises(TypeError):
            call()
    for call in (lambda z, y: losses.dch_loss(z, y, 0), lambda z, y: losses.cel_loss(z, y, "a")):
        with pytest.raises(rb.Refusal, match="must be"):
            call(*batch())


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda z, y: losses.margin(20, 10), "got 20 bits and 10 classes: give delta= instead."),
        (lambda z, y: losses.margin(16, 1025), "got 16 bits and 1,025 classes: give delta="),
        (lambda z, y: losses.margin(16, 1), "classes must be a whole number of at least 2; got 1"),
        (lambda z, y: losses.CEL(), "bits and classes must be given for the margin, or delta="),
        (lambda z, y: losses.HyP2(20, 10), "The margin is known for 12, 16, 24, 32, 48, 64, 128"),
        (lambda z, y: losses.CEL(delta="big"), "delta must be a finite number; got 'big'."),
        (lambda z, y: losses.DPSH(penalty=-1), "penalty must not be negative; got -1.0."),
        (lambda z, y: losses.DPSH(variant="H2Q"), "variant must be one of 'original', 'h2q'"),
        (lambda z, y: losses.quantization_cosh(z, "h2"), "(did you mean 'h2q'?)"),
        (lambda z, y: losses.quantization_cauchy(z, 0), "gamma must be above zero; got 0.0."),
        (lambda z, y: losses.DCH(gamma=0), "gamma must be above zero; got 0.0."),
        (lambda z, y: losses.DCH(similar_share=1), "similar_share must lie between 0 and 1; got 1"),
        (lambda z, y: losses.WGLHH(alpha=-1), "alpha must be above zero; got -1.0."),
        (lambda z, y: losses.DTSH(margin=math.nan), "margin must be a finite number; got nan."),
        (lambda z, y: losses.DPSH()(z, y[:3]), "labels must have one row for each of its embed"),
        (lambda z, y: losses.DPSH()(z), "labels must be given, or an affinity matrix"),
        (lambda z, y: losses.DPSH()(z[0], y), "embeddings must be a float tensor of shape"),
        (lambda z, y: losses.HyP2(BITS, 3)(z, y), "labels must be whole numbers from 0 to 2; some"),
        (lambda z, y: losses.HyP2(BITS, 4)(z, z > 0), "(6,) or (6, 4); got (6, 12)."),
        (lambda z, y: losses.HyP2(BITS, 4)(z[:, :3], y), "embeddings must have dim 12; got 3."),
        (lambda z, y: losses.HyP2(BITS, 4)(z, y[:3]), "labels must have one row for each of its"),
        (lambda z, y: losses.HSWD(seed=-1), "seed must be a whole number of at least 0; got -1."),
        (lambda z, y: losses.MIHash()(z, y, database=z), "database_labels must be given"),
        (lambda z, y: losses.ADSH(y, BITS)(z, y), "indices must be given: the training row of"),
        (lambda z, y: losses.ADSH(y, BITS)(z, y, y + 6), "row, 0 to 5, for each of 6 embeddings."),
        (lambda z, y: losses.ADSH(y[:0], BITS), "The training set must not be empty; got 0 rows."),
        (lambda z, y: losses.ADSH(None, BITS), "labels must be given: (n,) whole numbers or"),
        (lambda z, y: losses.ADSH(y, BITS).update_codes(z[:, :3], y), "outputs must have dim 12"),
    ],
)  # fmt: skip
def test_refusals(call, sentence):
    z, y = torch.randn(6, BITS), torch.arange(6) % 4
    with pytest.raises(rb.Refusal) as caught:
        call(z, y)
    assert sentence in str(caught.value)


def test_codes_of_adsh_follow_a_sample_once_in_several_epochs():
    z, labels = batch(rows=12)
    loss, asked = losses.ADSH(labels, BITS, sample=5, every=3), []

    def embed(rows):
        asked.append(len(rows))
        return z[rows], rows

    for seed in range(7):
        loss.after_epoch(embed, seed)
    assert asked == [5, 5]
    again = losses.ADSH(labels, BITS, sample=5, every=3)
    again.load_state_dict(loss.state_dict())
    again.after_epoch(embed, 7)
    again.after_epoch(embed, 8)  # the ninth epoch, two of them after the state was loaded
    assert asked == [5, 5, 5]
