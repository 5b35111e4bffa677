"""Run cells on synthetic numbers: figures that a paper draws or times, and a bound that it states.

``[train] data`` names the example, ``options`` are its numbers. Nothing is trained or read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from rankbits import _check
from rankbits.evaluate import evaluate
from rankbits.losses import fastap_loss
from rankbits.losses.named import make_loss
from rankbits.metrics import average_precision, rank_codes
from rankbits.papers.cell import Clock
from rankbits.papers.recipe import Cell, Recipe
from rankbits.papers.rotations import fit_quantizer
from rankbits.papers.rows import Row, Settings, make_row
from rankbits.train import TrainConfig
from rankbits.types import pack

Figures = dict[str, float]


def run_cell(recipe: Recipe, cell: Cell, settings: Settings) -> list[Row]:
    """Run an example -> a row for each quantizer; most examples have only "none"."""
    config = recipe.config(cell)
    example = EXAMPLES[_check.choice(f"data of {recipe.name}", config.data, tuple(EXAMPLES))]
    rows = []
    for name in settings.choose_quantizers(recipe):
        clock = Clock()
        figures = example(config, name, settings.short)
        spent, no_ties = {"judge": clock.lap()}, (math.nan, math.nan)
        rows.append(
            make_row(recipe, cell, name, settings, figures=figures, span=no_ties, seconds=spent)
        )
    return rows


def rank_with_small_margin(config: TrainConfig, quantizer: str, short: bool) -> Figures:
    """Rank neighbours just before all others, as in FastAP's Fig. 4c. AP is 1; FastAP is 1 and its
    gradient 0 where bins are narrower than the margin."""
    squared = torch.cat([torch.linspace(0.6, 0.9, 20), torch.linspace(1.0, 1.4, 20)]).double()
    angle = (1 - squared / 2).arccos()
    items = torch.stack([angle.cos(), angle.sin()], dim=1).requires_grad_()
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    near = [0] * 20 + [1] * 20
    bins = (config.options or {})["bins"]
    loss = fastap_loss(query, [0], bins=bins, database=items, database_labels=near)
    (gradient,) = torch.autograd.grad(loss, items)
    return {"FastAP": 1 - loss.item(), "AP": 1.0, "gradient": float(gradient.norm())}


def separate_poorly(config: TrainConfig, quantizer: str, short: bool) -> Figures:
    """Encode two classes on either side of an axis, as in H2Q's Fig. 5. Their signs differ until a
    rotation moves both to the diagonal, where the quantization error is least."""
    draw = np.random.default_rng(config.seed)
    labels = np.arange(400) % 2
    angle = np.pi / 2 + np.where(labels == 0, -1, 1) * draw.normal(np.pi / 12, np.pi / 40, 400)
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    name = "sign" if quantizer == "none" else quantizer
    codes = fit_quantizer(name, rows, labels, config.seed).encode(rows)
    report = evaluate(codes[:100], codes[100:], labels[:100], labels[100:], k=1, only=["mAP"])
    return {"mAP": report["mAP"]}


def sum_harmonically(config: TrainConfig, quantizer: str, short: bool) -> Figures:
    """Compare the error of TALR's Eq. 27, a logarithm in place of a sum of 1/t, with the bounds of
    Eq. 37 (appendix C), for a tie of ``tied`` items after ``before`` others."""
    options = config.options or {}
    before, after = options["before"], options["before"] + options["tied"]
    exact = math.fsum(1 / t for t in range(before + 1, after + 1))
    error = abs(exact - math.log(after / before))
    bound = 1 / (2 * before) - 1 / (2 * after)
    loose = options["tied"] / (2 * before**2)
    return {"error / bound": error / bound, "error": error, "bound": bound, "loose bound": loose}


def relax_codes(config: TrainConfig, quantizer: str, short: bool) -> Figures:
    """Compare the AP that a form of the loss gives a batch of 256 codes with the true AP."""
    draw = torch.Generator().manual_seed(config.seed)
    labels = torch.arange(256) % 10
    centres = torch.randn(10, config.width, generator=draw)
    signs = (centres[labels] + torch.randn(256, config.width, generator=draw)).sign()
    codes = pack(signs)
    true = average_precision(rank_codes(codes, codes, labels, labels, exclude_self=True)).mean()
    loss = make_loss(config.loss, config.width, labels, **(config.options or {}))
    relaxed = 1 - float(loss(20 * signs.double(), labels))
    return {"error": abs(relaxed - float(true)), "relaxed AP": relaxed, "AP": float(true)}


def time_rotation(config: TrainConfig, quantizer: str, short: bool) -> Figures:
    """Time the fit of a rotation to rows, and the encoding of 50 times as many (H2Q, Fig. 4)."""
    rows = 200 if short else (config.options or {})["rows"]
    draw = np.random.default_rng(config.seed)
    embeddings = draw.standard_normal((rows, config.width), np.float32)
    clock = Clock()
    fitted = fit_quantizer(quantizer, embeddings, None, config.seed)
    seconds = {"seconds to fit": clock.lap()}
    many = np.tile(embeddings, (50, 1))
    clock.lap()
    fitted.encode(many)
    return {**seconds, "seconds to encode": clock.lap()}


EXAMPLES: dict[str, Callable[[TrainConfig, str, bool], Figures]] = {
    "small-margin": rank_with_small_margin,
    "poorly-separated": separate_poorly,
    "harmonic-sum": sum_harmonically,
    "random-codes": relax_codes,
    "random-rows": time_rotation,
}
