"""Decoder: the embeddings that codes stand for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankbits import _check
from rankbits.types.codes import Codes


def make_patterns(group: int) -> np.ndarray:
    """The bits of each value of a group as -1 and +1, float32 (2**group, group), first bit first.

    >>> make_patterns(2).astype(int).tolist()
    [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    """
    values = np.arange(1 << group)[:, None]
    return (((values >> np.arange(group - 1, -1, -1)) & 1) * 2 - 1).astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class Decoder:
    """The embeddings that codes stand for: ``centre`` plus one vector for each group of bits.

    ``atoms`` float32 (groups, 2**g, dim) hold the vector of each value of each group of g
    neighbouring bits, g = 1, 2, 4 or 8; a code stands for ``centre`` (dim,) + the sum of the
    vectors that its groups choose. The last group is shorter where ``bits`` is not a multiple of g.
    ``nested`` are decoders of the first bits alone, where these are codes of their own.

    >>> decoder = Decoder(np.array([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]]), bits=2)
    >>> decoder.decode(Codes(np.array([[0b01000000]], np.uint8), 2))
    array([[0., 2.]], dtype=float32)
    """

    atoms: np.ndarray
    centre: np.ndarray = None  # type: ignore[assignment]
    bits: int = 0
    nested: tuple[Decoder, ...] = ()

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
        object.__setattr__(self, "atoms", freeze(to_float32("atoms", atoms)))
        object.__setattr__(self, "centre", freeze(to_float32("centre", centre)))
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
        """16 hexadecimal digits, which differ between decoders that give different embeddings."""
        state = hashlib.blake2b(str((self.atoms.shape, self.bits)).encode(), digest_size=8)
        state.update(self.atoms.tobytes() + self.centre.tobytes())
        return state.hexdigest()

    def prefix(self, bits: int) -> Decoder:
        """The decoder of the first ``bits`` bits."""
        for decoder in (*self.nested, self):
            if decoder.bits == bits:
                return decoder
        numbers = ", ".join(str(decoder.bits) for decoder in (*self.nested, self))
        _check.refuse(f"These codes can be decoded from their first {numbers} bits; got {bits}.")

    @cached_property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Directions float32 (bits, dim) and mean (dim,): mean + signs @ directions comes nearest
        to the embeddings of all codes."""
        directions, mean = [], self.centre
        for number, atoms in enumerate(self.atoms):
            size = min(self.group, self.bits - number * self.group)
            step = 1 << (self.group - size)
            signs = make_patterns(self.group)[::step, :size]
            directions.append(signs.T @ atoms[::step] / len(signs))
            mean = mean + atoms[::step].mean(axis=0)
        return np.concatenate(directions).astype(np.float32), mean

    def read_choices(self, packed: np.ndarray) -> np.ndarray:
        """The value of each group, uint8 (n, groups), in packed codes (n, bytes)."""
        parts = 8 // self.group
        shifts = np.arange(parts - 1, -1, -1, dtype=np.uint8) * np.uint8(self.group)
        values = (packed[:, :, None] >> shifts) & np.uint8(len(self.atoms[0]) - 1)
        return np.ascontiguousarray(values.reshape(len(packed), -1)[:, : len(self.atoms)])

    def decode(self, codes: Codes) -> np.ndarray:
        """The embeddings (n, dim) float32 that ``codes`` stand for."""
        _check.same_bits(codes.bits, self.bits)
        out = np.tile(self.centre, (len(codes), 1))
        for group, values in enumerate(self.read_choices(codes.packed).T):
            out += self.atoms[group, values]
        return out

    def make_byte_tables(self, vectors: np.ndarray) -> np.ndarray:
        """float64 (n, bytes, 256): what each value of each byte of a code adds to the product of
        its embedding with each of ``vectors`` (n, dim); the first byte adds the centre's too.

        The tables of a vector have the same digits whichever vectors come with it: products are of
        whole steps, few enough that every sum is exact in any order.
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


def _choose_steps(lengths: np.ndarray, powers: int) -> np.ndarray:
    """For each length a power of two, of which it has at most 2**powers."""
    return np.ldexp(1.0, np.frexp(lengths)[1] - powers)


def to_float32(name: str, values: np.ndarray) -> np.ndarray:
    """Values as float32; refuses numbers too large for it."""
    with np.errstate(over="ignore"):
        return _check.finite(name, np.ascontiguousarray(values, np.float32))


def freeze(values: np.ndarray) -> np.ndarray:
    """A read-only, contiguous view of an array, or of a copy where it is not contiguous."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view
