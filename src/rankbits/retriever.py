"""One estimator over the whole: inputs -> embeddings -> codes -> index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import write_whole
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.data.protocols import Protocol
from rankbits.evaluate import evaluate
from rankbits.indexes import HammingIndex
from rankbits.quantizers import Quantizer, Sign, chosen, load
from rankbits.train import Run, TrainConfig, embed, load_run, train
from rankbits.train.run import as_examples
from rankbits.train.source import read_source
from rankbits.types import Codes, Evidence, Report, Results

QUANTIZER, INDEX, RUN, ABOUT = "quantizer.safetensors", "index.rankbits", "run", "retriever.json"
JUDGED, EVIDENCE = "report.json", "judged.npz"

Model = TrainConfig | Run | torch.nn.Module | Callable[[Any], Any]


class Retriever:
    """``Retriever(model, quantizer).fit(inputs, labels).add(inputs)``, then ``search``.

    ``model`` makes embeddings of inputs: ``None`` where the inputs are embeddings, a
    ``TrainConfig``, which ``fit`` trains, or something trained: a ``Run``, a module or any
    function. ``quantizer`` makes bits of embeddings: one of the quantizers, or a name ("auto",
    "h2q", "supervised", "pca", ...) with ``bits``; by default the signs of a hash layer, and
    "auto" for everything else.

    >>> from rankbits.data import digits
    >>> images, labels = digits()
    >>> x = images.reshape(len(images), 64) / 16.0
    >>> retriever = Retriever(bits=32).fit(x[:1500], labels[:1500]).add(x[:1500])
    >>> retriever.search(x[1500:1502], k=3).ids.shape, len(retriever)
    ((2, 3), 1500)
    """

    def __init__(
        self,
        model: Model | None = None,
        quantizer: Quantizer | str | None = None,
        *,
        bits: int | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.quantizer, self.bits, self.seed = model, quantizer, bits, seed

    def fit(self, inputs: Any, labels: Any = None) -> Retriever:
        """Train the model if it is a ``TrainConfig``, then fit the quantizer; returns self."""
        examples = _examples(inputs, labels)
        if isinstance(self.model, TrainConfig):
            if examples is None or (labels is None and not isinstance(inputs, Examples)):
                _check.refuse("Training needs labels: fit(inputs, labels).")
            self.model_: Any = train(self.model, examples=examples)
        else:
            self.model_ = self.model
        known = labels if labels is not None else getattr(inputs, "labels", None)
        wanted = self.quantizer
        if wanted is None:
            hashed = isinstance(self.model_, Run) and self.model_.config.head == "hash"
            wanted = Sign() if hashed and self.bits is None else "auto"
        embeddings, rows = self._embedded(examples if examples is not None else inputs)
        known = None if known is None else np.asarray(_check.array("labels", known))[rows]
        if isinstance(wanted, str):
            wanted = chosen(wanted, self.bits, embeddings.shape[1], known is not None, self.seed)
        self.quantizer_ = wanted.fit(embeddings, known)
        self.index_ = HammingIndex(self.quantizer_.bits_)
        return self

    def embed(self, inputs: Any) -> np.ndarray:
        """Embeddings (n, dim) of inputs; an input that cannot be read is refused by name."""
        found, rows = self._embedded(inputs)
        if len(rows) < len(inputs):
            _check.refuse(f"{len(inputs) - len(rows):,} of the inputs cannot be read.")
        return found

    def encode(self, inputs: Any) -> Codes:
        """Codes of inputs."""
        self._fitted()
        return self.quantizer_.encode(self.embed(inputs))

    def add(self, inputs: Any, ids: Any = None) -> Retriever:
        """Remember inputs under ``ids``, or numbered on; returns self."""
        self._fitted()
        self.index_.add(self.encode(inputs), ids)
        return self

    def remove(self, ids: Any) -> int:
        self._fitted()
        return self.index_.remove(ids)

    def search(self, inputs: Any, k: int = 10, *, among: Any = None) -> Results:
        """The k nearest of what was added."""
        codes = self.encode(inputs)
        return self.index_.search(codes, k, among=among)

    def __len__(self) -> int:
        self._fitted()
        return self.index_.count()

    def evaluate(
        self, queries: Any, database: Any, query_labels: Any, database_labels: Any, **options: Any
    ) -> Report:
        """Judge the codes of ``queries`` against those of ``database``, as ``rb.evaluate``."""
        pair = (self.encode(queries), self.encode(database))
        return evaluate(*pair, query_labels, database_labels, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder: the run, the quantizer and the index, each whole.

        A model that is a plain function cannot be written; give it to ``load`` again.
        """
        self._fitted()
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            _check.refuse(f"{folder} is a file; a retriever needs a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        kind = "none" if self.model_ is None else "function"
        if isinstance(self.model_, Run):
            kind = "run"
            _copy(self.model_, folder / RUN)
        self.quantizer_.save(folder / QUANTIZER)
        self.index_.save(folder / INDEX)
        about = json.dumps({"model": kind, "bits": self.quantizer_.bits_}).encode()
        write_whole(folder / ABOUT, lambda file: file.write(about))

    @staticmethod
    def load(path: str | os.PathLike[str], model: Any = None) -> Retriever:
        """Read back what ``save`` wrote; ``model`` where it was your own module or function."""
        folder = Path(path)
        if not (folder / ABOUT).is_file():
            _check.refuse(f"{folder} is not a retriever: it has no {ABOUT}.")
        try:
            kind = json.loads((folder / ABOUT).read_text("utf-8"))["model"]
        except (ValueError, KeyError, TypeError):
            _check.refuse(f"{folder / ABOUT} is damaged.")
        if kind == "function" and model is None:
            _check.refuse(f"{folder} was made with your own function; give it as model.")
        made = Retriever(model)
        made.model_ = model
        if kind == "run":
            module = model if isinstance(model, torch.nn.Module) else None
            made.model = made.model_ = load_run(folder / RUN, module)
        made.quantizer = made.quantizer_ = load(folder / QUANTIZER)
        made.index_ = HammingIndex.open(folder / INDEX)
        return made

    def _embedded(self, inputs: Any) -> tuple[np.ndarray, np.ndarray]:
        model = self.model_ if hasattr(self, "model_") else self.model
        if isinstance(model, TrainConfig):
            _check.refuse("The retriever must be fitted first: fit(inputs, labels).")
        if isinstance(model, Run):
            found = model.embed(inputs)
            return found.embeddings, found.rows
        value = inputs.inputs if isinstance(inputs, Examples) else inputs
        if isinstance(value, ImageFiles):
            _check.refuse("Image files need a Run, which knows their size; got a bare module.")
        if isinstance(model, torch.nn.Module):
            outputs = embed(model, as_examples(value)).embeddings
        else:
            outputs = value if model is None else model(value)
        made = _check.finite("embeddings", _check.matrix("embeddings", outputs))
        _check.same_length("embeddings", len(made), "the inputs", len(value))
        return made, np.arange(len(made))

    def _fitted(self) -> None:
        if not hasattr(self, "index_"):
            _check.refuse("The retriever must be fitted first: fit(inputs, labels).")


def _examples(inputs: Any, labels: Any) -> Examples | None:
    if isinstance(inputs, Examples):
        return inputs
    if labels is None:
        return None
    plain = as_examples(inputs)
    return Examples(plain.inputs, labels)


def _copy(run: Run, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    copy = Run(run.model, run.config, run.inputs, folder, run.class_names, run.progress)
    copy.describe()
    copy.keep()


@dataclass(frozen=True, eq=False)
class Sides:
    """The queries and the database of a protocol, each a pair: embeddings, labels, and the
    protocol's rows (those that could be read). Where ``exclude_self`` they are the same."""

    embeddings: tuple[np.ndarray, np.ndarray]
    labels: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray]


def sides(run: Run, how: Protocol, **options: Any) -> Sides:
    """Embed the queries and the database of a protocol; ``options`` are those of ``Run.embed``."""
    found = []
    for rows in (how.queries, how.database)[: 2 - how.exclude_self]:
        part = how.examples.subset(rows)
        seen = run.embed(part, **options)
        found.append((seen.embeddings, part.labels[seen.rows], rows[seen.rows]))
    ours, theirs = found[0], found[-1]
    return Sides((ours[0], theirs[0]), (ours[1], theirs[1]), (ours[2], theirs[2]))


def finish(run: Run, quantizer: str, *, judge: bool, **options: Any) -> Report | None:
    """After training from a folder: fit a quantizer on the training rows and keep it in the run;
    ``judge``: embed the protocol's queries and database and write ``report.json``, and into
    ``judged.npz`` the codes, the labels and each query's figures, for ``rankbits report``."""
    source = read_source(run.config)
    made = None
    if quantizer != "none":
        known = run.embed(source.train, progress=True, **options)
        made = chosen(quantizer, run.config.width, run.config.width, True, run.config.seed)
        made.fit(known.embeddings, source.train.labels[known.rows])
        if run.folder is not None:
            made.save(run.folder / QUANTIZER)
    if not judge:
        return None
    how = source.protocol
    if how is None:
        _check.refuse("judge needs a protocol with queries and a database; own data has none.")
    found = sides(run, how, progress=True, **options)
    (ours, theirs), (labels, others) = found.embeddings, found.labels
    settings: dict[str, Any] = {
        "k": how.k, "relevance": how.relevance, "exclude_self": how.exclude_self
    }  # fmt: skip
    codes = None
    if made is None and run.config.head == "embedding":
        report = evaluate(ours, theirs, labels, others, **settings)
    else:
        encode = (made or Sign().fit(ours)).encode
        broken = (ours, theirs) if how.tie_break else None
        codes = (encode(ours), encode(theirs))
        report = evaluate(*codes, labels, others, tie_break=broken, **settings)
    if run.folder is not None:
        text = report.to_json().encode()
        write_whole(run.folder / JUDGED, lambda file: file.write(text))
        kept = {n: v for n, v in report.per_query.items() if n in ("mAP", how.metric)}
        Evidence(kept, codes, found.labels, found.rows, how.relevance, how.exclude_self).save(
            run.folder / EVIDENCE
        )
    return report
