"""After training: a quantizer fitted to the run's outputs, and a report by its protocol."""

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
    """The queries and the database of a protocol, each a pair: embeddings, labels, and the
    protocol's rows (those that could be read). Where ``exclude_self`` they are the same."""

    embeddings: tuple[np.ndarray, np.ndarray]
    labels: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray]


def sides(run: Run, how: Protocol, **options: Any) -> Sides:
    """Embed the queries and the database of a protocol; ``options`` are those of ``Run.embed``."""
    found = []
    for rows in (how.queries, how.database)[: 2 - how.exclude_self]:
        part = how.examples.subset(rows)
        seen = run.embed(part, **options)
        found.append((seen.embeddings, part.labels[seen.rows], rows[seen.rows]))
    ours, theirs = found[0], found[-1]
    return Sides((ours[0], theirs[0]), (ours[1], theirs[1]), (ours[2], theirs[2]))


def finish_run(
    run: Run, quantizer: str, *, judge: bool, protocol: Protocol | None = None, **options: Any
) -> Report | None:
    """After training: fit a quantizer on the training rows and keep it in the run. ``judge``: embed
    the queries and the database of ``protocol`` and write ``report.json``, and into
    ``judged.npz`` the codes, the labels and each query's figures, for ``rankbits report``."""
    source = read_source(run.config, protocol)
    made = None
    if quantizer != "none":
        known = run.embed(source.train, progress=True, **options)
        made = make_quantizer(quantizer, run.config.width, run.config.width, True, run.config.seed)
        made.fit(known.embeddings, source.train.labels[known.rows])
        if run.folder is not None:
            made.save(run.folder / QUANTIZER)
    if not judge:
        return None
    how = source.protocol
    if how is None:
        _check.refuse("judge needs a protocol with queries and a database; own data has none.")
    found = sides(run, how, progress=True, **options)
    (ours, theirs), (labels, others) = found.embeddings, found.labels
    settings: dict[str, Any] = {
        "k": how.k, "relevance": how.relevance, "exclude_self": how.exclude_self
    }  # fmt: skip
    codes = None
    if made is None and run.config.head == "embedding":
        report = evaluate(ours, theirs, labels, others, **settings)
    else:
        encode = (made or Sign().fit(ours)).encode
        broken = (ours, theirs) if how.tie_break else None
        codes = (encode(ours), encode(theirs))
        report = evaluate(*codes, labels, others, tie_break=broken, **settings)
    if run.folder is not None:
        text = report.to_json().encode()
        write_whole(run.folder / JUDGED, lambda file: file.write(text))
        kept = {n: v for n, v in report.per_query.items() if n in ("mAP", how.metric)}
        Evidence(kept, codes, found.labels, found.rows, how.relevance, how.exclude_self).save(
            run.folder / EVIDENCE
        )
    return report
