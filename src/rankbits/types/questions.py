"""Questions: queries that keep their floats, to search codes that keep only bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.types.codes import Codes, check_fingerprint, check_prefix
from rankbits.types.decoder import Decoder, freeze, to_float32

LARGEST = 1e30  # largest sum of weights: no distance becomes infinite


@dataclass(frozen=True, eq=False, repr=False)
class Questions:
    """Float queries of codes: ``weights`` float32 (n, bits) hold a number for each bit of a code.

    The distance of a question w to a code s of -1 and +1 is sum_i |w_i| [s_i != sign(w_i)]: the
    Hamming distance with a weight for each bit, 0 where all signs agree. It is half of
    sum_i |w_i| - <w, s>.

    With a ``decoder`` it is the cosine distance, 1 - cos, of the query's own embedding (a row of
    ``vectors`` (n, dim), of unit length) and the embedding that the code stands for; 1 where one of
    the two is zero. A scan then uses -(offset + <w, s>) / length, with ``offsets`` float32 (n,) and
    the length of that embedding, to find the codes worth decoding. Less is nearer.

    ``fingerprint`` names the encoder whose codes may be searched, where it is known.

    >>> questions = Questions([[0.5, -2.0, 0.1]])
    >>> questions
    Questions(1 row of 3 bits)
    >>> questions.codes().signs()
    array([[ 1, -1,  1]], dtype=int8)
    """

    weights: np.ndarray
    offsets: np.ndarray = None  # type: ignore[assignment]
    decoder: Decoder | None = None
    vectors: np.ndarray | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        weights = _check.finite("weights", _check.matrix("weights", self.weights))
        _check.whole("The number of columns (bits)", weights.shape[1], 1)
        offsets = np.zeros(len(weights)) if self.offsets is None else self.offsets
        offsets = _check.finite("offsets", _check.array("offsets", offsets))
        if offsets.shape != (len(weights),):
            _check.refuse(
                f"offsets must have shape ({len(weights)},), one for each question; "
                f"got {offsets.shape}."
            )
        check_fingerprint(self.fingerprint)
        total = np.abs(weights).sum(axis=1, dtype=np.float64) + np.abs(offsets)
        if len(total) and total.max() > LARGEST:
            _check.refuse(
                f"The weights of a question must sum to at most {LARGEST:g}; row {total.argmax()} "
                f"has {total.max():g}."
            )
        object.__setattr__(self, "weights", freeze(to_float32("weights", weights)))
        object.__setattr__(self, "offsets", freeze(to_float32("offsets", offsets)))
        if (self.decoder is None) != (self.vectors is None):
            _check.refuse("Give a decoder and the queries' own vectors together, or neither.")
        if self.decoder is not None:
            self._check_decoder(self.decoder)

    def _check_decoder(self, decoder: Decoder) -> None:
        if not isinstance(decoder, Decoder):
            _check.refuse(f"decoder must be a Decoder; got {type(decoder).__name__}.")
        if decoder.bits != self.bits:
            _check.refuse(
                f"decoder must decode codes of {self.bits} bits, as many as there are weights; "
                f"got {decoder.bits}."
            )
        vectors = _check.finite("vectors", _check.matrix("vectors", self.vectors))
        if vectors.shape != (len(self), decoder.dim):
            _check.refuse(
                f"vectors must have shape ({len(self)}, {decoder.dim}); got {vectors.shape}."
            )
        object.__setattr__(self, "vectors", freeze(to_float32("vectors", vectors)))
        lengths = np.linalg.norm(self.vectors, axis=1)  # type: ignore[arg-type]
        wrong = (np.abs(lengths - 1) > 1e-3) & (lengths > 0)
        if wrong.any():
            row = int(wrong.argmax())
            _check.refuse(f"vectors must have unit length; row {row} has length {lengths[row]:g}.")

    @staticmethod
    def of(decoder: Decoder, vectors: np.ndarray, fingerprint: str | None = None) -> Questions:
        """Questions of ``vectors`` (n, dim), of unit length, to codes that ``decoder`` decodes."""
        directions, mean = decoder.linear
        weights = vectors @ directions.T
        return Questions(weights, vectors @ mean, decoder, vectors, fingerprint)

    @property
    def bits(self) -> int:
        return self.weights.shape[1]

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return f"Questions({len(self):,} row{'' if len(self) == 1 else 's'} of {self.bits} bits)"

    def __getitem__(self, rows: Any) -> Questions:
        """Rows by slice, mask, integers or one integer; always ``Questions``."""
        if isinstance(rows, torch.Tensor):
            rows = rows.cpu().numpy()
        try:
            weights, offsets = self.weights[rows], self.offsets[rows]
        except IndexError:
            _check.refuse(f"Questions of {len(self):,} rows have no rows {rows!r}.")
        vectors = None if self.vectors is None else np.atleast_2d(self.vectors[rows])
        parts = np.atleast_2d(weights), np.atleast_1d(offsets)
        return Questions(*parts, self.decoder, vectors, self.fingerprint)

    def prefix(self, bits: int) -> Questions:
        """The same queries for the first ``bits`` bits of codes; a decoder must be able to decode
        these (``Reconstruction(nested=...)``)."""
        check_prefix(bits, self.bits)
        if self.decoder is None:
            return Questions(self.weights[:, :bits], fingerprint=self.fingerprint)
        return Questions.of(self.decoder.prefix(bits), self.vectors, self.fingerprint)  # type: ignore[arg-type]

    def codes(self) -> Codes:
        """The signs of the weights, for a search by Hamming distance."""
        return Codes(np.packbits(self.weights > 0, axis=1), self.bits, self.fingerprint)
