"""TREC's two files: a run (what a system returned) and qrels (what was judged relevant).

run    ``query Q0 document rank score tag``     the score counts, the rank is not read
qrels  ``query 0 document grade``, or ``query document grade`` below a line of names, as in BEIR

As in trec_eval, a document without a judgement is not relevant, and relevant documents that the run
does not return count in the denominators. Unlike trec_eval, which orders equal scores by document
name, equal scores are ties.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankbits import _check
from rankbits.data.tables import read_fields
from rankbits.types import Ranking


@dataclass(frozen=True, eq=False)
class Judged:
    """A run with its judgements: for each query the scores and grades of the documents that the run
    returned, and the grades of the judged documents that it ``missed``."""

    names: tuple[str, ...]
    scores: tuple[np.ndarray, ...]
    grades: tuple[np.ndarray, ...]
    missed: tuple[np.ndarray, ...]
    documents: int
    notes: tuple[str, ...]

    def make_rankings(self, cells: int) -> Iterator[Ranking]:
        """Rankings of as many queries at a time as fit into ``cells`` counts."""
        grade_count = max(1, *(int(g.max(initial=1)) for g in (*self.grades, *self.missed))) + 1
        start = 0
        while start < len(self.names):
            stop, longest = start, 1
            while stop < len(self.names):
                longest = max(longest, len(self.scores[stop]))
                if stop > start and (stop + 1 - start) * longest * grade_count > cells:
                    break
                stop += 1
            yield self._make_ranking(range(start, stop), grade_count)
            start = stop

    def _make_ranking(self, queries: range, grade_count: int) -> Ranking:
        levels = [np.unique(-self.scores[q], return_inverse=True) for q in queries]
        widest = max(1, *(len(values) for values, _ in levels))
        counts = np.zeros((len(queries), widest, grade_count), np.int64)
        distances = np.full((len(queries), widest), np.nan)
        unretrieved = np.zeros((len(queries), grade_count), np.int64)
        for i, (q, (values, level)) in enumerate(zip(queries, levels, strict=True)):
            np.add.at(counts[i], (level, self.grades[q]), 1)
            distances[i, : len(values)] = values
            unretrieved[i] = np.bincount(self.missed[q], minlength=grade_count)
        return Ranking(counts, distances, unretrieved)


def read_judged(
    run: str | os.PathLike[str],
    qrels: str | os.PathLike[str],
    *,
    negative: str = "refuse",
    missing: str = "zero",
) -> Judged:
    """Read a run and its qrels, and join them.

    ``negative="zero"`` counts negative grades (junk, in some collections) as not relevant instead
    of refusing them. ``missing="skip"`` leaves judged queries that the run lacks out of the means,
    as trec_eval does by default; ``"zero"`` counts them as if the run returned nothing for them.
    """
    _check.choice("negative", negative, ("refuse", "zero"))
    _check.choice("missing", missing, ("zero", "skip"))
    judgements = read_qrels(qrels, negative)
    returned = _read_run(run)
    names = [q for q in judgements if missing == "zero" or q in returned]
    if not any(q in returned for q in names):
        _check.refuse(f"{run} and {qrels} have no query in common.")
    scores, grades, missed = [], [], []
    for q in names:
        score_of, grade_of = returned.get(q, {}), judgements[q]
        scores.append(np.fromiter(score_of.values(), np.float64, len(score_of)))
        grades.append(np.fromiter((grade_of.get(d, 0) for d in score_of), np.int64, len(score_of)))
        missed.append(np.array([g for d, g in grade_of.items() if d not in score_of], np.int64))
    notes = []
    absent = sum(q not in returned for q in judgements)
    if absent:
        how = "counted as returning nothing" if missing == "zero" else "left out"
        notes.append(f"{absent:,} judged queries are not in the run: {how}.")
    extra = sum(q not in judgements for q in returned)
    if extra:
        notes.append(f"{extra:,} queries of the run have no judgements: left out.")
    documents = len({d for scored in returned.values() for d in scored})
    return Judged(
        tuple(names), tuple(scores), tuple(grades), tuple(missed), documents, tuple(notes)
    )


def _read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    returned: dict[str, dict[str, float]] = {}
    for number, words in read_fields(path, "query Q0 document rank score tag"):
        query, _, document, _, text, _ = words
        try:
            score = float(text)
        except ValueError:
            score = float("nan")
        if not np.isfinite(score):
            _check.refuse(f"{path} line {number}: the score must be a finite number; got {text!r}.")
        of_query = returned.setdefault(query, {})
        if document in of_query:
            _check.refuse(
                f"{path} line {number}: document {document!r} is returned twice for "
                f"query {query!r}."
            )
        of_query[document] = score
    return returned


def read_qrels(path: str | os.PathLike[str], negative: str = "refuse") -> dict[str, dict[str, int]]:
    """Grades by query and document."""
    judgements: dict[str, dict[str, int]] = {}
    form, skip = ("query document grade", 1) if _is_beir(path) else ("query 0 document grade", 0)
    for number, (query, *_, document, text) in read_fields(path, form, skip):
        try:
            grade = int(text)
        except ValueError:
            _check.refuse(f"{path} line {number}: the grade must be a whole number; got {text!r}.")
        if grade < 0 and negative == "refuse":
            _check.refuse(
                f"{path} line {number}: grades must be non-negative; got {grade} "
                "(negative='zero' counts such as not relevant)."
            )
        if grade > _check.MOST_GRADE:
            _check.refuse(
                f"{path} line {number}: grades must be at most {_check.MOST_GRADE}; got {grade}."
            )
        judgements.setdefault(query, {})[document] = max(grade, 0)
    return judgements


def _is_beir(path: str | os.PathLike[str]) -> bool:
    """Whether the first line of qrels names three columns."""
    try:
        with open(path, encoding="utf-8") as file:
            words = file.readline().split()
    except (OSError, UnicodeDecodeError):
        return False
    return len(words) == 3 and not words[2].lstrip("-").isdigit()
