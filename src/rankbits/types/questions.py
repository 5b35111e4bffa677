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
class Decoder:
    """The embeddings that codes stand for: ``centre`` and, of each group of bits, one vector.

    ``atoms`` float32 (groups, 2**g, dim) hold the vector of each value of each group of g
    neighbouring bits, g = 1, 2, 4 or 8; a code stands for ``centre`` (dim,) + the sum of the
    vectors that its groups choose. The last group may be cut short by ``bits``.

    >>> decoder = Decoder(np.array([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]]), bits=2)
    >>> decoder.decode(Codes(np.array([[0b01000000]], np.uint8), 2))
    array([[0., 2.]], dtype=float32)
    """

    atoms: np.ndarray
    centre: np.ndarray = None  # type: ignore[assignment]
    bits: int = 0

    def __post_init__(self) -> None:
        atoms = _check.finite("atoms", _check.array("atoms", self.atoms))
        if atoms.ndim != 3 or atoms.shape[1] not in (2, 4, 16, 256) or not atoms.size:
            _check.refuse(
                f"atoms must have shape (groups, 2, 4, 16 or 256, dim); got {tuple(atoms.shape)}."
            )
        centre = np.zeros(atoms.shape[2]) if self.centre is None else self.centre
        centre = _check.finite("centre", _check.array("centre", centre))
        if centre.shape != (atoms.shape[2],):
            _check.refuse(f"centre must have shape ({atoms.shape[2]},); got {centre.shape}.")
        object.__setattr__(self, "atoms", _freeze(_float32("atoms", atoms)))
        object.__setattr__(self, "centre", _freeze(_float32("centre", centre)))
        most = self.group * len(atoms)
        bits = _check.whole("bits", self.bits or most, 1)
        if not most - self.group < bits <= most:
            _check.refuse(f"{len(atoms)} groups of {self.group} bits do not make {bits} bits.")
        object.__setattr__(self, "bits", bits)

    @property
    def group(self) -> int:
        """Bits that choose one vector."""
        return self.atoms.shape[1].bit_length() - 1

    @property
    def dim(self) -> int:
        return self.atoms.shape[2]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that differ where the embeddings do."""
        state = hashlib.blake2b(str((self.atoms.shape, self.bits)).encode(), digest_size=8)
        state.update(self.atoms.tobytes() + self.centre.tobytes())
        return state.hexdigest()

    def choices(self, packed: np.ndarray) -> np.ndarray:
        """The value of each group, uint8 (n, groups), of packed codes (n, bytes)."""
        parts = 8 // self.group
        shifts = np.arange(parts - 1, -1, -1, dtype=np.uint8) * np.uint8(self.group)
        values = (packed[:, :, None] >> shifts) & np.uint8(len(self.atoms[0]) - 1)
        return np.ascontiguousarray(values.reshape(len(packed), -1)[:, : len(self.atoms)])

    def decode(self, codes: Codes) -> np.ndarray:
        """The embeddings (n, dim) float32 that ``codes`` stand for."""
        _check.same_bits(codes.bits, self.bits)
        out = np.tile(self.centre, (len(codes), 1))
        for group, values in enumerate(self.choices(codes.packed).T):
            out += self.atoms[group, values]
        return out

    def byte_tables(self, vectors: np.ndarray) -> np.ndarray:
        """float64 (n, bytes, 256): what each value of each byte of a code adds to the product of
        its embedding with each of ``vectors`` (n, dim); the first byte adds the centre's too.

        The tables of a vector have the same digits alone and in company: it is multiplied in whole
        steps, few enough that every sum is exact, in whatever order it is taken.
        """
        atoms, atom_step = self._whole_atoms
        rows = np.asarray(vectors, np.float64)
        steps = _choose_steps(np.linalg.norm(rows, axis=1), 24)[:, None]
        products = np.rint(rows / steps) @ atoms.T * (steps * atom_step)
        values, parts = self.atoms.shape[1], 8 // self.group
        places = -(-len(self.atoms) // parts)
        padded = np.zeros((len(rows), places * parts, values))
        padded[:, : len(self.atoms)] = products.reshape(len(rows), len(self.atoms), values)
        by_byte = padded.reshape(len(rows), places, parts, values)
        byte = np.arange(256)
        tables = np.zeros((len(rows), places, 256))
        for part in range(parts):
            shift = 8 - self.group * (part + 1)
            tables += by_byte[:, :, part, (byte >> shift) & (values - 1)]
        return tables

    @cached_property
    def _whole_atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms, the first group's with the centre added, in whole steps: float64 (groups x values,
        dim), and the step."""
        atoms = self.atoms.astype(np.float64)
        atoms[0] += self.centre
        step = _choose_steps(np.linalg.norm(atoms, axis=2).max(), 28)
        return np.rint(atoms.reshape(-1, self.dim) / step), step

    def __repr__(self) -> str:
        return f"Decoder({self.bits} bits to {self.dim} dimensions)"


