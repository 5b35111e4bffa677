"""Ranking losses for sentence-transformers' trainer, which calls ``loss(features, labels)``.

Nothing here imports that package: a model is any module that turns tokens into a dictionary with
``sentence_embedding`` in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from rankbits import _check
from rankbits.losses import gather
from rankbits.losses.named import LOSSES
from rankbits.losses.protocol import takes_database
from rankbits.texts.chunks import Column, compute_loss_in_chunks
from rankbits.train.memory import Memory

SIGNS = ("neither", "database", "both")
Judgements = Mapping[int, Mapping[int, int]]


class RankingLoss(torch.nn.Module):
    """A loss of ``rankbits`` for ``SentenceTransformerTrainer``: the batch is the database.

    ``loss`` is a name (``"fastap"``, ``"tie-aware-ap"``, ``"tie-aware-ndcg"``) or a loss of
    ``rankbits.losses``, such as ``Nested(TieAwareNDCG(), (64, 128))``. The columns of the dataset
    decide what is ranked:

    - one text and a ``label``: texts of one class are relevant to each other;
    - a query and a document (and further documents, which are not relevant): each query ranks all
      documents of the batch. A ``label`` is the grade of its pair; without one it is 1. Texts with
      the same tokens are one text, whatever rows they are in;
    - the same with ``judgements``, {query: {document: grade}}, and a ``label`` of numbers (query,
      document, ...): the judgements grade all pairs in the batch, not only those of its rows.

    ``signs`` says whose embeddings become -1 and +1 before they are compared, with the gradient
    passed straight through: ``"database"`` for float queries against bits, ``"both"`` for Hamming
    distance. The tie-aware losses relax signs by tanh and need neither.

    ``chunk`` texts are embedded at a time, twice: a batch of thousands needs the memory of a chunk,
    and the gradient is that of the whole batch. ``memory`` embeddings of past batches are ranked
    too.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss: str | torch.nn.Module = "tie-aware-ndcg",
        *,
        signs: str = "neither",
        chunk: int | None = None,
        memory: int = 0,
        judgements: Judgements | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = make_ranking_loss(loss) if isinstance(loss, str) else loss
        self.signs = _check.choice("signs", signs, SIGNS)
        self.chunk = None if chunk is None else _check.whole("chunk", chunk, 1)
        self.memory = Memory(_check.whole("memory", memory, 0))
        self.judgements = judgements

    def forward(
        self, sentence_features: Iterable[Column], labels: torch.Tensor | None = None
    ) -> torch.Tensor:
        columns = list(sentence_features)
        by_tokens = len(columns) > 1 and self.judgements is None
        names = [name_texts(column) for column in columns] if by_tokens else []
        if self.chunk is None:
            return self._compute([self._embed(column) for column in columns], names, labels)
        return compute_loss_in_chunks(
            self._embed, columns, lambda rows: self._compute(rows, names, labels), self.chunk
        )

    def _embed(self, column: Column) -> torch.Tensor:
        return self.model(dict(column))["sentence_embedding"]  # type: ignore[no-any-return]

    def _compute(
        self, outputs: list[torch.Tensor], names: list[torch.Tensor], labels: torch.Tensor | None
    ) -> torch.Tensor:
        outputs = [output.float() for output in outputs]
        if len(outputs) == 1:
            if labels is None or labels.ndim == 0 or len(labels) != len(outputs[0]):
                _check.refuse("A dataset with one column of texts needs a column 'label'.")
            return self._rank_classes(outputs[0], labels)
        return self._rank_documents(outputs, names, labels)

    def _rank_classes(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows, labels = gather(outputs, labels.to(outputs.device))
        database = self._sign(rows, "database")
        queries = database if self.signs == "both" else rows
        options: dict[str, Any] = {}
        if len(self.memory) or queries is not database:
            past = self.memory.rows.to(rows).reshape(-1, rows.shape[1])
            options = {
                "database": torch.cat([database, past]),
                "database_labels": torch.cat([labels, self.memory.labels.to(labels)]),
                "self_rows": torch.arange(len(rows), device=rows.device),
            }
        value: torch.Tensor = self.loss(queries, labels, **options)
        self._remember(database, labels)
        return value

    def _rank_documents(
        self, outputs: list[torch.Tensor], names: list[torch.Tensor], labels: torch.Tensor | None
    ) -> torch.Tensor:
        """Each different query of the batch ranks the different documents of batch and memory."""
        size, others = len(outputs[0]), len(outputs) - 1
        numbered = labels is not None and labels.ndim == 2
        if numbered != (self.judgements is not None):
            _check.refuse(
                "judgements and a label of numbers (query, document, ...) belong together."
            )
        if labels is not None and numbered:
            if labels.shape[1] != len(outputs):
                _check.refuse(
                    f"A label must number {len(outputs)} texts, a query and its documents; "
                    f"got {labels.shape[1]}."
                )
            names = list(labels.T)
        grades = torch.zeros(others, size, dtype=torch.float64)
        grades[0] = 1.0 if labels is None or numbered else labels.cpu()
        device = outputs[0].device
        pairs = [torch.cat(names[1:]), names[0].repeat(others), grades.view(torch.int64).flatten()]
        facts = torch.stack([part.to(device) for part in pairs], dim=1)
        documents, facts = gather(torch.cat(outputs[1:]), facts)
        queries, query_names = gather(outputs[0], names[0].to(device))
        query_ids, _, query_rows = find_unique(query_names)
        ids, columns, rows = find_unique(facts[:, 0])
        at = torch.searchsorted(query_ids, facts[:, 1].contiguous()) * len(ids) + columns
        table = torch.zeros(len(query_ids) * len(ids), dtype=torch.float64, device=device)
        table.scatter_reduce_(0, at, facts[:, 2].view(torch.float64), "amax")
        table = table.view(len(query_ids), len(ids))
        database = self._sign(documents[rows], "database")
        batch = (database, ids)
        if len(self.memory):
            past = self.memory.labels.to(device)
            absent = ~torch.isin(past, ids)
            database = torch.cat([database, self.memory.rows.to(database)[absent]])
            ids = torch.cat([ids, past[absent]])
            table = torch.nn.functional.pad(table, (0, len(ids) - table.shape[1]))
        if self.judgements is not None:
            table = grade_pairs(self.judgements, query_ids, ids).to(device)
        queries = self._sign(queries[query_rows], "both")
        value: torch.Tensor = self.loss(queries, affinity=table.float(), database=database)
        self._remember(*batch)
        return value

    def _sign(self, rows: torch.Tensor, whose: str) -> torch.Tensor:
        """The signs of embeddings, if ``self.signs`` includes ``whose``; the gradient passes
        through unchanged."""
        if SIGNS.index(self.signs) < SIGNS.index(whose):
            return rows
        return rows + (torch.where(rows > 0, 1.0, -1.0) - rows).detach()

    def _remember(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        if self.model.training and torch.is_grad_enabled():
            self.memory.add(rows.detach(), labels)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings that sentence-transformers writes into a model's card."""
        return {"loss": repr(self.loss), "signs": self.signs, "chunk": self.chunk}


def make_ranking_loss(name: str, **options: Any) -> torch.nn.Module:
    """Make a loss by its name; refuses one that cannot rank a separate database."""
    names = tuple(key for key, kind in LOSSES.items() if takes_database(kind))
    return LOSSES[_check.choice("loss", name, names)](**options)


def name_texts(column: Column) -> torch.Tensor:
    """A number for each text of a batch, int64 (n,): equal for equal tokens, whatever the padding.
    Inputs without tokens are all different."""
    tokens, mask = column.get("input_ids"), column.get("attention_mask")
    if tokens is None or mask is None or tokens.shape != mask.shape:
        size = next(len(value) for value in column.values() if isinstance(value, torch.Tensor))
        return torch.randint(1 << 62, (size,))
    names = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    for token, real in zip(tokens.T, mask.T, strict=True):  # whole numbers wrap around at 2^64
        names = torch.where(real > 0, (names ^ (token + 1)) * 6364136223846793005 + 1, names)
    return names


def find_unique(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The unique numbers in order (u,), the place of each number among them (n,), and the first row
    of each unique number (u,).

    >>> find_unique(torch.tensor([7, 3, 7]))
    (tensor([3, 7]), tensor([1, 0, 1]), tensor([1, 0]))
    """
    unique, places = torch.unique(numbers, return_inverse=True)
    first = torch.full_like(unique, len(numbers))
    rows = torch.arange(len(numbers), device=numbers.device)
    return unique, places, first.scatter_reduce(0, places, rows, "amin")


def grade_pairs(
    judgements: Judgements, queries: torch.Tensor, documents: torch.Tensor
) -> torch.Tensor:
    """The grades float64 (queries, documents) of texts given by number; 0 for an unjudged pair.

    >>> grade_pairs({4: {9: 2}}, torch.tensor([4, 5]), torch.tensor([8, 9]))
    tensor([[0., 2.],
            [0., 0.]], dtype=torch.float64)
    """
    table = torch.zeros(len(queries), len(documents), dtype=torch.float64)
    column = {document: number for number, document in enumerate(documents.tolist())}
    for row, query in enumerate(queries.tolist()):
        for document, grade in judgements.get(query, {}).items():
            if document in column:
                table[row, column[document]] = grade
    return table
