"""Turn questions that are not codes into codes, by an encoder or by your own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.encoder import Encoder
from rankbits.serve.limits import reject
from rankbits.types import Codes


@dataclass(frozen=True)
class Questions:
    """``vector``: (n, dim) float32 -> Codes; ``image``: an open file -> Codes; ``text``: str ->
    Codes. Questions of a kind that is None are refused. ``dims`` are the widths a vector may have,
    and ``fingerprint`` that of the encoder, where there is one."""

    vector: Callable[[np.ndarray], Codes] | None = None
    image: Callable[[Any], Codes] | None = None
    text: Callable[[str], Codes] | None = None
    dims: tuple[int, ...] = ()
    bits: int | None = None
    fingerprint: str | None = None

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

    def encode_vectors(vectors: np.ndarray) -> Codes:
        inputs = reads_vectors and vectors.shape[1] == encoder.reads.dim
        return encoder.encode(vectors) if inputs else encoder.encode_embeddings(vectors)

    return Questions(
        encode_vectors,
        None if reads_vectors else encoder.encode_image,
        None,
        tuple(dict.fromkeys([encoder.reads.dim, encoder.dim] if reads_vectors else [encoder.dim])),
        encoder.bits,
        encoder.fingerprint,
    )


def check_bits(questions: Questions, bits: int) -> Questions:
    """Refuse an encoder whose codes are not those of the index."""
    if questions.bits is not None and questions.bits != bits:
        _check.refuse(f"The encoder makes codes of {questions.bits} bits; the index holds {bits}.")
    return questions
