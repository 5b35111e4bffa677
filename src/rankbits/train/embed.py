"""Embed examples with a trained network."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rankbits import _check
from rankbits._progress import Meter
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.loading import Loader, batch_in_order
from rankbits.models.heap import keep_memory
from rankbits.train.step import precision


def compute_outputs(
    model: torch.nn.Module, inputs: torch.Tensor, view: View | None, device: torch.device
) -> torch.Tensor:
    """Compute the float32 outputs of a network outside training. Where the view has ``mirror``,
    they are the mean of an image's outputs and its mirror's."""
    inputs = inputs.to(device, non_blocking=True)
    if view is None:
        return model(inputs).float()
    images = view.see_centre(inputs)
    outputs = model(images).float()
    return (outputs + model(images.flip(3)).float()) / 2 if view.mirror else outputs


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings (m, width) of the rows that could be read, the numbers of those rows, and a
    sentence for each row that could not be read. ``cut`` counts the texts that are longer than the
    model reads."""

    embeddings: np.ndarray
    rows: np.ndarray
    failed: tuple[str, ...] = ()
    cut: int = 0


@torch.no_grad()
def embed(
    model: torch.nn.Module,
    examples: Examples,
    view: View | None = None,
    *,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    amp: str = "off",
    workers: int = 0,
    cache: Path | None = None,
    progress: bool = False,
) -> Embedded:
    """Embed examples in order, in evaluation mode; the model gets its former mode back.

    ``batch_size`` is 256 by default, and 16 for images on a CPU, where larger batches only take
    more memory.

    >>> embed(torch.nn.Identity(), Examples(np.eye(2, dtype=np.float32), [0, 1])).embeddings
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    device = torch.device(device)
    if view is None and examples.kind != "features":
        _check.refuse("Images need a View: the side the network sees.")
    images_on_cpu = view is not None and device.type == "cpu"
    if batch_size is None:
        batch_size = 16 if images_on_cpu else 256
    batches = batch_in_order(len(examples), batch_size)
    loader = make_loader(examples, batches, view, device, workers, cache)
    training = model.training
    model.eval()
    parts, rows = [], []
    try:
        memory = keep_memory() if images_on_cpu and len(examples) > batch_size else nullcontext()
        with memory, Meter("embed", len(examples), "rows", shown=progress) as meter:
            for batch in loader:
                with precision(amp, device):
                    parts.append(compute_outputs(model, batch.inputs, view, device).cpu())
                rows.append(batch.rows)
                meter.update(len(batch))
    finally:
        model.train(training)
    if not parts:
        _check.refuse("The examples must not be empty; got 0 rows.")
    return Embedded(
        torch.cat(parts).numpy(), torch.cat(rows).numpy(), tuple(loader.failed.values())
    )


def make_loader(
    examples: Examples,
    batches: Iterable[list[int]],
    view: View | None,
    device: torch.device,
    workers: int = 0,
    cache: Path | None = None,
) -> Loader:
    """Make a loader of batches of examples, with images at the size that the view needs."""
    side, channels = (view.stored, view.channels) if view else (0, 0)
    return Loader(
        examples, batches, side=side, channels=channels, workers=workers, cache=cache,
        device=device,
    )  # fmt: skip
