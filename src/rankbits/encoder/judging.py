"""Judge an index by queries: what is relevant comes from the labels of queries and items, or from
judgements."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.items import Items
from rankbits.data.trec import read_qrels
from rankbits.data.vectors import number_names
from rankbits.encoder.encoder import ASKS
from rankbits.encoder.indexing import read_index_items, read_inputs, require_encoder
from rankbits.evaluate import evaluate
from rankbits.indexes import HammingIndex
from rankbits.indexes.checks import parse_ids
from rankbits.indexes.index import Index
from rankbits.types import Codes, Questions, Report


def evaluate_index(
    index: Index,
    queries: Items | str | os.PathLike[str],
    labels: Any = None,
    *,
    ask: str | None = None,
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, int]] | None = None,
    **options: Any,
) -> Report:
    """Judge what ``index`` finds for ``queries`` -> ``Report``; ``options`` as in ``rb.evaluate``.

    Queries and items of the index are relevant to each other if their labels have the same name.
    If the queries are the items themselves, each is left out of its own ranking. ``labels`` (n,)
    replace those of the queries. ``ask="codes"`` ranks by Hamming distance, ``"questions"`` by the
    floats of the queries; None: as the encoder prefers. ``qrels``, a file or
    {query: {item: grade}} by ids, say what is relevant instead of labels; queries that they do not
    name are left out.

    >>> import tempfile
    >>> import rankbits as rb
    >>> names = np.array(["ant", "bee"])[np.arange(40) % 2]
    >>> x = np.random.default_rng(0).normal(size=(40, 8)) + 9 * (names == "bee")[:, None]
    >>> encoder = rb.Encoder.of(rb.Projection(4).fit(x))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/x.npz", embeddings=x.astype(np.float32), labels=names)
    ...     with rb.make_index(encoder, f"{folder}/x.npz", f"{folder}/x.index") as index:
    ...         rb.evaluate_index(index, f"{folder}/x.npz").queries
    40
    """
    encoder = require_encoder(index)
    if qrels is not None:
        if labels is not None:
            _check.refuse("Give labels or qrels, not both.")
        return _evaluate_judged(index, read_inputs(encoder, queries), qrels, ask, options)
    database = _read_database(index)
    same = False
    if not isinstance(queries, Items):
        same = Path(queries).resolve() == Path(index.facts.get("inputs", "")).resolve()
        queries = database if same else read_inputs(encoder, queries)
    if labels is not None:
        if same:
            _check.refuse("The labels of the index's own items are known: leave labels out.")
        _check.same_length("labels", len(labels), "the queries", len(queries))
        names: tuple[str, ...] = ()
        labels = np.asarray(labels)
        if labels.dtype.kind == "U":
            labels, names = number_names(labels.tolist())
        queries = replace(queries, labels=labels, names=names)
    if queries.labels is None:
        _check.refuse("The queries have no labels: put them into a folder for each class.")
    codes = _read_codes(index, database)
    if same:
        asked: Codes | Questions = codes
        if _check.choice("ask", ask or encoder.asks_with, ASKS) == "questions":
            asked = encoder.ask(database, progress=True)
        numbers, _ = _number_alike(database, database)
        return evaluate(asked, codes, numbers, numbers, exclude_self=True, **options)
    if queries.labels.ndim == 1:
        queries = queries.subset(np.flatnonzero(queries.labels >= 0))
    asked = encoder.make_queries(encoder.embed(queries, queries=True, progress=True), ask)
    return evaluate(asked, codes, *_number_alike(queries, database), **options)


def _evaluate_judged(
    index: Index,
    queries: Items,
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, int]],
    ask: str | None,
    options: dict[str, Any],
) -> Report:
    judgements = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    database = _read_database(index, labelled=False)
    columns = {str(name): column for column, name in enumerate(database.ids.tolist())}
    judged = np.flatnonzero([str(name) in judgements for name in queries.ids.tolist()])
    queries = queries.subset(judged)
    grades = np.zeros((len(queries), len(columns)), np.int64)
    for row, name in enumerate(queries.ids.tolist()):
        for item, grade in judgements[str(name)].items():
            if item in columns:
                grades[row, columns[item]] = grade
    if not grades.any():
        _check.refuse("The qrels name no item of the index as relevant to any of the queries.")
    encoder = require_encoder(index)
    asked = encoder.make_queries(encoder.embed(queries, queries=True, progress=True), ask)
    return evaluate(asked, _read_codes(index, database), **options | {"relevance": grades})


def _read_database(index: Index, labelled: bool = True) -> Items:
    """The items that the index holds, read from its inputs; refuses if they are not known, or have
    no labels and must be ``labelled``."""
    items = read_index_items(index)
    if items is None or (labelled and items.labels is None):
        path = index.facts.get("inputs")
        why = "it was made of codes" if path is None else f"{path} is gone or has no labels"
        _check.refuse(f"The labels of this index's items are not known: {why}.")
    if not isinstance(index, HammingIndex):
        if index.count() != len(items):
            _check.refuse(
                f"The index holds {index.count():,} items, but its inputs are now {len(items):,}: "
                "make it again."
            )
        return items
    row = {name: number for number, name in enumerate(items.ids.tolist())}
    ids = index.ids.tolist()
    missing = [name for name in ids if name not in row]
    if missing:
        _check.refuse(
            f"{len(missing):,} items of the index, such as {missing[0]!r}, are no longer among "
            "its inputs: make it again."
        )
    return items.subset(np.array([row[name] for name in ids], np.int64))


def _read_codes(index: Index, database: Items) -> Codes:
    """The codes of the items in the index."""
    return index.codes(parse_ids(database.ids))


def _number_alike(queries: Items, database: Items) -> tuple[np.ndarray, np.ndarray]:
    """The labels of both; if both have names, equal names have equal numbers."""
    assert queries.labels is not None and database.labels is not None
    if queries.labels.ndim != database.labels.ndim:
        _check.refuse("Queries and items must both have one label each, or both several.")
    if not queries.names or not database.names:
        return queries.labels, database.labels
    names = dict.fromkeys([*database.names, *queries.names])
    number = {name: place for place, name in enumerate(names)}
    query_labels = _renumber(queries.labels, queries.names, number)
    return query_labels, _renumber(database.labels, database.names, number)


def _renumber(labels: np.ndarray, names: Sequence[str], number: dict[str, int]) -> np.ndarray:
    """Labels that are numbers of ``names``, with the ``number`` of each name instead."""
    numbers = np.array([number[name] for name in names], np.int64)
    if labels.ndim == 1:
        return np.where(labels < 0, -1, numbers[np.maximum(labels, 0)])
    hot = np.zeros((len(labels), len(number)), bool)
    hot[:, numbers] = labels
    return hot
