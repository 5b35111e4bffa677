"""Ranking losses in the convention of sentence-transformers' trainer: ``loss(features, labels)``.

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
from rankbits.texts.chunks import Column, two_pass
from rankbits.train.memory import Memory

SIGNS = ("neither", "database", "both")
Judgements = Mapping[int, Mapping[int, int]]


class RankingLoss(torch.nn.Module):
    """A loss of ours inside ``SentenceTransformerTrainer``: the batch is the database.

    ``loss`` is a name (``"fastap"``, ``"tie-aware-ap"``, ``"tie-aware-ndcg"``) or a loss of
    ``rankbits.losses``, such as ``Nested(TieAwareNDCG(), (64, 128))``. The columns of the dataset
    decide what is ranked:

    - one text and a ``label``: texts of one class are relevant to each other;
    - a query and a document (and further documents, which are not relevant): each query ranks all
      documents of the batch. A ``label`` is the grade of its pair; without one it is 1. Texts with
      the same tokens are one text, whatever row they stand in;
    - the same with ``judgements``, {query: {document: grade}}, and a ``label`` of numbers (query,
      document, ...): the grades of all pairs in the batch, not only of its rows.

    ``signs`` says whose embeddings become -1 and +1 before they are compared, with the gradient
    passed straight through: ``"database"`` for float questions asked of bits, ``"both"`` for
    Hamming distance. The tie-aware losses relax signs by tanh and need neither.

    ``chunk`` texts are embedded at a time, twice: batches of thousands in the memory of a few, and
    the gradient is that of the whole batch. ``memory`` embeddings of past batches are ranked, too.
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
        names = tuple(name for name, kind in LOSSES.items() if takes_database(kind))
        self.loss = LOSSES[_check.choice("loss", loss, names)]() if isinstance(loss, str) else loss
        self.signs = _check.choice("signs", signs, SIGNS)
        self.chunk = None if chunk is None else _check.whole("chunk", chunk, 1)
        self.memory = Memory(_check.whole("memory", memory, 0))
        self.judgements = judgements

    def forward(
        self, sentence_features: Iterable[Column], labels: torch.Tensor | None = None
    ) -> torch.Tensor:
        columns = list(sentence_features)
        named = len(columns) > 1 and self.judgements is None
        names = [name_texts(column) for column in columns] if named else []
        if self.chunk is None:
            return self._find_loss([self._embed(column) for column in columns], names, labels)
        return two_pass(
            self._embed, columns, lambda rows: self._find_loss(rows, names, labels), self.chunk
        )

    def _embed(self, column: Column) -> torch.Tensor:
        return self.model(dict(column))["sentence_embedding"]  # type: ignore[no-any-return]

    def _find_loss(
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
        queries, asked = gather(outputs[0], names[0].to(device))
        query_ids, _, query_rows = find_different(asked)
        ids, columns, rows = find_different(facts[:, 0])
        at = torch.searchsorted(query_ids, facts[:, 1].contiguous()) * len(ids) + columns
        table = torch.zeros(len(query_ids) * len(ids), dtype=torch.float64, device=device)
        table.scatter_reduce_(0, at, facts[:, 2].view(torch.float64), "amax")
        table = table.view(len(query_ids), len(ids))
        database = self._sign(documents[rows], "database")
        batch = (database, ids)
        if len(self.memory):
            past = self.memory.labels.to(device)
            kept = ~torch.isin(past, ids)
            database = torch.cat([database, self.memory.rows.to(database)[kept]])
            ids = torch.cat([ids, past[kept]])
            table = torch.nn.functional.pad(table, (0, len(ids) - table.shape[1]))
        if self.judgements is not None:
            table = grade_pairs(self.judgements, query_ids, ids).to(device)
        asking = self._sign(queries[query_rows], "both")
        value: torch.Tensor = self.loss(asking, affinity=table.float(), database=database)
        self._remember(*batch)
        return value

    def _sign(self, rows: torch.Tensor, whose: str) -> torch.Tensor:
        """Signs in place of embeddings, where ``signs`` wants them; their gradient is that of the
        embeddings."""
        if SIGNS.index(self.signs) < SIGNS.index(whose):
            return rows
        return rows + (torch.where(rows > 0, 1.0, -1.0) - rows).detach()

    def _remember(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        if self.model.training and torch.is_grad_enabled():
            self.memory.add(rows.detach(), labels)

    def get_config_dict(self) -> dict[str, Any]:
        """What sentence-transformers writes into a model's card."""
        return {"loss": repr(self.loss), "signs": self.signs, "chunk": self.chunk}


def name_texts(column: Column) -> torch.Tensor:
    """A number for each text of a batch, int64 (n,): the same for the same tokens, whatever the
    padding. Inputs without tokens are all different."""
    tokens, mask = column.get("input_ids"), column.get("attention_mask")
    if tokens is None or mask is None or tokens.shape != mask.shape:
        size = next(len(value) for value in column.values() if isinstance(value, torch.Tensor))
        return torch.randint(1 << 62, (size,))
    names = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    for token, real in zip(tokens.T, mask.T, strict=True):  # whole numbers wrap around at 2^64
        names = torch.where(real > 0, (names ^ (token + 1)) * 6364136223846793005 + 1, names)
    return names


def find_different(names: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The different names in order (u,), which of them each name is (n,), and where each of them
    comes first (u,).

    >>> find_different(torch.tensor([7, 3, 7]))
    (tensor([3, 7]), tensor([1, 0, 1]), tensor([1, 0]))
    """
    different, which = torch.unique(names, return_inverse=True)
    first = torch.full_like(different, len(names))
    places = torch.arange(len(names), device=names.device)
    return different, which, first.scatter_reduce(0, which, places, "amin")


def grade_pairs(
    judgements: Judgements, queries: torch.Tensor, documents: torch.Tensor
) -> torch.Tensor:
    """Grades float64 (queries, documents) of texts by their numbers; 0 where there is none.

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
