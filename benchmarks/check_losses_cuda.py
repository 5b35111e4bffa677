"""Check the histogram losses on a GPU against their definition, run them in graphs, and time them.

    python benchmarks/check_losses_cuda.py [--sizes 64 256 1024] [--no-times] [--only fastap]

Each row is written at once, to ``losses_check.jsonl`` in the folder that RANKBITS_RESULTS names.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch

from _bench import Bench
from rankbits.kernels.cuda import histogram as kernels
from rankbits.losses import fastap_loss, mihash_loss, tie_aware_ap_loss, tie_aware_ndcg_loss
from speed_losses import SEED, all_forms, every_loss

LOSSES = {"fastap": partial(fastap_loss, bins=10), "mihash": mihash_loss}
for form in ("simple", "relaxed", "exact"):
    LOSSES[f"ap-{form}"] = partial(tie_aware_ap_loss, form=form)
    LOSSES[f"ndcg-{form}"] = partial(tie_aware_ndcg_loss, form=form)
GRADINGS = ("classes", "sets", "affinity", "database", "self_rows")


def draw(grading: str, m: int, dim: int, dtype: torch.dtype) -> tuple[list[torch.Tensor], dict]:
    """Leaves (embeddings, and the database where there is one) and the arguments that grade."""
    generator = torch.Generator().manual_seed(SEED)
    near = torch.randn(m, 4, generator=generator) @ torch.randn(4, dim, generator=generator)
    x = (0.5 * near + 0.2 * torch.randn(m, dim, generator=generator)).to("cuda", dtype)
    labels = torch.randint(0, 5, (m,), generator=generator).cuda()
    if grading == "sets":
        return [x], {"labels": torch.randint(0, 2, (m, 4), generator=generator).cuda()}
    if grading == "affinity":
        values = torch.tensor([0, 0, 0.5, 1, 3])
        return [x], {"affinity": values[torch.randint(0, 5, (m, m), generator=generator)].cuda()}
    if grading == "classes":
        return [x], {"labels": labels}
    y = torch.cat([x, torch.randn(77, dim, generator=generator).to("cuda", dtype)])
    theirs = torch.cat([labels, torch.randint(0, 5, (77,), generator=generator).cuda()])
    options = {"labels": labels, "database_labels": theirs}
    if grading == "self_rows":
        options["self_rows"] = torch.arange(m).cuda()
    return [x, y], options


def find(loss: Any, leaves: list[torch.Tensor], options: dict) -> list[torch.Tensor]:
    """The value of a loss, and its gradients."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    extra = {"database": leaves[1]} if len(leaves) == 2 else {}
    value = loss(leaves[0], **options, **extra)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def check(
    name: str, grading: str, m: int, dim: int, dtype: torch.dtype, together: int
) -> dict[str, Any]:
    """How far values and gradients are from the definition's, in float64, of the same rows."""
    leaves, options = draw(grading, m, dim, dtype)
    with patch.object(kernels, "TOGETHER", together):
        once, again = (find(LOSSES[name], leaves, options) for _ in range(2))
    with patch.dict(os.environ, {"RANKBITS_BACKEND": "reference"}):
        wide = dtype if dtype != torch.bfloat16 else torch.float32
        wanted = find(LOSSES[name], [leaf.to(wide) for leaf in leaves], options)
    apart = [
        ((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-9)).item()
        for a, b in zip(once, wanted, strict=True)
    ]
    same = all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    limits = {torch.float64: (1e-10, 1e-8), torch.float32: (2e-5, 1e-2)}
    at_value, at_gradient = limits.get(dtype, (2e-5, 2e-2))
    right = apart[0] < at_value and max(apart[1:]) < at_gradient and same
    return {
        "loss": name, "grading": grading, "m": m, "dim": dim, "dtype": str(dtype),
        "one_kernel": together > 0, "value_apart": apart[0], "gradient_apart": max(apart[1:]),
        "repeats_to_the_bit": same, "right": right,
    }  # fmt: skip


def list_cases() -> list[tuple]:
    one = 1 << 28
    cases = [(n, g, 123, 64, torch.float32, one) for n, g in product(LOSSES, GRADINGS)]
    cases += [(n, g, 33, 7, torch.float64, one) for n, g in product(LOSSES, ("classes", "sets"))]
    cases += [(n, "classes", 123, 64, torch.bfloat16, one) for n in LOSSES]
    cases += [(n, "classes", m, 64, torch.float32, one) for n, m in product(LOSSES, (2, 17, 1000))]
    cases += [(n, g, 123, 64, torch.float32, 0) for n, g in product(LOSSES, ("classes", "sets"))]
    cases += [(n, "database", 2500, 64, torch.float32, 0) for n in LOSSES]
    cases += [("ap-exact", "classes", 300, 300, torch.float32, one)]
    return cases


