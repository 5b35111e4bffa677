"""An evaluator for sentence-transformers' trainer: judges a model by its floats and by its bits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers.base.evaluation import BaseEvaluator

from rankbits import _check
from rankbits.evaluate import evaluate
from rankbits.types import Questions, Report, pack


class BitsEvaluator(BaseEvaluator):
    """Judges a model by its floats, by its bits, and by float queries against bits.

    ``queries`` and ``database`` are texts; what is relevant comes from labels or from
    ``relevance``, the (Q, N) grades, as in ``rankbits.evaluate``. ``prefixes`` are numbers of
    leading bits that are judged as well. The figures named in ``only`` are computed for

    - ``cosine``: the outputs as floats;
    - ``bits``: their signs, by Hamming distance;
    - ``questions``: floats of queries, signs of the database (asymmetric);
    - ``bits64``, ``questions64``: the same with the first 64 bits.

    Each figure is the mean over all orders of ties; if ties matter, ``..._worst`` and ``..._best``
    are its bounds. Each call writes a line of JSON to a file in the folder ``output_path``.
    """

    def __init__(
        self,
        queries: Sequence[str],
        database: Sequence[str],
        query_labels: Any = None,
        database_labels: Any = None,
        *,
        relevance: Any = "any",
        prefixes: Sequence[int] = (),
        k: Any = 10,
        only: Sequence[str] | None = None,
        gain: str = "linear",
        batch: int = 64,
        name: str = "",
        primary: str | None = None,
    ) -> None:
        super().__init__()
        _check.not_empty("queries", len(queries))
        _check.not_empty("database", len(database))
        self.queries, self.database = list(queries), list(database)
        self.labels = (query_labels, database_labels)
        self.prefixes = tuple(_check.whole("A prefix", n, 1) for n in prefixes)
        points = _check.cutoffs(k)
        self.only = [f"NDCG@{points[0]}"] if only is None else list(only)
        self.options = {"relevance": relevance, "k": k, "gain": gain, "only": self.only}
        self.batch = _check.whole("batch", batch, 1)
        self.name = name
        self.primary_metric = primary or f"bits_{self.only[0]}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        queries, database = (
            np.asarray(
                model.encode(texts, batch_size=self.batch, convert_to_numpy=True), np.float32
            )
            for texts in (self.queries, self.database)
        )
        reports = self.judge(queries, database)
        figures = {}
        for way, report in reports.items():
            for figure in report.figures.values():
                figures[f"{way}_{figure.name}"] = figure.value
                if figure.tied:
                    figures[f"{way}_{figure.name}_worst"] = figure.worst
                    figures[f"{way}_{figure.name}_best"] = figure.best
        figures = self.prefix_name_to_metrics(figures, self.name)
        self.store_metrics_in_model_card_data(model, figures, epoch, steps)
        if output_path is not None:
            path = Path(output_path) / f"bits_evaluation{'_' if self.name else ''}{self.name}.jsonl"
            with open(path, "a") as file:
                file.write(json.dumps({"epoch": epoch, "steps": steps, **figures}) + "\n")
        return figures

    def judge(self, queries: np.ndarray, database: np.ndarray) -> dict[str, Report]:
        """The report of each way to compare outputs (Q, bits) and (N, bits)."""
        width = queries.shape[1]
        reports = {"cosine": self._evaluate(queries, database)}
        for bits in (width, *self.prefixes):
            if bits > width:
                _check.refuse(f"The model makes {width} bits; there is no prefix of {bits}.")
            codes, mark = pack(database[:, :bits]), "" if bits == width else str(bits)
            reports[f"bits{mark}"] = self._evaluate(pack(queries[:, :bits]), codes)
            reports[f"questions{mark}"] = self._evaluate(Questions(queries[:, :bits]), codes)
        return reports

    def _evaluate(self, queries: Any, database: Any) -> Report:
        return evaluate(queries, database, *self.labels, **self.options)
