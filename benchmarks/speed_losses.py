"""Speed and memory of the histogram losses, forward and backward, compared with peers.

    python benchmarks/speed_losses.py [--quick] [--save] [--device cpu|cuda] [--sizes 512 1024]

The yardstick is the *bare products* that any such loss and its gradient need, x @ x.T and (M x M)
@ x. Before anything is timed, the backend is checked against the definition, and then the values
and gradients of all peers.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from _bench import Bench, agree, compare, peak_cuda, peak_memory
from rankbits.losses import fastap_loss, mihash_loss, tie_aware_ap_loss, tie_aware_ndcg_loss

THREADS, SEED = 2, 0
BINS, DIM, BITS = 10, 512, 64
MOST = {"cpu": 3e9, "cuda": 70e9}  # bytes that a peer may need
PML, PULSES, SCATTER = "pytorch-metric-learning", "plain pulses", "plain scatter"
BARE, TALR_PULSES = "bare products", "plain pulses, simple"
BYTES_A_PAIR = {PML: 200, PULSES: 120, SCATTER: 70, TALR_PULSES: 560}  # that stay alive
Step = Callable[[], torch.Tensor]


def batch(m: int, dim: int, device: str, noise: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """x (m, dim), which requires its gradient, and labels of classes of 4 to 7 members."""
    rng, generator = np.random.default_rng(SEED), torch.Generator().manual_seed(SEED)
    classes = -(-m // 6)
    cuts = np.arange(1, classes) * m // classes + rng.integers(0, 2, classes - 1)
    labels = torch.from_numpy(np.searchsorted(cuts, np.arange(m), side="right"))
    centres = torch.randn(classes, dim, generator=generator)
    x = centres[labels] + noise * torch.randn(m, dim, generator=generator)
    return x.to(device).requires_grad_(), labels.to(device)


def masks(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(M, M) of 0 and 1: same class, and any class, an item with itself left out of both."""
    other = 1 - torch.eye(len(labels), device=labels.device)
    return (labels[:, None] == labels).float() * other, other


def pulses(t: torch.Tensor, labels: torch.Tensor, bins: int) -> list[torch.Tensor]:
    """Soft histograms (M, bins + 1) of neighbours and of all items: a pulse at each centre."""
    found, both = [], masks(labels)
    for centre in range(bins + 1):
        pulse = torch.relu(1 - (t - centre).abs())
        found.append(torch.stack([(pulse * mask).sum(dim=1) for mask in both]))
    return list(torch.stack(found, dim=2))


def scatter(t: torch.Tensor, labels: torch.Tensor, bins: int) -> list[torch.Tensor]:
    """The same, each item added to the two bins around it."""
    same, other = masks(labels)
    low = t.detach().floor().clamp(0, bins - 1)
    cell, weight = (low + same * (bins + 1)).long(), t - low
    counts = t.new_zeros(len(t), 2 * (bins + 1)).scatter_add(1, cell, (1 - weight) * other)
    counts = counts.scatter_add(1, cell + 1, weight * other).view(-1, 2, bins + 1)
    return [counts[:, 1], counts.sum(dim=1)]


def plain_fastap(x: torch.Tensor, labels: torch.Tensor, histogram: Callable) -> torch.Tensor:
    """FastAP as its Eq. 13-15 read: squared distances in [0, 4], histograms, Eq. 14."""
    unit = torch.nn.functional.normalize(x)
    squared = 2 - 2 * unit @ unit.T
    positive, every = histogram(squared.clamp(0, 4) * (BINS / 4), labels, BINS)
    precision = positive.cumsum(dim=1) / every.cumsum(dim=1).clamp(min=1e-12)
    return 1 - ((positive * precision).sum(dim=1) / positive.sum(dim=1)).mean()


def plain_talr(x: torch.Tensor, labels: torch.Tensor, metric: str) -> torch.Tensor:
    """TALR's simple forms, Eq. 62 and 66, over a pulse at each Hamming distance."""
    relaxed = torch.tanh(x)
    positive, every = pulses((BITS - relaxed @ relaxed.T) / 2, labels, BITS)
    count = positive.detach().sum(dim=1).round()
    a, p = every.cumsum(dim=1) - every, positive.cumsum(dim=1) - positive
    if metric == "ap":
        terms = positive * (2 * p + positive + 1) / (2 * a + every + 1)
        return 1 - (terms.sum(dim=1) / count).mean()
    places = torch.arange(1, len(x) + 1, device=x.device)
    ideal = (1 / torch.log2(1 + places)).cumsum(dim=0)[count.long() - 1]
    return 1 - ((positive / torch.log2(a + every / 2 + 1.5)).sum(dim=1) / ideal).mean()


