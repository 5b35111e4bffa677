"""Judge an index by queries with labels or judgements: these, or what the index was made of, say
what is relevant."""

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
from rankbits.encoder.indexing import needs_encoder, read_index_items, read_inputs
from rankbits.evaluate import evaluate
from rankbits.indexes import HammingIndex
from rankbits.indexes.checks import parse_ids
from rankbits.indexes.index import Index
from rankbits.types import Codes, Report


def evaluate_index(
    index: Index,
    queries: Items | str | os.PathLike[str],
    labels: Any = None,
    *,
    ask: str | None = None,
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, int]] | None = None,
    **options: Any,
) -> Report:
    """Judge what ``index`` finds for ``queries`` -> ``Report``, as ``rb.evaluate`` does.

    Queries and the items of the index carry labels by name; where the queries are the items
    themselves, each is left out of its own ranking. ``labels`` (n,) replace those of the queries.
    ``ask="codes"`` ranks by Hamming distance, ``"questions"`` by the floats of the queries; None:
    as the encoder prefers. With ``qrels``, a file or {query: {item: grade}} by ids, these say what
    is relevant, and queries that they do not name are left out.

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
    encoder = needs_encoder(index)
    if qrels is not None:
        if labels is not None:
            _check.refuse("Give labels or qrels, not both.")
        return _evaluate_judged(index, read_inputs(encoder, queries), qrels, ask, options)
    database = _database(index)
    if not isinstance(queries, Items):
        same = Path(queries).resolve() == Path(index.facts.get("inputs", "")).resolve()
        asked = database if same else read_inputs(encoder, queries)
    else:
        same, asked = False, queries
    if labels is not None:
        _check.same_length("labels", len(labels), "the queries", len(asked))
        asked = replace(asked, labels=np.asarray(labels), names=())
        if np.asarray(labels).dtype.kind == "U":
            numbers, names = number_names(np.asarray(labels).tolist())
            asked = replace(asked, labels=numbers, names=names)
    if asked.labels is None:
        _check.refuse("The queries have no labels: put them into a folder for each class.")
    stored = _stored(index, database)
    if same:
        ours, _ = join_labels(database, database)
        if _check.choice("ask", ask or encoder.asks_with, ASKS) == "questions":
            questions = encoder.ask(database, progress=True)
            return evaluate(questions, stored, ours, ours, exclude_self=True, **options)
        return evaluate(stored, stored, ours, ours, exclude_self=True, **options)
    known = np.arange(len(asked))
    if asked.labels.ndim == 1:
        known = np.flatnonzero(asked.labels >= 0)
    embedded = encoder.embed_readable(asked.subset(known), queries=True, progress=True)
    for sentence in embedded.failed[:1]:
        _check.refuse(sentence)
    ours, theirs = join_labels(asked.subset(known), database)
    codes = encoder.make_queries(embedded.embeddings, ask)
    return evaluate(codes, stored, ours, theirs, **options)


def _evaluate_judged(
    index: Index,
    queries: Items,
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, int]],
    ask: str | None,
    options: dict[str, Any],
) -> Report:
    judgements = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    database = _database(index, labelled=False)
    columns = {str(name): column for column, name in enumerate(database.ids.tolist())}
    asked = np.flatnonzero([str(name) in judgements for name in queries.ids.tolist()])
    grades = np.zeros((len(asked), len(columns)), np.int64)
    for row, name in enumerate(queries.ids[asked].tolist()):
        for item, grade in judgements[str(name)].items():
            if item in columns:
                grades[row, columns[item]] = grade
    if not grades.any():
        _check.refuse("The qrels name no item of the index as relevant to any of the queries.")
    encoder = needs_encoder(index)
    embeddings = encoder.embed(queries.subset(asked), queries=True, progress=True)
    codes = encoder.make_queries(embeddings, ask)
    return evaluate(codes, _stored(index, database), **options | {"relevance": grades})


def _database(index: Index, labelled: bool = True) -> Items:
    """The items of the index, those that it still holds, with their labels."""
    items = read_index_items(index)
    if items is None or (labelled and items.labels is None):
        place = index.facts.get("inputs")
        why = "it was made of codes" if place is None else f"{place} is gone or has no labels"
        _check.refuse(f"The labels of this index's items are not known: {why}.")
    if not isinstance(index, HammingIndex):
        if index.count() != len(items):
            _check.refuse(
                f"The index holds {index.count():,} items, but its inputs are now {len(items):,}: "
                "make it again."
            )
        return items
    row = {name: number for number, name in enumerate(items.ids.tolist())}
    held = index.ids.tolist()
    missing = [name for name in held if name not in row]
    if missing:
        _check.refuse(
            f"{len(missing):,} items of the index, such as {missing[0]!r}, are no longer among "
            "its inputs: make it again."
        )
    return items.subset(np.array([row[name] for name in held], np.int64))


def _stored(index: Index, database: Items) -> Codes:
    """The codes of the items, as stored."""
    return index.codes(parse_ids(database.ids))


def join_labels(queries: Items, database: Items) -> tuple[np.ndarray, np.ndarray]:
    """Labels of both, numbered alike where they have names: equal names, equal numbers."""
    assert queries.labels is not None and database.labels is not None
    if queries.labels.ndim != database.labels.ndim:
        _check.refuse("Queries and items must both have one label each, or both several.")
    if not queries.names or not database.names:
        return queries.labels, database.labels
    every = list(dict.fromkeys([*database.names, *queries.names]))
    number = {name: place for place, name in enumerate(every)}
    ours = _renumbered(queries.labels, queries.names, number)
    return ours, _renumbered(database.labels, database.names, number)


def _renumbered(labels: np.ndarray, names: Sequence[str], number: dict[str, int]) -> np.ndarray:
    places = np.array([number[name] for name in names], np.int64)
    if labels.ndim == 1:
        return np.where(labels < 0, -1, places[np.maximum(labels, 0)])
    hot = np.zeros((len(labels), len(number)), bool)
    hot[:, places] = labels
    return hot
