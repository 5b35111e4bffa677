"""Turn questions that are not codes into codes, by an encoder or by your own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.encoder import Encoder
from rankbits.serve.asks import Ask
from rankbits.serve.limits import reject
from rankbits.types import Codes
from rankbits.types import Questions as FloatQuestions


@dataclass(frozen=True)
class Questions:
    """``vector``: (n, dim) float32 -> Codes; ``image``: an open file -> Codes; ``text``: str ->
    Codes. Questions of a kind that is None are refused. ``dims`` are the widths a vector may have,
    and ``fingerprint`` that of the encoder, where there is one. ``ask`` makes float questions of
    vectors and ``prefers_floats`` says that this is the better way."""

    vector: Callable[[np.ndarray], Codes] | None = None
    image: Callable[[Any], Codes] | None = None
    text: Callable[[str], Codes] | None = None
    dims: tuple[int, ...] = ()
    bits: int | None = None
    fingerprint: str | None = None
    ask: Callable[[np.ndarray], FloatQuestions] | None = None
    prefers_floats: bool = False

    @property
    def accepts(self) -> tuple[str, ...]:
        return tuple(kind for kind in ("vector", "image", "text") if getattr(self, kind))

    def check_width(self, width: int) -> None:
        """Refuse a vector of another width than ``dims``."""
        if self.dims and width not in self.dims:
            wanted = " or ".join(map(str, self.dims))
            reject(422, f"vector must have {wanted} numbers; got {width:,}.")


def make_questions(encoder: Encoder | Questions | None) -> Questions:
    """What an encoder can be asked. Vectors are its inputs where it reads vectors; embeddings,
    which go through its quantizer alone, are always taken."""
    if isinstance(encoder, Questions) or encoder is None:
        return encoder or Questions()
    reads_vectors = encoder.reads.kind == "features"

    def embed(vectors: np.ndarray) -> np.ndarray:
        inputs = reads_vectors and vectors.shape[1] == encoder.reads.dim
        return encoder.embed(vectors) if inputs else vectors

    def encode_vectors(vectors: np.ndarray) -> Codes:
        return encoder.encode_embeddings(embed(vectors))

    def ask(vectors: np.ndarray) -> FloatQuestions:
        return encoder.ask_embeddings(embed(vectors))

    return Questions(
        encode_vectors,
        None if reads_vectors else encoder.encode_image,
        None,
        tuple(dict.fromkeys([encoder.reads.dim, encoder.dim] if reads_vectors else [encoder.dim])),
        encoder.bits,
        encoder.fingerprint,
        ask,
        encoder.asks_with == "questions",
    )


def make_queries(jobs: Sequence[Ask], questions: Questions) -> None:
    """Fill in codes, or float questions and their codes, of the vectors of a batch: those of one
    width together."""
    groups: dict[tuple[int, bool], list[Ask]] = {}
    for job in jobs:
        assert job.vector is not None
        floats = job.floats
        if floats is None:
            floats = questions.prefers_floats and job.radius is None
        groups.setdefault((len(job.vector), floats), []).append(job)
    for (_, floats), group in groups.items():
        vectors = np.stack([job.vector for job in group if job.vector is not None])
        if floats:
            assert questions.ask is not None
            asked = questions.ask(vectors)
            codes = asked.codes()
        else:
            assert questions.vector is not None
            codes = questions.vector(vectors)
        for row, job in enumerate(group):
            job.code = codes.packed[row].tobytes()
            job.question = asked[row] if floats else None


def check_bits(questions: Questions, bits: int) -> Questions:
    """Refuse an encoder whose codes are not those of the index."""
    if questions.bits is not None and questions.bits != bits:
        _check.refuse(f"The encoder makes codes of {questions.bits} bits; the index holds {bits}.")
    return questions