def gradient(loss: Step, x: torch.Tensor) -> tuple[float, torch.Tensor]:
    value = loss()
    return value.item(), torch.autograd.grad(value, x)[0]


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


def check(losses: Mapping[str, Step], x: torch.Tensor) -> dict[str, float]:
    """Refuse other values than the first's; how far each gradient is from it. A pair within
    rounding of a bin's centre has two right slopes, so gradients are not as near as values."""
    if len(losses) < 2:
        return {}
    (first, wanted), *others = ((name, gradient(loss, x)) for name, loss in losses.items())
    for name, (value, _) in others:
        agree({first: wanted[0], name: value}, tolerance=1e-4)
    found = {name: apart(at, wanted[1]) for name, (_, at) in others}
    if any(not distance < 1e-2 for distance in found.values()):
        raise AssertionError(f"Gradients differ from that of {first}: {found}; nothing is timed.")
    return found


def race(
    bench: Bench, title: str, x: torch.Tensor, losses: dict[str, Step], checked: Any, **options: Any
) -> dict[str, float]:
    """Check, time and report losses with their backward passes; seconds by name. ``checked`` names
    the losses that must give the value of the first; those that need too much are left out."""
    need = {name: BYTES_A_PAIR.get(name, 0) * len(x) ** 2 for name in losses}
    for name in (n for n in losses if need[n] > MOST[x.device.type]):
        print(f"\n{name} skipped at M = {len(x):,}: it needs about {need[name] / 1e9:.1f} GB")
    losses = {n: loss for n, loss in losses.items() if need[n] <= MOST[x.device.type]}
    distances = check({n: loss for n, loss in losses.items() if n in checked}, x)
    runs = {n: lambda loss=loss: torch.autograd.grad(loss(), x) for n, loss in losses.items()}
    bare = x.detach()
    runs[BARE] = lambda: (bare @ bare.T) @ bare
    timings = compare(runs, cuda=x.is_cuda, work=len(x) ** 2, unit="pairs", **options)
    memory = {name: peak_cuda(run) / 1e6 for name, run in runs.items()} if x.is_cuda else None
    facts = {"m": len(x), "dim": x.shape[1], "precision": torch.get_float32_matmul_precision()}
    against = (next(iter(losses)), BARE)
    bench.report(title, timings, against, megabytes=memory, gradients_apart=distances, **facts)
    if x.is_cuda:
        torch.cuda.empty_cache()
    return {t.name: float(np.median(t.samples)) for t in timings}


def fastap_losses(x: torch.Tensor, labels: torch.Tensor, peer: Any) -> dict[str, Step]:
    losses = {
        "rankbits": partial(fastap_loss, x, labels, bins=BINS),
        PULSES: partial(plain_fastap, x, labels, pulses),
        SCATTER: partial(plain_fastap, x, labels, scatter),
    }
    if peer:  # its bins have one centre more, as ours
        losses[PML] = partial(peer.FastAPLoss(num_bins=BINS), x, labels)
    return losses


def fastap(bench: Bench, peer: Any, device: str, m: int, **options: Any) -> dict[str, float]:
    x, labels = batch(m, DIM, device)
    losses, precision = fastap_losses(x, labels, peer), torch.get_float32_matmul_precision()
    # products in TF32 round as each peer calls them, so only whole ones are compared
    checked = losses if precision == "highest" else ()
    title = f"FastAP, {device}, M = {m:,}, dim {DIM}, products in {precision} precision"
    return race(bench, title, x, losses, checked, **options)


def every_loss(m: int, device: str) -> dict[str, tuple[Step, torch.Tensor]]:
    """Each loss and form over a batch of m rows, with the rows that its gradient is taken at."""
    x, labels = batch(m, DIM, device)
    losses = {"FastAP": (partial(fastap_loss, x, labels, bins=BINS), x)}
    x, labels = batch(m, BITS, device, noise=1.0)
    for form, (name, loss) in product(
        ("simple", "relaxed", "exact"), (("AP", tie_aware_ap_loss), ("NDCG", tie_aware_ndcg_loss))
    ):
        losses[f"tie-aware {name}, {form}"] = (partial(loss, x, labels, form=form), x)
    losses["MIHash"] = (partial(mihash_loss, x, labels), x)
    return losses


