"""FastAP on Omniglot: hard against random sampling, and the size of the batch.

The network learns from 964 characters of 30 alphabets (categories). It is judged on 659 characters
of 20 other alphabets, each drawing against the rest, by R@1 and AP_T of the float embeddings. All
runs have the same small network and learning rate and see the same number of drawings; only the
sampler and the batch size differ. The learning rate was not chosen for any of those under test.

    python benchmarks/quality_sampling.py --save --seeds 3
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import rankbits as rb
from _bench import Bench
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.papers import protocol

SIDE, DIM = 28, 64


def small(examples: Examples) -> Examples:
    """Drawings at 28 x 28, ink bright: the customary size."""
    parts = []
    for start in range(0, len(examples), 1000):
        part = torch.from_numpy(255 - examples.inputs[start : start + 1000])
        seen = View(SIDE, 1).see_centre(part)
        parts.append((seen * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
    names = (examples.class_names, examples.category_names)
    return Examples(np.concatenate(parts), examples.labels, examples.categories, *names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write rows to results/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=51_200, help="drawings a run sees")
    parser.add_argument("--steps", type=int, default=0, help="as many steps for all, not images")
    parser.add_argument("--name", default="quality_sampling", help="of the file of rows")
    parser.add_argument(
        "--sizes", default="32,128,512", help="batch sizes; the middle for samplers"
    )
    parser.add_argument("--root", default=None, help="the data root")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    bench = Bench(options.name, threads=torch.get_num_threads(), seed=0)
    how = protocol("omniglot", options.root)
    whole = small(how.examples)
    train, judged = whole.subset(how.train), whole.subset(how.queries)
    middle = sizes[len(sizes) // 2]
    cases = [("random", middle)] + [("hard", size) for size in sizes]
    for seed in range(options.seeds):
        for sampler, size in cases:
            begun = time.monotonic()
            run = rb.train(
                examples=train, model="conv", side=SIDE, dim=DIM, loss="fastap", lr=1e-3,
                batch_size=size, sampler=sampler, batches_per_pair=1, augment="shift",
                epochs=1000, steps=options.steps or options.images // size, validation=0.0,
                seed=seed, schedule="cosine", say=lambda line: None,
            )  # fmt: skip
            trained = time.monotonic() - begun
            if not run.progress.finished:
                raise SystemExit(f"stopped at step {run.progress.step}: no row is made of it.")
            found = run.embed(judged).embeddings
            report = rb.evaluate(
                found, found, judged.labels, judged.labels, k=(1, 10), exclude_self=True
            )
            bench.note(
                f"{sampler}, batches of {size}, seed {seed}",
                sampler=sampler, batch=size, run=seed, steps=run.progress.step,
                R1=round(report["hit@1"], 4), R10=round(report["hit@10"], 4),
                AP_T=round(report["mAP"], 4), seconds=round(trained, 1),
            )  # fmt: skip
            if options.save:
                bench.save()
    for sampler, size in cases:
        rows = [r for r in bench.rows if r.get("sampler") == sampler and r.get("batch") == size]
        figures = {n: [r[n] for r in rows] for n in ("R1", "AP_T")}
        bench.note(
            f"mean over {len(rows)} seeds: {sampler}, batches of {size}",
            **{n: f"{np.mean(v):.4f} +- {np.std(v, ddof=min(1, len(v) - 1)):.4f}"
               for n, v in figures.items()},
        )  # fmt: skip
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
