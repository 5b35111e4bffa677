"""SciFact and CLINC150 as sets of texts, split into training, validation and test parts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SETS = ("scifact", "clinc150")
Judgements = dict[int, dict[int, int]]


@dataclass(frozen=True)
class Split:
    """Queries and a database, rows of ``TextSet.texts``, and how they are graded."""

    queries: np.ndarray
    database: np.ndarray
    labels: tuple[np.ndarray, np.ndarray] | None = None
    judgements: Judgements | None = None  # by rows of texts

    def find_new(self, train: np.ndarray) -> np.ndarray | None:
        """The queries none of whose relevant documents is one of a training pair, bool (Q,)."""
        if self.judgements is None:
            return None
        seen = set(train[:, 1].tolist())
        return np.array([not seen & self.judgements[q].keys() for q in self.queries.tolist()])

    def grading(self) -> dict[str, Any]:
        """What ``rankbits.evaluate`` must be told."""
        if self.labels is not None:
            return {"query_labels": self.labels[0], "database_labels": self.labels[1]}
        assert self.judgements is not None
        place = {row: column for column, row in enumerate(self.database.tolist())}
        grades = np.zeros((len(self.queries), len(self.database)), np.int64)
        for number, query in enumerate(self.queries.tolist()):
            for document, grade in self.judgements[query].items():
                grades[number, place[document]] = grade
        return {"relevance": grades}


@dataclass(frozen=True)
class TextSet:
    """All texts of a set; rows to train on, rows to choose settings by, rows to judge on."""

    texts: list[str]
    train: np.ndarray  # (query, document) rows, or (text, label)
    choosing: np.ndarray  # as ``train``, without what ``validation`` asks
    judgements: Judgements | None
    documents: np.ndarray  # rows that may be drawn as documents of no query
    validation: Split
    test: Split


def read_set(name: str) -> TextSet:
    root = Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")
    return {"scifact": _read_scifact, "clinc150": _read_clinc}[name](root / name)


def _read_scifact(folder: Path) -> TextSet:
    """Abstracts with their titles. Validation asks the training queries of every fifth abstract,
    and ``choosing`` has none of those abstracts: what is chosen must hold for new ones."""
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").open()]
    asked = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    texts = [f"{row['title']} {row['text']}" for row in corpus] + [row["text"] for row in asked]
    documents = {row["_id"]: at for at, row in enumerate(corpus)}
    queries = {row["_id"]: at + len(corpus) for at, row in enumerate(asked)}

    def read(part: str) -> Judgements:
        judged: Judgements = {}
        for line in (folder / f"qrels_{part}.tsv").read_text().splitlines()[1:]:
            query, document, grade = line.split("\t")
            judged.setdefault(queries[query], {})[documents[document]] = int(grade)
        return dict(sorted(judged.items()))

    train, test = read("train"), read("test")
    held = set(sorted({d for judged in train.values() for d in judged})[::5])
    asking = {q: judged for q, judged in train.items() if held >= judged.keys()}
    pairs = np.array([(q, d) for q, judged in train.items() for d in judged])
    free = [not held & train[q].keys() for q in pairs[:, 0]]
    everything = np.arange(len(corpus))

    def split(judged: Judgements) -> Split:
        return Split(np.array(list(judged)), everything, judgements=judged)

    return TextSet(
        texts, pairs, pairs[free], train, everything, split(asking), split(test),
    )  # fmt: skip


def _read_clinc(folder: Path) -> TextSet:
    """Intents as classes. Ten test texts of each ask for the other twenty, none seen in training;
    five validation texts of each ask for the other fifteen."""
    parts = json.loads((folder / "data_full.json").read_text())
    numbers = {intent: at for at, intent in enumerate(sorted({i for _, i in parts["train"]}))}
    texts: list[str] = []
    rows: dict[str, np.ndarray] = {}
    for part in ("train", "val", "test"):
        first = len(texts)
        texts += [text for text, _ in parts[part]]
        labels = [numbers[intent] for _, intent in parts[part]]
        rows[part] = np.stack([np.arange(first, len(texts)), labels], axis=1)

    def split(part: str, asking: int) -> Split:
        every = rows[part]
        place = np.array([(every[:at, 1] == label).sum() for at, label in enumerate(every[:, 1])])
        queries, database = every[place < asking], every[place >= asking]
        return Split(queries[:, 0], database[:, 0], (queries[:, 1], database[:, 1]))

    train = rows["train"]
    return TextSet(
        texts, train, train, None, train[:, 0], split("val", 5), split("test", 10)
    )  # fmt: skip
