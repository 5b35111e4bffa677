"""Turn vectors, images and texts into codes or float questions, by an encoder or your functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._check import Refusal
from rankbits.encoder import Encoder
from rankbits.serve.asks import Ask
from rankbits.serve.limits import Rejected, reject
from rankbits.types import Codes, Questions


@dataclass(frozen=True)
class QueryReader:
    """How a service reads queries; a kind of query whose function is None is refused.

    ``vector``: (n, dim) float32 -> Codes. ``image``: an open file, and ``text``: str -> one row of
    Codes, or one embedding, which is then read as a vector. ``texts``: list of str -> Codes, for
    texts that are added. ``dims``: the widths that a vector may have. ``fingerprint``: that of the
    encoder, where there is one. ``ask``: vectors -> float questions; ``prefers_floats``: searches
    use them unless the request says otherwise.
    """

    vector: Callable[[np.ndarray], Codes] | None = None
    image: Callable[[Any], Codes | np.ndarray] | None = None
    text: Callable[[str], Codes | np.ndarray] | None = None
    dims: tuple[int, ...] = ()
    bits: int | None = None
    fingerprint: str | None = None
    ask: Callable[[np.ndarray], Questions] | None = None
    prefers_floats: bool = False
    texts: Callable[[list[str]], Codes] | None = None

    @property
    def accepts(self) -> tuple[str, ...]:
        return tuple(kind for kind in ("vector", "image", "text") if getattr(self, kind))

    def check_width(self, width: int) -> None:
        """Refuse a vector of another width than ``dims``."""
        if self.dims and width not in self.dims:
            widths = " or ".join(map(str, self.dims))
            reject(422, f"vector must have {widths} numbers; got {width:,}.")

    def check_floats(self, floats: bool | None) -> None:
        """Refuse a search by floats where nothing makes float questions."""
        if floats and self.ask is None:
            reject(422, "This service has no encoder that keeps floats: search by bits.")


def make_reader(encoder: Encoder | QueryReader | None) -> QueryReader:
    """Make the reader of an encoder. A vector may always be an embedding, which only the quantizer
    sees; where the encoder reads vectors, it may be an input too."""
    if isinstance(encoder, QueryReader) or encoder is None:
        return encoder or QueryReader()
    reads_vectors = encoder.reads.kind == "features"

    def embed(vectors: np.ndarray) -> np.ndarray:
        inputs = reads_vectors and vectors.shape[1] == encoder.reads.dim
        return encoder.embed(vectors) if inputs else vectors

    def embed_text(text: str) -> np.ndarray:
        return encoder.embed([text], queries=True)

    kind = encoder.reads.kind
    return QueryReader(
        lambda vectors: encoder.encode_embeddings(embed(vectors)),
        encoder.embed_image if kind == "images" else None,
        embed_text if kind == "texts" else None,
        tuple(dict.fromkeys([encoder.reads.dim, encoder.dim] if reads_vectors else [encoder.dim])),
        encoder.bits,
        encoder.fingerprint,
        lambda vectors: encoder.ask_embeddings(embed(vectors)),
        encoder.asks_with == "questions",
        encoder.encode if kind == "texts" else None,
    )


def read_query(ask: Ask, reader: QueryReader, read: Callable[[Any], Any], value: Any) -> None:
    """Fill in the code of an image or a text, and its float question where floats are asked for."""
    try:
        query = read(value)
    except Refusal as sentence:
        raise Rejected(422, str(sentence)) from sentence
    if isinstance(query, Codes):
        if ask.floats:
            reject(422, "This service makes a code of it, which has no floats: search by bits.")
        ask.code = query.packed[0].tobytes()
        return
    ask.vector = np.asarray(query, np.float32).reshape(-1)
    make_queries([ask], reader)
    if ask.refusal is not None:
        raise ask.refusal


def make_queries(asks: Sequence[Ask], reader: QueryReader) -> None:
    """Fill in the codes of a batch of vectors, those of one width together, and their float
    questions where floats are asked for. A vector that the encoder refuses fails alone."""
    groups: dict[tuple[int, bool], list[Ask]] = {}
    for ask in asks:
        assert ask.vector is not None
        floats = ask.floats
        if floats is None:
            floats = reader.prefers_floats and ask.radius is None
        groups.setdefault((len(ask.vector), floats), []).append(ask)
    for (_, floats), group in groups.items():
        try:
            _encode(group, reader, floats)
        except Refusal:
            for ask in group:
                try:
                    _encode([ask], reader, floats)
                except Refusal as sentence:
                    ask.refusal = Rejected(422, str(sentence))


def _encode(asks: Sequence[Ask], reader: QueryReader, floats: bool) -> None:
    vectors = np.stack([ask.vector for ask in asks if ask.vector is not None])
    if floats:
        assert reader.ask is not None
        questions = reader.ask(vectors)
        codes = questions.codes()
    else:
        assert reader.vector is not None
        codes = reader.vector(vectors)
    for row, ask in enumerate(asks):
        ask.code = codes.packed[row].tobytes()
        ask.question = questions[row] if floats else None


def check_bits(reader: QueryReader, bits: int) -> QueryReader:
    """Refuse an encoder whose codes have not the index's number of bits."""
    if reader.bits is not None and reader.bits != bits:
        _check.refuse(f"The encoder makes codes of {reader.bits} bits; the index holds {bits}.")
    return reader
