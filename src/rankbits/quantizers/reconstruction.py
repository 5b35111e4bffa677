"""Reconstruction: bits from which embeddings can best be rebuilt, searched by float queries."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import atoms, rows
from rankbits.quantizers.nonlinear import NonLinear
from rankbits.quantizers.projection import MOST_ROWS
from rankbits.quantizers.starts import fit_sign_maps, guess_signs, project_signs
from rankbits.types import Codes, Decoder, Questions

RIDGE = 10.0  # imagined rows that hold the vectors of a group to their linear part (``atoms.py``)
FEW_RIDGE = 100.0  # the same where there are fewer rows than vectors
LONGEST = 128  # bits of a code up to which groups may have 8: they take ten times as long
ENOUGH = 32  # rows for each bit from which on groups of 8 pay: as many rows as vectors
ROUNDS = 16  # of choosing bits and solving for vectors in turn; the first third is linear
TRIES = 4


class Reconstruction(NonLinear):
    """Bits from which embeddings can best be rebuilt: the least loss for a number of bits.

    Each ``group`` of bits (1, 2, 4 or 8) chooses one of 2**group vectors, and a code stands for the
    sum of its vectors. Vectors and choices are learned in turn, so that the sums come near the
    rows, which are scaled to unit length (for cosine similarity). Larger groups lose less, but take
    longer and need more rows: by default a group has 8 bits in codes of at most 128 bits that are
    fitted to at least 32 rows for each bit, and else 4. Codes of new rows lose more than those of
    the fitted rows, unless there are about ten of these for each of the bits / group * 2**group
    vectors, which the quantizer keeps as floats.

    Search with questions, ``index.search(quantizer.ask(queries), k)``: queries keep their floats
    and are compared with what the codes stand for (``decode``); an item still stores only its bits.
    By Hamming distance these codes are worse than those of ``Projection``. Encoding is a search,
    not a linear map: there is no ``fold`` and no ONNX.

    ``nested=(64, 128)``: the first 64 and the first 128 bits are codes too, with vectors of their
    own (``codes.prefix(64)``, ``questions.prefix(64)``). ``index.search(questions, k, coarse=64)``
    compares the first 64 bits of all items, and all bits of the items that it lists. Bits are
    chosen for all these codes together, so each loses a little.

    >>> x = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    >>> quantizer = Reconstruction(bits=32).fit(x)
    >>> codes = quantizer.encode(x)
    >>> codes, quantizer.decode(codes).shape
    (Codes(300 rows of 32 bits), (300, 20))
    """

    asks_with = "questions"
    atoms_: torch.Tensor
    centre_: torch.Tensor
    nested_atoms_ = torch.empty(0, 0, 0)
    nested_bits_ = torch.empty(0, dtype=torch.int64)

    def __init__(
        self,
        bits: int | None = None,
        *,
        group: int | None = None,
        nested: tuple[int, ...] = (),
        rounds: int = ROUNDS,
        tries: int = TRIES,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.group = group
        self.nested = nested
        self.rounds = rounds
        self.tries = tries
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        if self.group is not None and _check.whole("group", self.group, 1) not in (1, 2, 4, 8):
            _check.refuse(f"group must be 1, 2, 4 or 8 bits; got {self.group}.")
        rounds, tries = _check.whole("rounds", self.rounds, 1), _check.whole("tries", self.tries, 0)
        value = rows.check_embeddings("embeddings", embeddings)
        bits = self._bits_for(value.shape[1])
        ends = (*_check_nested(self.nested, bits), bits)
        drawn, _ = rows.sample(value, MOST_ROWS, self.seed)
        unit = _scale_to_unit(drawn)
        group = self.group or (8 if bits <= LONGEST and len(unit) >= ENOUGH * bits else 4)
        choices = atoms.choose_by_signs(project_signs(unit, ends, self.seed), group)
        step = 1 << (-bits % group)
        hold_back = FEW_RIDGE if len(unit) < choices.shape[1] << group else RIDGE
        levels = atoms.solve_levels(unit, choices, group, ends, None)
        for turn in range(rounds):
            choices = atoms.refine(unit, choices, levels, atoms.add_grams(levels), step, tries)
            ridge = None if 3 * turn < rounds else hold_back
            levels = atoms.solve_levels(unit, choices, group, ends, ridge)
        choices = atoms.refine(unit, choices, levels, atoms.add_grams(levels), step, tries)
        self._keep_levels(levels, group, ends)
        signs = atoms.to_signs(choices, group, bits)
        self._set_map(*fit_sign_maps(unit, signs, self._decoder(bits)))
        sums = self._decoder().decode(Codes(np.packbits(signs > 0, axis=1), bits))
        self.objective_ = float(np.square(unit - sums).sum(axis=1).mean())

    def _keep_levels(self, levels: list[atoms.Level], group: int, ends: tuple[int, ...]) -> None:
        """Set the learned tensors. The last level is that of all bits; the centres of the others
        are added to the vectors of their first group."""
        shape = (-1, 1 << group, levels[-1][0].shape[1])
        all_atoms, centre = levels.pop()
        self.atoms_ = torch.from_numpy(all_atoms.reshape(shape))
        self.centre_ = torch.from_numpy(centre)
        for level_atoms, centre in levels:
            level_atoms[: 1 << group] += centre
        nested = [torch.from_numpy(level_atoms.reshape(shape)) for level_atoms, _ in levels]
        self.nested_atoms_ = torch.cat(nested) if nested else self.atoms_[:0].clone()
        self.nested_bits_ = torch.tensor(ends[:-1], dtype=torch.int64)

    def _decoder(self, bits: int | None = None) -> Decoder:
        """The decoder of what was learned; ``bits`` are needed while fitting is not done."""
        bits = bits or self.bits_
        return make_decoder(self.atoms_, self.centre_, bits, self.nested_atoms_, self.nested_bits_)

    def encode(self, embeddings: Any) -> Codes:
        """(n, dim) -> ``Codes`` that ``decode`` to nearly the same; equal rows get equal codes."""
        decoder = self._decoder()
        value = rows.check_embeddings("embeddings", embeddings, self.weight_.shape[1])
        packed = np.zeros((len(value), (self.bits_ + 7) // 8), np.uint8)
        levels = atoms.take_levels(decoder)
        gram, step = atoms.add_grams(levels), 1 << (-self.bits_ % decoder.group)
        for start, part in rows.split_chunks(value):
            unit = _scale_to_unit(part, start)
            signs = guess_signs(
                unit, self.weight_.numpy(), self.offset_.numpy(), decoder, self.tries
            )
            choices = atoms.choose_by_signs(signs, decoder.group)
            choices = atoms.refine(unit, choices, levels, gram, step, self.tries)
            signs = atoms.to_signs(choices, decoder.group, self.bits_)
            packed[start : start + len(part)] = np.packbits(signs > 0, axis=1)
        return Codes(packed, self.bits_, self.fingerprint)

    def decode(self, codes: Codes) -> np.ndarray:
        """The embeddings (n, dim), float32, that ``codes``, or a nested prefix of them, stand for;
        their length is near 1."""
        return self._decoder().prefix(codes.bits).decode(codes)

    def transform(self, embeddings: Any) -> Any:
        """(n, dim) -> (n, bits) of -1.0 and +1.0, the bits of ``encode``."""
        signs = self.encode(embeddings).signs().astype(np.float32)
        return torch.from_numpy(signs) if isinstance(embeddings, torch.Tensor) else signs

    def ask(self, embeddings: Any) -> Questions:
        """(n, dim) -> ``Questions``: an index ranks by the cosine distance between a query and what
        a code stands for."""
        decoder = self._decoder()
        value = rows.check_embeddings("embeddings", embeddings, self.weight_.shape[1])
        return Questions.of(decoder, _scale_to_unit(rows.to_tensor(value)), self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, a digest of all that was learned."""
        self._check_fitted()
        decoder = self._decoder()
        digest = hashlib.blake2b(decoder.digest.encode(), digest_size=8)
        for level in decoder.nested:
            digest.update(level.digest.encode())
        for part in (self.weight_, self.offset_):
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _scale_to_unit(part: torch.Tensor, start: int = 0) -> np.ndarray:
    """The rows scaled to unit length, float32, on the CPU; a row of zeros stays as it is."""
    part = part.detach().float().cpu()
    rows.check_finite("embeddings", part, start)
    norms = part.norm(dim=1, keepdim=True)
    return np.ascontiguousarray((part / torch.where(norms > 0, norms, 1)).numpy())


@lru_cache(maxsize=8)
def make_decoder(
    atoms: torch.Tensor,
    centre: torch.Tensor,
    bits: int,
    nested_atoms: torch.Tensor,
    nested_bits: torch.Tensor,
) -> Decoder:
    """The decoder of these tensors; it is cached, as are its digest and tables with it."""
    size = atoms.shape[1].bit_length() - 1
    ends = nested_bits.tolist()
    parts = nested_atoms.numpy()
    nested = []
    for end in ends:
        nested.append(Decoder(parts[: end // size], bits=end))
        parts = parts[end // size :]
    return Decoder(atoms.numpy(), centre.numpy(), bits, tuple(nested))


def _check_nested(nested: Any, bits: int) -> tuple[int, ...]:
    """Check the numbers of bits of nested codes: whole bytes, ascending."""
    wanted = tuple(_check.whole("nested", first, 8) for first in nested)
    rising = all(a < b for a, b in pairwise((*wanted, bits)))
    if not rising or any(first % 8 for first in wanted):
        _check.refuse(
            f"nested must be multiples of 8 that rise and stay below {bits} bits; got {nested}."
        )
    return wanted