def all_forms(bench: Bench, peer: Any, device: str, m: int, **options: Any) -> dict[str, float]:
    """Seconds of every loss and form, forward and backward, beside FastAP's peers."""
    losses = every_loss(m, device)
    x, labels = batch(m, DIM, device)
    if BYTES_A_PAIR[SCATTER] * m**2 <= MOST[device]:
        losses[f"FastAP, {SCATTER}"] = (partial(plain_fastap, x, labels, scatter), x)
    if peer and BYTES_A_PAIR[PML] * m**2 <= MOST[device]:
        losses[f"FastAP, {PML}"] = (partial(peer.FastAPLoss(num_bins=BINS), x, labels), x)
    runs = {
        name: lambda loss=loss, rows=rows: torch.autograd.grad(loss(), rows)
        for name, (loss, rows) in losses.items()
    }
    timings = compare(runs, cuda=device == "cuda", work=m**2, unit="pairs", **options)
    bench.report(f"every loss and form, {device}, M = {m:,}", timings, ("FastAP",), m=m)
    return {t.name: float(np.median(t.samples)) for t in timings}


def talr(bench: Bench, device: str, m: int, forms: tuple[str, ...], **options: Any) -> None:
    x, labels = batch(m, BITS, device, noise=1.0)
    for metric, ours in (("ap", tie_aware_ap_loss), ("ndcg", tie_aware_ndcg_loss)):
        losses = {f"rankbits, {form}": partial(ours, x, labels, form=form) for form in forms}
        losses[TALR_PULSES] = partial(plain_talr, x, labels, metric)
        title = f"tie-aware {metric}, {device}, M = {m:,}, {BITS} bits"
        race(bench, title, x, losses, ["rankbits, simple", TALR_PULSES], **options)


def _prepare(name: str, m: int) -> tuple[Step, torch.Tensor]:
    """The loss whose memory is measured, after a small one that loads and compiles all it needs."""
    torch.set_num_threads(THREADS)
    peer = importlib.import_module("pytorch_metric_learning.losses") if name == PML else None
    (x, labels), small = batch(m, DIM, "cpu"), batch(64, DIM, "cpu")
    gradient(fastap_losses(*small, peer)[name], small[0])
    return fastap_losses(x, labels, peer)[name], x


def _value(state: tuple[Step, torch.Tensor]) -> float:
    return gradient(*state)[0]


