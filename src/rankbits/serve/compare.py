"""Several ways to keep the same items side by side: what each finds for a query, and its tie-aware
AP where the query has a label."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data import items as data_items
from rankbits.data.arrays import read_columns
from rankbits.encoder import Encoder
from rankbits.indexes import HammingIndex
from rankbits.indexes.checks import parse_distinct_ids, parse_ids
from rankbits.indexes.ids import Column
from rankbits.kernels import Words, hamming, words
from rankbits.kernels.questions import order_rows
from rankbits.metrics import average_precision, rank
from rankbits.quantizers import H2Q, ITQ, Sign, SupervisedRotation
from rankbits.quantizers.principal import principal_components
from rankbits.serve.answers import TIES, describe_item
from rankbits.serve.ids import parse_id
from rankbits.serve.items import Items
from rankbits.serve.limits import reject, shorten
from rankbits.types import Codes, Questions


@dataclass(frozen=True, eq=False)
class Method:
    """One way to keep the items: unit float rows (n, dim), or codes.

    ``read`` makes of an embedding (1, dim) what asks: a unit row, codes, or float questions, which
    are made of the items' ``embeddings`` (n, dim) too.
    """

    name: str
    rows: np.ndarray | Words
    bytes: float
    read: Callable[[np.ndarray], np.ndarray | Words | Questions] | None = None
    embeddings: np.ndarray | None = None

    def take(self, row: int) -> np.ndarray | Words | Questions:
        """What asks for an item."""
        if self.read is not None and self.embeddings is not None:
            return self.read(self.embeddings[row : row + 1])
        if isinstance(self.rows, Words):
            return Words(np.ascontiguousarray(self.rows.words[:, row : row + 1]), self.rows.bits)
        return self.rows[row : row + 1]

    def distances(self, query: np.ndarray | Words | Questions) -> np.ndarray:
        """(n,) distances from a query to all items: Hamming, a question's, or 1 - cosine."""
        if isinstance(query, Questions):
            assert isinstance(self.rows, Words)
            return _ask_all(query, self.rows)
        if isinstance(query, Words):
            return hamming(query, self.rows)[0].astype(np.int64)  # type: ignore[arg-type]
        return np.maximum(0, 1 - self.rows @ query[0]).astype(np.float64).round(6)  # type: ignore[operator]


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Methods over the same items.

    >>> rng = np.random.default_rng(0)
    >>> comparison = make_comparison(rng.normal(size=(40, 8)), rng.integers(0, 2, 40), bits=4)
    >>> comparison.names
    ('float', 'sign', 'itq', 'h2q', 'supervised')
    >>> [len(m["bands"][0]["items"]) > 0 for m in comparison.answer("3", 5, None)["methods"]]
    [True, True, True, True, True]
    """

    ids: Column
    methods: tuple[Method, ...]
    labels: np.ndarray | None = field(default=None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(method.name for method in self.methods)

    def answer(self, text: str, k: int, items: Items | None) -> dict[str, Any]:
        name = parse_id(text, self.ids.strings)
        key = np.empty(1, object if self.ids.strings else np.int64)
        key[0] = 0 if name is None else name
        row = int(self.ids.rows_of(key)[0]) if name is not None else -1
        if row < 0 or name is None:
            reject(404, f"There is no item {shorten(text)} to compare.")
        relevant = self._find_relevant(row)
        told = [
            self._judge(method, method.distances(method.take(row)), row, k, items, relevant)
            for method in self.methods
        ]
        return {"query": describe_item(name, items), "methods": told}

    def answer_embedding(self, embedding: np.ndarray, k: int, items: Items | None) -> dict:
        """What each method finds for the embedding (1, dim) of a query that is no item."""
        told = [
            self._judge(method, method.distances(method.read(embedding)), -1, k, items, None)
            for method in self.methods
            if method.read is not None
        ]
        return {"query": {"id": None, "label": None}, "methods": told}

    def _find_relevant(self, row: int) -> np.ndarray | None:
        if self.labels is None:
            return None
        own = self.labels[row]
        alike = self.labels == own if self.labels.ndim == 1 else (self.labels & own).any(axis=1)
        return alike if (self.labels.ndim == 2 or own >= 0) and alike.sum() > 1 else None

    def _judge(
        self,
        method: Method,
        distances: np.ndarray,
        row: int,
        k: int,
        items: Items | None,
        relevant: np.ndarray | None,
    ) -> dict[str, Any]:
        order = np.argsort(distances, kind="stable")[:k]
        bands: list[dict[str, Any]] = []
        for at in order:
            near = distances[at].item()
            if not bands or bands[-1]["distance"] != near:
                bands.append({"distance": near, "items": []})
            bands[-1]["items"].append(describe_item(self.ids.at(at[None]).tolist()[0], items))
        last = bands[-1]
        cut = int((distances == last["distance"]).sum()) - len(last["items"])
        ap = None
        if relevant is not None:
            others = np.arange(len(distances)) != row
            ranking = rank(distances[None, others], relevant[None, others])
            ap = {ties: float(average_precision(ranking, ties=ties)[0]) for ties in TIES}
        bits = method.rows.bits if isinstance(method.rows, Words) else None
        told = {"name": method.name, "bits": bits, "bytes": method.bytes, "ap": ap}
        return {**told, "bands": bands, "cut": cut}


def make_comparison(
    embeddings: Any, labels: Any = None, *, bits: int, ids: Any = None
) -> SideBySide:
    """Fit every method to (n, dim) embeddings. Fewer bits than dimensions: sign, ITQ and H2Q work
    on the principal components. ``supervised`` is there where labels (n,) or multi-hot are; it is
    fitted to the very items it then ranks, so its AP here is that of known classes."""
    value = _check.finite("embeddings", _check.matrix("embeddings", embeddings)).astype(np.float32)
    _check.not_empty("embeddings", len(value))
    ids = range(len(value)) if ids is None else ids
    column = Column(parse_distinct_ids(ids, len(value), "rows"))
    reduce = _fit_reduction(value, bits) if bits < value.shape[1] else np.asarray
    base = reduce(value)
    packed = -(-base.shape[1] // 8)
    methods = [Method("float", _scale(value), 4 * value.shape[1], _scale)]
    for name, quantizer in (("sign", Sign()), ("itq", ITQ()), ("h2q", H2Q())):
        encode = quantizer.fit(base).encode
        methods.append(Method(name, words(encode(base)), packed, partial(_encode, encode, reduce)))
    known = None if labels is None else _check.labels("labels", labels, len(value))
    if known is not None:
        learned = SupervisedRotation(bits=min(bits, value.shape[1])).fit(value, known)
        read = partial(_encode, learned.encode, np.asarray)
        methods.append(Method("supervised", words(learned.encode(value)), packed, read))
    return SideBySide(column, tuple(methods), known)


def compare_with_floats(
    index: HammingIndex, encoder: Encoder, items: data_items.Items
) -> SideBySide:
    """The codes of an index beside the embeddings they were made of: floats asked by floats, bits
    by bits, and bits by floats."""
    embedded = encoder.embed_readable(items)
    ids, embeddings = items.ids[embedded.rows], embedded.embeddings
    codes = index.codes(parse_ids(ids))
    kept, packed = words(codes), codes.packed.shape[1]
    labels = None if items.labels is None else items.labels[embedded.rows]
    methods = (
        Method("float", _scale(embeddings), 4 * embeddings.shape[1], _scale),
        Method("bits", kept, packed, partial(_encode, encoder.encode_embeddings, np.asarray)),
        Method("asked", kept, packed, encoder.ask_embeddings, embeddings),
    )
    return SideBySide(Column(parse_distinct_ids(ids, len(ids), "rows")), methods, labels)


def _ask_all(question: Questions, database: Words) -> np.ndarray:
    every = np.arange(len(database))[None]
    return order_rows(question, database, every)[0].astype(np.float64).round(6)


def _scale(embeddings: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.where(norms > 0, norms, 1)


def _encode(
    encode: Callable[[np.ndarray], Codes],
    reduce: Callable[[np.ndarray], np.ndarray],
    embeddings: np.ndarray,
) -> Words:
    return words(encode(reduce(embeddings)))


def _fit_reduction(value: np.ndarray, bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """What keeps the first ``bits`` principal components (n, bits), not yet rotated by anybody."""
    mean, directions = principal_components(value)

    def reduce(rows: np.ndarray) -> np.ndarray:
        wide = torch.from_numpy(np.asarray(rows, np.float32)).double()
        return ((wide - mean) @ directions[:, :bits]).float().numpy()

    return reduce


def read_comparison(
    path: str | os.PathLike[str], bits: int, items: Items | None = None
) -> SideBySide:
    """Fit the methods to the ``embeddings`` of a file, with its ``labels`` and ``ids``; labels may
    also be those of the items."""
    columns = read_columns(path)
    if "embeddings" not in columns:
        _check.refuse(f"{path} must hold an array called 'embeddings'.")
    ids = columns.get("ids")
    ids = ids.tolist() if ids is not None and ids.dtype.kind == "U" else ids
    labels = columns.get("labels")
    if labels is None and items is not None and items.labels is not None:
        named = parse_distinct_ids(
            range(len(columns["embeddings"])) if ids is None else ids,
            len(columns["embeddings"]),
            "rows",
        )
        rows = items.rows(named)
        labels = items.labels[rows] if (rows >= 0).all() else None
        if labels is not None and labels.ndim == 1 and (labels < 0).any():
            labels = None
    return make_comparison(columns["embeddings"], labels, bits=bits, ids=ids)
