"""Train by judgements, which say what documents of a batch are relevant to its queries.

All texts are numbered, documents before queries, and the trainer takes the numbers as labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rankbits.data.batches import Batches
from rankbits.data.splits import make_draw, shuffle
from rankbits.losses.protocol import LossWrapper
from rankbits.texts.losses import Judgements, find_unique, grade_pairs, make_ranking_loss

DRAWN = 3  # random documents for each pair of a query and its document


class JudgedLoss(LossWrapper):
    """``loss`` of a batch in which the queries rank the documents.

    ``forward(rows, numbers)`` takes the outputs (n, bits) and the numbers of their texts; those
    from ``documents`` on are queries. ``judgements`` are {query: {document: grade}} by number.
    """

    takes_database = False  # the trainer adds past batches as further rows of the batch

    def __init__(self, loss: str, documents: int, judgements: Judgements, **options: Any) -> None:
        super().__init__()
        self.loss = make_ranking_loss(loss, **options)
        self.documents, self.judgements = documents, judgements

    def forward(self, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        numbers, _, first = find_unique(numbers)
        rows, queries = rows[first], numbers >= self.documents
        grades = grade_pairs(self.judgements, numbers[queries], numbers[~queries])
        grades = grades.float().to(rows.device)
        value: torch.Tensor = self.loss(rows[queries], affinity=grades, database=rows[~queries])
        return value


class PairBatches(Batches):
    """Batches of queries, a relevant document of each, and random documents.

    ``pairs`` (n, 2) are numbers of queries and documents; the random documents are drawn from the
    first ``documents`` texts.

    >>> batches = PairBatches([[8, 0], [9, 1]], 8, 10)
    >>> [sorted(batch)[-2:] for batch in batches]
    [[8, 9]]
    """

    def __init__(self, pairs: Any, documents: int, batch_size: int, **options: int) -> None:
        self.pairs = np.asarray(pairs)
        super().__init__(self.pairs[:, 0], batch_size, **options)
        self.documents, self.size = documents, max(1, batch_size // (2 + DRAWN))

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.size)

    def _draw_batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        order = draw.permutation(self.pairs)
        for start in range(0, len(order), self.size):
            pairs = order[start : start + self.size]
            others = draw.integers(self.documents, size=DRAWN * len(pairs))
            yield np.unique(np.concatenate([pairs.reshape(-1), others]))


def number_judgements(
    qrels: Mapping[str, Mapping[str, int]], documents: Any, queries: Any
) -> tuple[dict[int, dict[int, int]], int]:
    """Judgements by the numbers of texts, and how many judgements name an unknown text.

    >>> number_judgements({"q": {"b": 1, "x": 1}}, ["a", "b"], ["q"])
    ({2: {1: 1}}, 1)
    """
    columns = {str(name): number for number, name in enumerate(documents)}
    rows = {str(name): number for number, name in enumerate(queries, len(documents))}
    judgements: dict[int, dict[int, int]] = {}
    unknown = 0
    for query, grades in qrels.items():
        for document, grade in grades.items():
            if query not in rows or document not in columns:
                unknown += 1
            elif grade > 0:
                judgements.setdefault(rows[query], {})[columns[document]] = grade
    return judgements, unknown


def split_judgements(
    judgements: Judgements, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (n, 2) to train on, and queries (m,) to validate on.

    A ``share`` of the documents is held out, with the queries to which only these are relevant: a
    query whose documents were trained on would be answered better than a new one. If there is no
    such query, a share of the queries is held out.
    """
    draw = make_draw(seed)
    documents = np.unique([document for grades in judgements.values() for document in grades])
    hidden = set(shuffle(documents, draw)[: round(share * len(documents))].tolist())
    held_out = {query for query, grades in judgements.items() if hidden >= grades.keys()}
    if not held_out:
        queries = shuffle(np.array(list(judgements)), draw)
        held_out, hidden = set(queries[: round(share * len(queries))].tolist()), set()
    pairs = [
        (query, document)
        for query, grades in judgements.items()
        for document in grades
        if query not in held_out and document not in hidden
    ]
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(sorted(held_out), np.int64)
