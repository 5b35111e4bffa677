"""Questions: queries that keep their floats, asked of codes that keep only bits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.types.codes import Codes, check_fingerprint

LARGEST = 1e30  # sum of weights, so that no distance is infinite


@dataclass(frozen=True, eq=False, repr=False)
class Lengths:
    """The norm of the embedding that a code stands for, as a function of the code alone.

    For a code s of -1 and +1: length(s) = sqrt(s' gram s + 2 linear' s + constant), with ``gram``
    symmetric (bits, bits) and ``linear`` (bits,), float32. A code that stands for nothing, where
    the root is of zero or less, has length 1. Nothing is stored for an item: indexes compute the
    lengths of their codes when they are first needed, and keep them in memory.

    >>> Lengths(np.eye(2), np.zeros(2), 2.0)
    Lengths(of codes of 2 bits)
    """

    gram: np.ndarray
    linear: np.ndarray
    constant: float

    def __post_init__(self) -> None:
        gram = _check.finite("gram", _check.matrix("gram", self.gram)).astype(np.float32)
        linear = _check.finite("linear", _check.array("linear", self.linear)).astype(np.float32)
        bits = len(gram)
        if not bits or gram.shape != (bits, bits) or linear.shape != (bits,):
            _check.refuse(
                "gram must have shape (bits, bits) and linear (bits,); "
                f"got {gram.shape} and {linear.shape}."
            )
        if not np.array_equal(gram, gram.T):
            gram = ((gram + gram.T) / 2).astype(np.float32)
        object.__setattr__(self, "gram", _frozen(gram))
        object.__setattr__(self, "linear", _frozen(linear))
        object.__setattr__(self, "constant", _check.number("constant", self.constant))

    @property
    def bits(self) -> int:
        return len(self.gram)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that differ where the lengths do."""
        state = hashlib.blake2b(np.float64(self.constant).tobytes(), digest_size=8)
        state.update(self.gram.tobytes() + self.linear.tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        return f"Lengths(of codes of {self.bits} bits)"


@dataclass(frozen=True, eq=False, repr=False)
class Questions:
    """Float queries of codes: ``weights`` float32 (n, bits), a number for each bit of a code.

    The distance of a question w to a code s of -1 and +1 is sum_i |w_i| [s_i != sign(w_i)]: the
    Hamming distance with a weight for each bit, 0 where all signs agree. It is half of
    sum_i |w_i| - <w, s>. With ``lengths`` it is -(offset + <w, s>) / length(s), the negated inner
    product with the code's direction; ``offsets`` float32 (n,) are 0 where they are not given and
    mean nothing without lengths. Less is nearer.

    ``fingerprint`` names the encoder whose codes may be asked, where it is known.

    >>> questions = Questions([[0.5, -2.0, 0.1]])
    >>> questions
    Questions(1 row of 3 bits)
    >>> questions.codes().signs()
    array([[ 1, -1,  1]], dtype=int8)
    """

    weights: np.ndarray
    offsets: np.ndarray = None  # type: ignore[assignment]
    lengths: Lengths | None = None
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
        if self.lengths is not None:
            if not isinstance(self.lengths, Lengths):
                _check.refuse(f"lengths must be Lengths; got {type(self.lengths).__name__}.")
            if self.lengths.bits != weights.shape[1]:
                _check.refuse(
                    f"lengths must be of codes of {weights.shape[1]} bits, as the weights are; "
                    f"got {self.lengths.bits}."
                )
        check_fingerprint(self.fingerprint)
        total = np.abs(weights).sum(axis=1, dtype=np.float64) + np.abs(offsets)
        if len(total) and total.max() > LARGEST:
            _check.refuse(
                f"The weights of a question must sum to at most {LARGEST:g}; row {total.argmax()} "
                f"has {total.max():g}."
            )
        object.__setattr__(self, "weights", _frozen(weights.astype(np.float32)))
        object.__setattr__(self, "offsets", _frozen(offsets.astype(np.float32)))

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
        parts = np.atleast_2d(weights), np.atleast_1d(offsets)
        return Questions(*parts, self.lengths, self.fingerprint)

    def codes(self) -> Codes:
        """The signs of the weights: what a search by Hamming distance asks."""
        return Codes(np.packbits(self.weights > 0, axis=1), self.bits, self.fingerprint)


def _frozen(values: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view
