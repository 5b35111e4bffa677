"""Training by judgements: which documents of a batch are relevant to which of its queries.

All texts have numbers, documents before queries, and the trainer takes these as labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.batches import Batches
from rankbits.data.splits import make_draw, shuffle
from rankbits.losses.named import LOSSES
from rankbits.losses.protocol import LossWrapper, takes_database
from rankbits.texts.losses import Judgements, find_different, grade_pairs

DRAWN = 3  # documents of no query beside each pair of a query and its document


class JudgedLoss(LossWrapper):
    """``loss`` of a batch in which the queries rank the documents.

    ``forward(rows, numbers)`` takes the outputs (n, bits) and the numbers of their texts; those
    from ``documents`` on are queries. ``judgements`` are {query: {document: grade}} by number.
    """

    takes_database = False  # past batches are further rows of this one

    def __init__(self, loss: str, documents: int, judgements: Judgements, **options: Any) -> None:
        super().__init__()
        names = tuple(name for name, kind in LOSSES.items() if takes_database(kind))
        self.loss = LOSSES[_check.choice("loss", loss, names)](**options)
        self.documents, self.judgements = documents, judgements

    def forward(self, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        names, _, first = find_different(numbers)
        rows, asking = rows[first], names >= self.documents
        grades = grade_pairs(self.judgements, names[asking], names[~asking]).float().to(rows.device)
        value: torch.Tensor = self.loss(rows[asking], affinity=grades, database=rows[~asking])
        return value


class PairBatches(Batches):
    """Batches of queries, a relevant document of each, and documents that are drawn at random.

    ``pairs`` (n, 2) are numbers of queries and documents; the first ``documents`` texts are drawn
    from.

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

    def _batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        order = draw.permutation(self.pairs)
        for start in range(0, len(order), self.size):
            pairs = order[start : start + self.size]
            others = draw.integers(self.documents, size=DRAWN * len(pairs))
            yield np.unique(np.concatenate([pairs.reshape(-1), others]))


def number_judgements(
    qrels: Mapping[str, Mapping[str, int]], documents: Any, queries: Any
) -> tuple[dict[int, dict[int, int]], int]:
    """Judgements by the numbers of texts, and how many of them name a text that is not there.

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
    """Pairs (n, 2) to train on, and queries (m,) to validate on: a ``share`` of the documents is
    held out, and queries that ask for these alone; or a share of the queries, where each asks for
    others too.

    A query whose documents were trained on would be answered better than new ones are.
    """
    draw = make_draw(seed)
    every = np.unique([document for grades in judgements.values() for document in grades])
    hidden = set(shuffle(every, draw)[: round(share * len(every))].tolist())
    held = {query for query, grades in judgements.items() if hidden >= grades.keys()}
    if not held:
        some = shuffle(np.array(list(judgements)), draw)[: round(share * len(judgements))]
        held, hidden = set(some.tolist()), set()
    pairs = [
        (query, document)
        for query, grades in judgements.items()
        for document in grades
        if query not in held and document not in hidden
    ]
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(sorted(held), np.int64)
