"""After training: fit a quantizer to the run's outputs, and judge it by its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._files import write_whole
from rankbits.data.protocol import Protocol
from rankbits.encoder.folder import QUANTIZER
from rankbits.evaluate import evaluate
from rankbits.quantizers import Sign, make_quantizer
from rankbits.train import Run
from rankbits.train.source import read_source
from rankbits.types import Evidence, Report

JUDGED, EVIDENCE = "report.json", "judged.npz"


@dataclass(frozen=True, eq=False)
class Sides:
    """The queries and the database of a protocol. Each field is a pair (queries, database):
    embeddings, labels, and the rows of the protocol that could be read. With ``exclude_self`` both
    are the same."""

    embeddings: tuple[np.ndarray, np.ndarray]
    labels: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray]


def embed_sides(run: Run, protocol: Protocol, **options: Any) -> Sides:
    """Embed the queries and the database of a protocol; ``options`` are those of ``Run.embed``."""
    sides = []
    for rows in (protocol.queries, protocol.database)[: 2 - protocol.exclude_self]:
        part = protocol.examples.subset(rows)
        embedded = run.embed(part, **options)
        sides.append((embedded.embeddings, part.labels[embedded.rows], rows[embedded.rows]))
    return Sides(*zip(sides[0], sides[-1], strict=True))


def finish_run(
    run: Run, quantizer: str, *, judge: bool, protocol: Protocol | None = None, **options: Any
) -> Report | None:
    """Fit a quantizer to the embeddings of the training rows and save it in the run's folder.

    With ``judge`` also embed the queries and the database of ``protocol``, write ``report.json``,
    and write the codes, the labels and each query's figures into ``judged.npz``, which
    ``rankbits report`` reads."""
    source = read_source(run.config, protocol)
    fitted = None
    if quantizer != "none":
        width, seed = run.config.width, run.config.seed
        embedded = run.embed(source.train, progress=True, **options)
        fitted = make_quantizer(quantizer, width, width, True, seed)
        fitted.fit(embedded.embeddings, source.train.labels[embedded.rows])
        if run.folder is not None:
            fitted.save(run.folder / QUANTIZER)
    if not judge:
        return None
    protocol = source.protocol
    if protocol is None:
        _check.refuse("judge needs a protocol with queries and a database; own data has none.")
    sides = embed_sides(run, protocol, progress=True, **options)
    how: dict[str, Any] = {"relevance": protocol.relevance, "exclude_self": protocol.exclude_self}
    codes = None
    if fitted is None and run.config.head == "embedding":
        report = evaluate(*sides.embeddings, *sides.labels, k=protocol.k, **how)
    else:
        queries, database = sides.embeddings
        encode = (fitted or Sign().fit(queries)).encode
        codes = (encode(queries), encode(database))
        tie_break = sides.embeddings if protocol.tie_break else None
        report = evaluate(*codes, *sides.labels, k=protocol.k, tie_break=tie_break, **how)
    if run.folder is not None:
        text = report.to_json().encode()
        write_whole(run.folder / JUDGED, lambda file: file.write(text))
        figures = {n: v for n, v in report.per_query.items() if n in ("mAP", protocol.metric)}
        evidence = Evidence(figures, codes, sides.labels, sides.rows, **how)
        evidence.save(run.folder / EVIDENCE)
    return report
