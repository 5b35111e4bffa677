"""Judge codes, embeddings or a run: every figure, with the range that the order of ties leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbits import _check
from rankbits.data.trec import Judged
from rankbits.evaluate.figures import choose_figures, make_report, note_dropped
from rankbits.evaluate.rankings import (
    COUNTS,
    rank_by_counts,
    rank_by_embeddings,
    rank_by_questions,
)
from rankbits.types import Codes, Questions, Report
from rankbits.types.codes import check_same_encoder

BY_CODES = "Ranked by Hamming distance; ties averaged over all their orders."
BROKEN = (
    "H2Q's published protocol: Hamming distance, ties broken by the squared Euclidean "
    "distance of unit-length embeddings. Not a pure Hamming ranking."
)
BY_QUESTIONS = (
    "Ranked by the distance of float questions to the codes; ties averaged over all their orders."
)
BY_FLOATS = "Ranked by the {} distance of float embeddings; ties averaged over all their orders."


def evaluate(
    query_codes: Any,
    database_codes: Any,
    query_labels: Any = None,
    database_labels: Any = None,
    *,
    k: Any = (10, 100, 1000),
    radius: int = 2,
    relevance: Any = "any",
    gain: str = "exp2",
    tie_break: tuple[Any, Any] | None = None,
    exclude_self: bool = False,
    distance: str = "cosine",
    only: Sequence[str] | None = None,
) -> Report:
    """Judge a ranking by Hamming distance, or by the distance of embeddings -> ``Report``.

    Labels are (n,) whole numbers or names, or (n, C) multi-hot; or ``relevance`` is the (Q, N)
    grades. ``k`` are the cutoffs; those past the end of the database are left out.
    ``exclude_self``: the queries are the database, and each leaves itself out. ``only``: the names
    of the figures to compute, where all would take too long.

    ``query_codes`` and ``database_codes`` are ``Codes``, or embeddings, (n, dim) floats, which are
    ranked by ``distance``, ``"cosine"`` or ``"euclidean"``, to compare their codes with. Or the
    queries are ``Questions``, ranked by their float distance to the codes.

    ``tie_break=(query_embeddings, database_embeddings)`` is the protocol of H2Q's published tables:
    equal Hamming distances are ordered by the squared Euclidean distance of the unit-length
    embeddings. That is not a pure Hamming ranking, and the report says so.

    >>> import rankbits as rb
    >>> report = rb.evaluate(rb.pack([[1, 1]]), rb.pack([[1, 1], [1, -1], [1, -1]]), [7], [7, 7, 3],
    ...                      k=1)
    >>> print(f"{report['mAP']:.4f} {report.figures['mAP'].worst:.4f} {report['hit@1']:.1f}")
    0.9167 0.8333 1.0
    >>> rb.evaluate([[1.0, 0.0]], [[1.0, 0.1], [0.0, 1.0]], [7], [7, 3], k=1)["mAP"]
    1.0
    """
    _check.not_empty("queries", len(query_codes))
    points = tuple(at for at in _check.cutoffs(k) if at <= len(database_codes) - exclude_self)
    radius = _check.whole("radius", radius, 0)
    if exclude_self and database_labels is None:
        database_labels = query_labels
    query_labels, database_labels = _check.number_names(query_labels, database_labels)
    labels = (query_labels, database_labels, relevance)
    pair = (query_codes, database_codes)
    query_encoder, database_encoder = (getattr(codes, "fingerprint", None) for codes in pair)
    if isinstance(query_codes, Questions):
        kind = "questions"
        if not isinstance(database_codes, Codes):
            _check.refuse(f"Questions are asked of Codes; got {type(database_codes).__name__}.")
    else:
        kind = "codes" if any(isinstance(codes, Codes) for codes in pair) else "embeddings"
    check_same_encoder(query_encoder, database_encoder, "the database", kind)
    if tie_break is not None and kind != "codes":
        _check.refuse(f"tie_break belongs to codes; {kind} were given.")
    if kind == "embeddings":
        rankings = rank_by_embeddings(pair, *labels, distance=distance, exclude_self=exclude_self)
        protocol = BY_FLOATS.format(distance)
    elif kind == "questions":
        _check.same_bits(query_codes.bits, database_codes.bits)
        rankings = rank_by_questions(query_codes, database_codes, *labels, exclude_self)
        protocol = BY_QUESTIONS
    elif tie_break is None:
        rankings = rank_by_counts(query_codes, database_codes, *labels, exclude_self)
        protocol = BY_CODES
    else:
        if not isinstance(tie_break, (tuple, list)) or len(tie_break) != 2:
            _check.refuse("tie_break must be (query_embeddings, database_embeddings).")
        rankings = rank_by_embeddings(
            (tie_break[0], tie_break[1]), *labels, codes=pair, exclude_self=exclude_self
        )
        protocol = BROKEN
    by_hamming = kind == "codes" and tie_break is None
    table = choose_figures(points, gain, radius if by_hamming else None)
    if only is not None:
        for name in only:
            _check.choice("A figure of only", name, tuple(row[0] for row in table))
        table = [row for row in table if row[0] in only]
    return make_report(
        rankings,
        table,
        protocol=protocol,
        database=len(database_codes) - exclude_self,
        bits=None if kind == "embeddings" else query_codes.bits,
        notes=note_dropped(k, points, len(database_codes) - exclude_self),
    )


def evaluate_run(judged: Judged, *, k: Any = (10, 100, 1000), gain: str = "exp2") -> Report:
    """Judge a retrieval run by relevance judgements (TREC's two files), equal scores as ties.

    >>> import tempfile, pathlib
    >>> from rankbits.data.trec import read_judged
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "run").write_text("q1 Q0 a 1 2.0 x\\nq1 Q0 b 2 2.0 x\\n")
    >>> _ = (folder / "qrels").write_text("q1 0 a 1\\n")
    >>> evaluate_run(read_judged(folder / "run", folder / "qrels"), k=1)["mAP"]
    0.75
    """
    return make_report(
        judged.make_rankings(COUNTS),
        choose_figures(_check.cutoffs(k), gain, None),
        protocol="Ranked by the run's scores; equal scores averaged over all their orders.",
        database=judged.documents,
        bits=None,
        notes=judged.notes,
        queries=len(judged.names),
    )