def spread(m: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """(m, dim) rows near few dimensions, so that their distances fall in all bins."""
    z, w, noise = (torch.randn(n, generator=generator) for n in ((m, 4), (4, dim), (m, dim)))
    return 0.5 * z @ w + 0.2 * noise


def clear_of_centres(loss: Callable, x: torch.Tensor, y: torch.Tensor, bins: int) -> bool:
    """Whether no pair is so near a bin's centre that rounding chooses its slope."""
    unit = torch.nn.functional.normalize
    rows, scale = (unit, 1) if loss is fastap_loss else (torch.tanh, x.shape[1])
    t = bins / 2 * (1 - (rows(x) @ rows(y).T).double() / scale)
    gap = (t - t.round()).abs()
    return bool((gap.fill_diagonal_(1) if x is y else gap).min() > bins * 2**-24)


def against_reference(loss: Callable, m: int, dim: int, grading: Any, device: str) -> list[float]:
    """How far loss and gradients are from the definition's, in the first draw clear of centres."""
    generator, bins = torch.Generator().manual_seed(SEED), BINS
    if loss is not fastap_loss:
        bins = min(dim, 40)  # more than one program of the GPU holds
    for _ in range(500):
        x = spread(m, dim, generator).to(device)
        y = spread(777, dim, generator).to(device) if grading == "database" else x
        if clear_of_centres(loss, x, y, bins):
            break
    else:
        raise AssertionError("No draw is clear of the centres.")
    options = {"labels": torch.randint(0, 5, (m,), generator=generator)}
    if grading == "sets":  # up to four shared labels: grades 0 to 4
        options["labels"] = torch.randint(0, 2, (m, 4), generator=generator)
    elif grading == "database":
        options["database_labels"] = torch.randint(0, 5, (777,), generator=generator)
        options["database"] = y
    elif grading != "classes":
        options = {"affinity": torch.randint(0, grading, (m, m), generator=generator) / 2}
    options = {name: value.to(device) for name, value in options.items()}
    found, leaves = [], [leaf.requires_grad_() for leaf in ((x,) if y is x else (x, y))]
    for forced in ({"RANKBITS_BACKEND": "reference"}, {}):
        with patch.dict(os.environ, forced):
            value = loss(x, bins=bins, **options)
            found.append([value, *torch.autograd.grad(value, leaves)])
    return [apart(b, a) for a, b in zip(*found, strict=True)]


def verify(bench: Bench, device: str) -> list[str]:
    """The backend against the definition; what failed, in sentences."""
    losses = (fastap_loss, tie_aware_ap_loss, tie_aware_ndcg_loss)
    sizes = (123, 1000) if device == "cuda" else (123,)
    gradings = ("classes", "sets", "database", 2, 3, 4, 5)  # a number: of an affinity's values
    apart_by, repeated, not_nan = {}, {}, []
    for loss, m, dim, grading in product(losses, sizes, (7, 512), gradings):
        name = f"{loss.__name__}, M = {m}, dim {dim}, {grading}"
        value, *slopes = against_reference(loss, m, dim, grading, device)
        apart_by |= {f"loss of {name}": value, f"gradient of {name}": max(slopes)}
    for loss in losses:
        x, labels = batch(1000, DIM, device)
        one, two = (gradient(partial(loss, x, labels), x) for _ in range(2))
        repeated[loss.__name__] = one[0] == two[0] and torch.equal(one[1], two[1])
        x, labels = batch(123, 7, device)
        bad = x.detach().index_fill(0, torch.tensor([5], device=device), torch.nan)
        for kind, label in (("with", labels[5].item()), ("without", 999)):
            labels[5] = label
            if not loss(bad, labels).isnan():
                not_nan.append(f"{loss.__name__} of a nan row {kind} neighbours")
    worst = sorted(apart_by, key=apart_by.get, reverse=True)
    bench.note(
        f"agreement of the {device} backend with the reference, relative", cases=len(worst),
        worst={name: apart_by[name] for name in worst[:3]}, bit_identical_when_repeated=repeated,
        nan_in_but_not_out=not_nan,
    )  # fmt: skip
    failed = [f"{name} is off by {e:.1e}." for name, e in apart_by.items() if not e < 1e-5]
    return failed + [f"{name} is not nan." for name in not_nan]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller batches, fewer repeats")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--sizes", type=int, nargs="+", help="M of FastAP's batches")
    parser.add_argument("--unverified", action="store_true", help="do not ask the definition")
    arguments = parser.parse_args()
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    cuda, quick = device == "cuda", arguments.quick
    small = [64, 128, 256, 512, 1024] + ([2048, 4096, 16384] if cuda else [])
    sizes = [2048, 4096, 8192, 16384, 32768, 131072] if cuda else [512, 1024, 2048, 4096]
    sizes = arguments.sizes or (sizes[:2] if quick else sizes)

    bench = Bench(f"speed_losses_{device}", threads=THREADS, seed=SEED)
    peer = bench.peer("pytorch_metric_learning.losses", PML)
    torch.set_float32_matmul_precision("highest")
    failed = [] if arguments.unverified else verify(bench, device)
    for m in small[:3] if quick else small:
        all_forms(bench, peer, device, m, repeats=5 if m <= 4096 else 1, seconds=0.1)
    few = 2 if quick else 3
    for precision in ("highest", "high") if cuda else ("highest",):
        torch.set_float32_matmul_precision(precision)
        growth, last = {}, {}
        for m in sizes:
            repeats = (1 if m > 16384 else 7) if cuda else (few if m > 2048 else 9)
            seconds = fastap(bench, peer, device, m, repeats=repeats)
            ratios = {n: round(s / last[n], 2) for n, s in seconds.items() if n in last}
            growth |= {f"to {m:,}": ratios} if last else {}
            last = seconds
            if arguments.save:
                bench.save()
        bench.note(f"times as long as at the size before, FastAP, {device}, {precision}", **growth)
    torch.set_float32_matmul_precision("highest")
    talr(bench, device, (8192 if cuda else 2048) // (4 if quick else 1), ("simple",), repeats=few)
    if not cuda:
        talr(bench, device, 1024 // (4 if quick else 1), ("simple", "exact"), repeats=few)
        for m in (512, 1024) if quick else (2048, 4096):
            names = ["rankbits", PML] if peer else ["rankbits"]
            held = {n: round(peak_memory(_prepare, _value, n, m)[0] / 1e6, 1) for n in names}
            bench.note(f"peak MB of FastAP and its gradient, cpu, M = {m:,}", m=m, megabytes=held)
    if arguments.save:
        bench.save()
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
