"""Make an encoder of texts: a sentence model, unchanged, and bits fitted to its embeddings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._progress import print_line
from rankbits.encoder.encoder import Encoder
from rankbits.encoder.indexing import SHOWN
from rankbits.encoder.texts import read_texts
from rankbits.models.sentences import MINILM, SentenceModel, open_sentence_model
from rankbits.quantizers import make_quantizer
from rankbits.train.embed import Embedded
from rankbits.train.processes import choose_device
from rankbits.train.run import Inputs
from rankbits.train.sentences import describe_cut


def fit_texts(
    texts: Any,
    labels: Any = None,
    *,
    bits: int | None = None,
    model: str | os.PathLike[str] | SentenceModel = MINILM,
    columns: Sequence[str] = (),
    method: str = "auto",
    seed: int = 0,
    device: str = "auto",
    say: Callable[[str], None] = print_line,
) -> Encoder:
    """Make an encoder of texts: a list of strings, or a file or folder of them.

    ``model`` is the folder of a sentence model, its name on the hub, or the PyPI package that
    contains MiniLM. ``method`` is that of ``rankbits fit``: ``auto`` fits to the texts alone,
    because a query may be about anything; "classes" and "supervised" fit to ``labels`` (n,), by
    default the labels in the file. ``columns`` of a table are its text, joined by a space.
    ``device`` is that of the model. Texts that cannot be read are left out and reported to ``say``.

    >>> encoder = fit_texts("texts.jsonl", bits=256)  # doctest: +SKIP
    >>> encoder.encode(["is vitamin D good for bones?"])  # doctest: +SKIP
    Codes(1 row of 256 bits)
    >>> fit_texts(7)
    Traceback (most recent call last):
    rankbits._check.Refusal: texts must be strings, or a file of them; got int.
    """
    items = read_texts("texts", texts, columns)
    if not isinstance(model, SentenceModel):
        model = open_sentence_model(model, str(choose_device(device)))
    reads = Inputs("texts", dim=model.dim)
    embedded = Encoder(reads, model, columns=tuple(columns)).embed_readable(items, progress=True)
    if not len(embedded.rows):
        _check.refuse(f"None of {len(items):,} texts can be read; {embedded.failed[0]}")
    tell_left_out(embedded, model, say)
    readable = items.subset(embedded.rows)
    if labels is not None:
        _check.same_length("labels", len(labels), "the texts", len(items))
        labels = np.asarray(labels)[embedded.rows]
    elif readable.labels is not None and (readable.labels.ndim == 2 or readable.labels.min() >= 0):
        labels = readable.labels
    quantizer = make_quantizer(method, bits, model.dim, False, seed)
    say(f"fit {quantizer} on {len(readable):,} x {model.dim}")
    quantizer.fit(embedded.embeddings, labels)
    return Encoder(reads, model, quantizer, columns=tuple(columns), class_names=readable.names)


def tell_left_out(embedded: Embedded, model: object, say: Callable[[str], None]) -> None:
    """Tell ``say`` the first inputs that could not be read, and how many texts were cut."""
    for sentence in embedded.failed[:SHOWN]:
        say(f"left out: {sentence}")
    if len(embedded.failed) > SHOWN:
        say(f"left out in all: {len(embedded.failed):,}.")
    if embedded.cut and isinstance(model, SentenceModel):
        say(describe_cut(model, embedded.cut))
