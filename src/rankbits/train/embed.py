"""Embed examples with a trained network, and judge the network on held-out rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._progress import Meter
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.loading import Loader, batch_in_order
from rankbits.evaluate import evaluate
from rankbits.models.heap import keep_memory
from rankbits.train.step import precision
from rankbits.types import pack

QUERIES, DATABASE = 1000, 10_000  # rows judged at a validation, at most
FEW = 20  # rows of a class: a ranking of fewer says little


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


@dataclass(frozen=True)
class ValidationResult:
    """The mAP of a validation, the mAP of a random order, the number of queries, and the number of
    bits that were the same for all of them (None: no codes, or too few rows to tell)."""

    mean_precision: float
    chance: float
    rows: int
    constant_bits: int | None


class Validation:
    """Measures mean average precision on held-out rows: codes are ranked by Hamming distance, with
    ties averaged, and embeddings by cosine.

    Held-out rows query each other. A network places the rows it learned from closer together than
    others, so a ranking of those would favour a network that has memorised them. The training rows
    are the database only where they share classes with the held-out rows and there are fewer than
    ``FEW`` held-out rows for each class. At most ``QUERIES`` and ``DATABASE`` rows are used, drawn
    by seed. With ``grades`` (held, train) the held-out rows query all training rows instead.
    """

    def __init__(
        self,
        train: Examples,
        held: Examples,
        *,
        binary: bool,
        seed: int = 0,
        grades: np.ndarray | None = None,
    ) -> None:
        draw = np.random.default_rng(seed)
        self.binary, self.grades = binary, grades
        self.chance: float | None = None  # known after the first judgement
        self.queries, self.database = held, train
        if grades is None:
            self._draw_rows(train, held, draw)

    def __len__(self) -> int:
        return len(self.queries)

    def _draw_rows(self, train: Examples, held: Examples, draw: np.random.Generator) -> None:
        self.queries = _draw_at_most(held, QUERIES, draw)
        if held.labels.ndim == 2:
            shared = bool((held.labels.any(0) & train.labels.any(0)).any())
        else:
            shared = bool(np.isin(held.labels, train.labels).any())
        few = len(self.queries) < FEW * self.queries.classes
        self.database = _draw_at_most(train, DATABASE, draw) if shared and few else self.queries

    def judge(
        self, model: torch.nn.Module, view: View | None, device: torch.device, **options: object
    ) -> ValidationResult:
        """Embed the rows and evaluate their ranking; ``options`` are those of ``embed``."""

        def embed_part(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
            part = embed(model, examples, view, device=device, **options)  # type: ignore[arg-type]
            return part.embeddings, examples.labels[part.rows]

        queries, labels = database, database_labels = embed_part(self.queries)
        alone = self.database is self.queries
        if not alone:
            database, database_labels = embed_part(self.database)
        to_codes = pack if self.binary else np.asarray
        grading: dict[str, Any] = {"relevance": self.grades}
        if self.grades is None:
            grading = {
                "query_labels": labels, "database_labels": database_labels, "exclude_self": alone
            }  # fmt: skip
        report = evaluate(to_codes(queries), to_codes(database), k=1, **grading)
        if self.chance is None:  # where all codes are equal, every order is equally likely
            equal = [pack(np.ones((len(rows), 1))) for rows in (queries, database)]
            self.chance = evaluate(*equal, k=1, **grading)["mAP"]
        constant = None
        if self.binary and len(queries) >= FEW:
            signs = pack(queries).signs()
            constant = int((signs == signs[0]).all(0).sum())
        return ValidationResult(report["mAP"], self.chance, len(queries), constant)


def _draw_at_most(examples: Examples, rows: int, draw: np.random.Generator) -> Examples:
    if len(examples) <= rows:
        return examples
    return examples.subset(np.sort(draw.choice(len(examples), rows, replace=False)))
