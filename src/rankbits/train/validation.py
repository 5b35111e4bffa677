"""Judge a network on held-out rows while it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.evaluate import evaluate
from rankbits.evaluate.figures import find_cutoffs
from rankbits.train.embed import embed
from rankbits.types import pack

QUERIES, DATABASE = 1000, 10_000  # rows judged at a validation, at most
FEW = 20  # rows of a class: a ranking of fewer says little


@dataclass(frozen=True)
class ValidationResult:
    """The figures of a validation by name, the last of which weights are chosen by; the mAP of a
    random order, the number of queries, and the number of bits that were the same for all of them
    (None: no codes, or too few rows to tell)."""

    figures: dict[str, float]
    chance: float
    rows: int
    constant_bits: int | None

    def __str__(self) -> str:
        return ", ".join(f"{name} {figure:.4f}" for name, figure in self.figures.items())

    @property
    def chosen(self) -> float:
        return list(self.figures.values())[-1]


class Validation:
    """Judges rankings of held-out rows by mean average precision and by ``figure``: codes are
    ranked by Hamming distance, with ties averaged, and embeddings by cosine.

    Held-out rows query each other. A network places the rows it learned from closer together than
    others, so a ranking of those would favour a network that has memorised them. The training rows
    are the database only where they share classes with the held-out rows and there are fewer than
    ``FEW`` held-out rows for each class. At most ``QUERIES`` and ``DATABASE`` rows are used, drawn
    by seed. With ``grades`` (held, train) the held-out rows query all training rows instead.
    NDCG grades multi-hot labels by how many of them two rows share.
    """

    def __init__(
        self,
        train: Examples,
        held: Examples,
        *,
        binary: bool,
        seed: int = 0,
        grades: np.ndarray | None = None,
        figure: str = "mAP",
    ) -> None:
        draw = np.random.default_rng(seed)
        self.binary, self.grades, self.figure = binary, grades, figure
        self.chance: float | None = None  # known after the first judgement
        self.queries, self.database = held, train
        if grades is None:
            self._draw_rows(train, held, draw)
        rows = len(self.database) - (self.database is self.queries)
        if max(find_cutoffs(figure), default=0) > rows:
            _check.refuse(
                f"validate_by = '{figure}' needs longer rankings: validation ranks {rows:,} rows."
            )

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
            counted = self.figure.startswith("NDCG") and labels.ndim == 2
            grading = {
                "query_labels": labels, "database_labels": database_labels, "exclude_self": alone,
                "relevance": "count" if counted else "any",
            }  # fmt: skip
        grading |= {"k": find_cutoffs(self.figure) or 1, "only": ["mAP", self.figure]}
        report = evaluate(to_codes(queries), to_codes(database), **grading)
        if self.chance is None:  # where all codes are equal, every order is equally likely
            equal = [pack(np.ones((len(rows), 1))) for rows in (queries, database)]
            self.chance = evaluate(*equal, **grading)["mAP"]
        constant = None
        if self.binary and len(queries) >= FEW:
            signs = pack(queries).signs()
            constant = int((signs == signs[0]).all(0).sum())
        figures = {name: report[name] for name in ("mAP", self.figure)}
        return ValidationResult(figures, self.chance, len(queries), constant)


def _draw_at_most(examples: Examples, rows: int, draw: np.random.Generator) -> Examples:
    if len(examples) <= rows:
        return examples
    return examples.subset(np.sort(draw.choice(len(examples), rows, replace=False)))