def check_graph(name: str) -> dict[str, Any]:
    """A captured forward and backward, replayed on other rows, against the same outside."""
    (x,), options = draw("classes", 256, 64, torch.float32)
    fixed = x.clone().requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(LOSSES[name](fixed, **options), fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = LOSSES[name](fixed, **options)
        (gradient,) = torch.autograd.grad(value, fixed)
    other = torch.randn_like(x)
    with torch.no_grad():
        fixed.copy_(other)
    graph.replay()
    wanted = find(LOSSES[name], [other], options)
    right = torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])
    begin = time.perf_counter()
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / 200
    return {"loss": name, "graph_seconds": seconds, "right": right}


def check_compiled(name: str) -> dict[str, Any]:
    (x,), options = draw("classes", 64, 64, torch.float32)
    layer = torch.nn.Linear(64, 64).cuda()

    def step(rows: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](layer(rows).relu(), **options)

    outcomes = []
    for run in (step, torch.compile(step, backend="eager")):
        value = run(x)
        outcomes.append([value.detach(), torch.autograd.grad(value, layer.weight)[0]])
    right = all(torch.allclose(a, b) for a, b in zip(*outcomes, strict=True))
    return {"loss": name, "compiled": True, "right": right}


def count_launches(m: int) -> dict[str, Any]:
    """Kernels and other work given to the GPU by a forward and backward, by name of the loss."""
    counts = {}
    for name, (loss, rows) in every_loss(m, "cuda").items():
        torch.autograd.grad(loss(), rows)
        torch.cuda.synchronize()
        waited = ""
        torch.cuda.set_sync_debug_mode("error")  # raises where something waits for the GPU
        try:
            torch.autograd.grad(loss(), rows)
        except RuntimeError as error:
            waited = str(error)[:200]
        torch.cuda.set_sync_debug_mode("default")
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        ) as profile:
            torch.autograd.grad(loss(), rows)
            torch.cuda.synchronize()
        events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        counts[name] = {"launches": len(events), "us": sum(e.device_time for e in events)}
        if waited:
            counts[name]["waited"] = waited
        if name in ("FastAP", "tie-aware NDCG, exact"):
            counts[name]["kernels"] = [(e.name[:40], round(e.device_time, 1)) for e in events]
    return counts


def time_host(m: int) -> dict[str, float]:
    """Microseconds that the CPU spends: a whole step, its forward pass, a launch of each kind."""
    loss, rows = every_loss(m, "cuda")["FastAP"]
    values = torch.zeros(2, m, dtype=torch.float64, device="cuda")
    small = torch.zeros(m, 64, device="cuda")
    runs = {
        "step": lambda: torch.autograd.grad(loss(), rows),
        "forward": loss,
        "triton launch": lambda: kernels.average(values, torch.float32, alone=True),
        "torch op": lambda: torch.tanh(small),
        "torch mm": lambda: torch.mm(small, small.T),
    }
    outcomes = {}
    for name, run in runs.items():
        for _ in range(20):
            run()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(200):
            run()
        outcomes[name] = (time.perf_counter() - begin) / 200 * 1e6
        torch.cuda.synchronize()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[64, 256, 1024, 2048, 4096, 16384, 131072]
    )
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--only", choices=LOSSES, help="check one loss")
    arguments = parser.parse_args()
    bench = Bench("losses_check", threads=torch.get_num_threads(), seed=SEED)
    wrong, begin = [], time.perf_counter()

    def keep(title: str, **row: Any) -> None:
        bench.note(title, **row)
        bench.save()
        if not row.get("right", True):
            wrong.append(f"{title}: {row}")

    attempts: list[tuple[str, Any, tuple]] = []
    if not arguments.no_checks:
        attempts += [("agreement", check, case) for case in list_cases()]
        attempts += [("graph", check_graph, (name,)) for name in LOSSES]
        attempts += [("compile", check_compiled, (name,)) for name in LOSSES]
    for title, function, case in attempts:
        if arguments.only not in (None, case[0]):
            continue
        try:
            row = function(*case)
        except Exception as error:
            row = {
                "case": str(case),
                "error": f"{type(error).__name__}: {error}"[:600],
                "right": False,
            }
        keep(title, **row, at=round(time.perf_counter() - begin, 1))
    if not arguments.no_times:
        keep("host microseconds, M = 256", **time_host(256))
        for m in arguments.sizes:
            repeats, seconds = (5, 0.1) if m <= 4096 else (1, 0.01)
            all_forms(bench, None, "cuda", m, repeats=repeats, seconds=seconds)
            bench.save()
        keep("launches, M = 256", **count_launches(256))
    print(f"{time.perf_counter() - begin:.0f} s; {len(wrong)} wrong")
    if wrong:
        raise SystemExit("\n".join(wrong[:20]))


if __name__ == "__main__":
    main()
