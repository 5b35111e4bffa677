"""The alpha of tanh(alpha f): alpha chosen from the first batch, compared with alpha = 1.

The features are outputs of a frozen EfficientNet-lite0 (CIFAR-10, H2Q's protocol), as they come,
divided by ten, or of length 1. A linear hash layer is trained on them, alone or behind a layer of
512. 5,000 rows are learned from; AP_T is that of 1,000 held-out rows, each against the rest. The
rate and the budget of 20 epochs are the same throughout; only alpha differs.

    python benchmarks/quality_alpha.py --save --seeds 3
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

import rankbits as rb
from _bench import Bench
from rankbits.data.examples import Examples
from rankbits.papers import protocol
from rankbits.train.source import read_source

UNITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as they come": lambda x: x,
    "a tenth": lambda x: x / 10,
    "of length 1": lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
}
LOSSES = ("tie-aware-ap", "mihash")
MODELS = ("linear", "mlp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write rows to results/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bits", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--root", default=None, help="the data root")
    options = parser.parse_args()
    bench = Bench("quality_alpha", threads=torch.get_num_threads(), seed=0)
    cases = [(u, m, lo, a) for u in UNITS for m in MODELS for lo in LOSSES for a in (1.0, None)]
    found: dict[tuple, list[float]] = {case: [] for case in cases}
    for seed in range(options.seeds):
        config = rb.TrainConfig(features="efficientnet-lite0", root=options.root, seed=seed)
        source = read_source(config, protocol("cifar10-h2q", options.root, seed))
        assert source.held is not None
        for units, model, loss, alpha in cases:
            train, held = (
                Examples(UNITS[units](part.inputs.astype(np.float32)), part.labels)
                for part in (source.train, source.held)
            )
            run = rb.train(
                examples=train, held=held, model=model, hidden=512, loss=loss, alpha=alpha,
                bits=options.bits, batch_size=250, lr=1e-3, optimizer="adamw", schedule="cosine",
                epochs=options.epochs, validate_every=options.epochs, seed=seed,
                tensorboard=False, say=lambda line: None,
            )  # fmt: skip
            if not run.progress.finished:
                raise SystemExit(f"stopped at step {run.progress.step}: no row is made of it.")
            assert run.progress.best is not None and run.progress.alpha is not None
            found[units, model, loss, alpha].append(run.progress.best)
            bench.note(
                f"features {units}, {model}, {loss}, alpha {alpha or 'found'}, seed {seed}",
                units=units, model=model, loss=loss, found=alpha is None, run=seed,
                alpha=round(run.progress.alpha, 3), AP_T=round(run.progress.best, 4),
            )  # fmt: skip
            if options.save:
                bench.save()
    for (units, model, loss, alpha), values in found.items():
        spread = np.std(values, ddof=min(1, len(values) - 1))
        bench.note(
            f"mean over {len(values)} seeds: features {units}, {model}, {loss}, "
            f"alpha {alpha or 'found'}",
            AP_T=f"{np.mean(values):.4f} +- {spread:.4f}",
        )
    if options.save:
        bench.save()


if __name__ == "__main__":
    main()