@dataclass(frozen=True, eq=False, repr=False)
class Questions:
    """Float queries of codes: ``weights`` float32 (n, bits), a number for each bit of a code.

    The distance of a question w to a code s of -1 and +1 is sum_i |w_i| [s_i != sign(w_i)]: the
    Hamming distance with a weight for each bit, 0 where all signs agree. It is half of
    sum_i |w_i| - <w, s>.

    With a ``decoder`` it is the cosine distance, 1 - cos, of the query's own embedding (a row of
    ``vectors`` (n, dim), of unit length) and the embedding that the code stands for; 1 where one of
    the two is zero. A scan then uses -(offset + <w, s>) / length, with ``offsets`` float32 (n,) and
    the length of that embedding, to find the codes worth decoding. Less is nearer.

    ``fingerprint`` names the encoder whose codes may be asked, where it is known.

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
        object.__setattr__(self, "weights", _freeze(_float32("weights", weights)))
        object.__setattr__(self, "offsets", _freeze(_float32("offsets", offsets)))
        if (self.decoder is None) != (self.vectors is None):
            _check.refuse("Give a decoder and the queries' own vectors together, or neither.")
        if self.decoder is not None:
            self._check_decoder(self.decoder)

    def _check_decoder(self, decoder: Decoder) -> None:
        if not isinstance(decoder, Decoder):
            _check.refuse(f"decoder must be a Decoder; got {type(decoder).__name__}.")
        if decoder.bits != self.bits:
            _check.refuse(
                f"decoder must be of codes of {self.bits} bits, as the weights are; "
                f"got {decoder.bits}."
            )
        vectors = _check.finite("vectors", _check.matrix("vectors", self.vectors))
        if vectors.shape != (len(self), decoder.dim):
            _check.refuse(
                f"vectors must have shape ({len(self)}, {decoder.dim}); got {vectors.shape}."
            )
        object.__setattr__(self, "vectors", _freeze(_float32("vectors", vectors)))
        lengths = np.linalg.norm(self.vectors, axis=1)  # type: ignore[arg-type]
        wrong = (np.abs(lengths - 1) > 1e-3) & (lengths > 0)
        if wrong.any():
            row = int(wrong.argmax())
            _check.refuse(f"vectors must have unit length; row {row} has length {lengths[row]:g}.")

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

    def codes(self) -> Codes:
        """The signs of the weights: what a search by Hamming distance asks."""
        return Codes(np.packbits(self.weights > 0, axis=1), self.bits, self.fingerprint)


def _choose_steps(lengths: np.ndarray, powers: int) -> np.ndarray:
    """Powers of two, at most 2**powers of which make each length."""
    return np.ldexp(1.0, np.frexp(lengths)[1] - powers)


def _float32(name: str, values: np.ndarray) -> np.ndarray:
    """Float32 values; numbers too large for it are refused."""
    with np.errstate(over="ignore"):
        return _check.finite(name, np.ascontiguousarray(values, np.float32))


def _freeze(values: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view
