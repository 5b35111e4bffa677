"""Compare several ways to store the same items: what each finds for a query, and its tie-aware AP
where the query has a label."""

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
    """One way to store the items: ``rows`` of unit floats (n, dim), or codes.

    ``read`` turns an embedding (1, dim) into a query: a unit row, codes or float questions. Where
    ``embeddings`` (n, dim) are given, a stored item is read from them too.
    """

    name: str
    rows: np.ndarray | Words
    bytes: float
    read: Callable[[np.ndarray], np.ndarray | Words | Questions] | None = None
    embeddings: np.ndarray | None = None

    def make_query(self, row: int) -> np.ndarray | Words | Questions:
        """Make the query of a stored item."""
        if self.read is not None and self.embeddings is not None:
            return self.read(self.embeddings[row : row + 1])
        if isinstance(self.rows, Words):
            return Words(np.ascontiguousarray(self.rows.words[:, row : row + 1]), self.rows.bits)
        return self.rows[row : row + 1]

    def measure(self, query: np.ndarray | Words | Questions) -> np.ndarray:
        """Measure the distances (n,) to all items: Hamming, a question's, or 1 - cosine."""
        if isinstance(query, Questions):
            assert isinstance(self.rows, Words)
            every = np.arange(len(self.rows))[None]
            return order_rows(query, self.rows, every)[0].astype(np.float64).round(6)
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
        """Say what each method finds for the item whose id is ``text``."""
        name = parse_id(text, self.ids.strings)
        key = np.empty(1, object if self.ids.strings else np.int64)
        key[0] = 0 if name is None else name
        row = int(self.ids.rows_of(key)[0]) if name is not None else -1
        if row < 0 or name is None:
            reject(404, f"There is no item {shorten(text)} to compare.")
        relevant = self._find_relevant(row)
        methods = [
            self._judge(method, method.measure(method.make_query(row)), row, k, items, relevant)
            for method in self.methods
        ]
        return {"query": describe_item(name, items), "methods": methods}

    def answer_embedding(self, embedding: np.ndarray, k: int, items: Items | None) -> dict:
        """Say what each method finds for the embedding (1, dim) of a query that is no item."""
        methods = [
            self._judge(method, method.measure(method.read(embedding)), -1, k, items, None)
            for method in self.methods
            if method.read is not None
        ]
        return {"query": {"id": None, "label": None}, "methods": methods}

    def _find_relevant(self, row: int) -> np.ndarray | None:
        if self.labels is None:
            return None
        label = self.labels[row]
        same = self.labels == label if self.labels.ndim == 1 else (self.labels & label).any(axis=1)
        return same if (self.labels.ndim == 2 or label >= 0) and same.sum() > 1 else None

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
        facts = {"name": method.name, "bits": bits, "bytes": method.bytes, "ap": ap}
        return {**facts, "bands": bands, "cut": cut}


def make_comparison(
    embeddings: Any, labels: Any = None, *, bits: int, ids: Any = None
) -> SideBySide:
    """Fit every method to (n, dim) embeddings. With fewer bits than dimensions sign, ITQ and H2Q
    work on the principal components. ``supervised`` needs labels, (n,) or multi-hot; it is fitted
    to the items that it then ranks, so its AP says nothing about new classes."""
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
    if labels is not None:
        labels = _check.labels("labels", labels, len(value))
        supervised = SupervisedRotation(bits=min(bits, value.shape[1])).fit(value, labels)
        read = partial(_encode, supervised.encode, np.asarray)
        methods.append(Method("supervised", words(supervised.encode(value)), packed, read))
    return SideBySide(column, tuple(methods), labels)


def compare_with_floats(
    index: HammingIndex, encoder: Encoder, items: data_items.Items
) -> SideBySide:
    """Compare the codes of an index with the embeddings they were made of: floats searched by
    floats, bits by bits, and bits by floats."""
    embedded = encoder.embed_readable(items)
    ids, embeddings = items.ids[embedded.rows], embedded.embeddings
    codes = index.codes(parse_ids(ids))
    stored, packed = words(codes), codes.packed.shape[1]
    labels = None if items.labels is None else items.labels[embedded.rows]
    methods = (
        Method("float", _scale(embeddings), 4 * embeddings.shape[1], _scale),
        Method("bits", stored, packed, partial(_encode, encoder.encode_embeddings, np.asarray)),
        Method("asked", stored, packed, encoder.ask_embeddings, embeddings),
    )
    return SideBySide(Column(parse_distinct_ids(ids, len(ids), "rows")), methods, labels)


def _scale(embeddings: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; a row of zeros stays."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.where(norms > 0, norms, 1)


def _encode(
    encode: Callable[[np.ndarray], Codes],
    reduce: Callable[[np.ndarray], np.ndarray],
    embeddings: np.ndarray,
) -> Words:
    return words(encode(reduce(embeddings)))


def _fit_reduction(value: np.ndarray, bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """Make the function that reduces rows to their first ``bits`` principal components."""
    mean, directions = principal_components(value)

    def reduce(rows: np.ndarray) -> np.ndarray:
        wide = torch.from_numpy(np.asarray(rows, np.float32)).double()
        return ((wide - mean) @ directions[:, :bits]).float().numpy()

    return reduce


def read_comparison(
    path: str | os.PathLike[str], bits: int, items: Items | None = None
) -> SideBySide:
    """Fit the methods to the ``embeddings`` of a file, with its ``labels`` and ``ids``; where it
    has no labels, those of the items are used."""
    columns = read_columns(path)
    if "embeddings" not in columns:
        _check.refuse(f"{path} must hold an array called 'embeddings'.")
    ids = columns.get("ids")
    ids = ids.tolist() if ids is not None and ids.dtype.kind == "U" else ids
    labels = columns.get("labels")
    if labels is None and items is not None and items.labels is not None:
        count = len(columns["embeddings"])
        rows = items.rows(parse_distinct_ids(range(count) if ids is None else ids, count, "rows"))
        labels = items.labels[rows] if (rows >= 0).all() else None
        if labels is not None and labels.ndim == 1 and (labels < 0).any():
            labels = None
    return make_comparison(columns["embeddings"], labels, bits=bits, ids=ids)
