"""Reconstruction: the bits from which an embedding can best be rebuilt, asked by float queries."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import atoms as tables
from rankbits.quantizers import rows
from rankbits.quantizers.nonlinear import NonLinear
from rankbits.quantizers.projection import MOST_ROWS, Projection
from rankbits.types import Codes, Decoder, Questions

RIDGE = 10.0  # rows that hold the vectors of a group back from leaving their linear part
ROUNDS = 16  # of choosing bits and solving for vectors in turn; the first third is linear
TRIES = 4


class Reconstruction(NonLinear):
    """Bits from which embeddings can best be rebuilt: the least loss for a number of bits.

    Each ``group`` of bits (1, 2, 4 or 8) chooses one of 2**group vectors, and their sum is what
    the code stands for. Vectors and choices are learned in turn so that the sums come nearest to
    the rows, which are scaled to unit length (for cosine similarity). Larger groups lose less and
    need more rows to learn from: some ten for each of the bits / group * 2**group vectors.

    Search it with questions, ``index.search(quantizer.ask(queries), k)``: queries keep their
    floats, and are compared with what the codes stand for (``decode``), so that nothing but the
    bits is stored for an item. By Hamming distance these codes are worse than those of
    ``Projection``. Encoding is a search, not a linear map: there is no ``fold`` and no ONNX.

    >>> x = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    >>> quantizer = Reconstruction(bits=32).fit(x)
    >>> codes = quantizer.encode(x)
    >>> codes, quantizer.decode(codes).shape
    (Codes(300 rows of 32 bits), (300, 20))
    """

    asks_with = "questions"
    atoms_: torch.Tensor
    centre_: torch.Tensor

    def __init__(
        self,
        bits: int | None = None,
        *,
        group: int = 4,
        rounds: int = ROUNDS,
        tries: int = TRIES,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.group = group
        self.rounds = rounds
        self.tries = tries
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        group = _check.whole("group", self.group, 1)
        if group not in (1, 2, 4, 8):
            _check.refuse(f"group must be 1, 2, 4 or 8 bits; got {group}.")
        rounds, tries = _check.whole("rounds", self.rounds, 1), _check.whole("tries", self.tries, 0)
        value = rows.embeddings("embeddings", embeddings)
        bits = self._bits_for(value.shape[1])
        drawn, _ = rows.sample(value, MOST_ROWS, self.seed)
        known = _unit_rows(drawn)
        choices = tables.choose_by_signs(_first_signs(known, bits, self.seed), group)
        step = 1 << (-bits % group)
        atoms, centre = tables.solve_atoms(known, choices, group, bits, None)
        for turn in range(rounds):
            choices = tables.refine(known, choices, atoms, centre, step, tries)
            ridge = None if 3 * turn < rounds else RIDGE
            atoms, centre = tables.solve_atoms(known, choices, group, bits, ridge)
        choices = tables.refine(known, choices, atoms, centre, step, tries)
        self.atoms_ = torch.from_numpy(atoms.reshape(choices.shape[1], 1 << group, -1))
        self.centre_ = torch.from_numpy(centre)
        signs = tables.signs_of(choices, group, bits)
        self._learn(*_predict_signs(known, signs, make_decoder(self.atoms_, self.centre_, bits)))
        sums = self._decoder().decode(Codes(np.packbits(signs > 0, axis=1), bits))
        self.objective_ = float(np.square(known - sums).sum(axis=1).mean())

    def _decoder(self) -> Decoder:
        self._fitted()
        return make_decoder(self.atoms_, self.centre_, self.bits_)

    def encode(self, embeddings: Any) -> Codes:
        """(n, dim) -> ``Codes`` whose ``decode`` is near; equal rows get equal codes."""
        decoder = self._decoder()
        value = rows.embeddings("embeddings", embeddings, self.weight_.shape[1])
        packed = np.zeros((len(value), (self.bits_ + 7) // 8), np.uint8)
        atoms = decoder.atoms.reshape(-1, decoder.dim)
        gram, step = atoms @ atoms.T, 1 << (-self.bits_ % decoder.group)
        for start, part in rows.chunks(value):
            known = _unit_rows(part, start)
            signs = _guess_signs(known, self.weight_.numpy(), self.offset_.numpy(), decoder)
            choices = tables.choose_by_signs(signs, decoder.group)
            products = (known - decoder.centre) @ atoms.T
            choices = tables.improve_choices(choices, products, gram, step=step, tries=self.tries)
            signs = tables.signs_of(choices, decoder.group, self.bits_)
            packed[start : start + len(part)] = np.packbits(signs > 0, axis=1)
        return Codes(packed, self.bits_, self.fingerprint)

    def decode(self, codes: Codes) -> np.ndarray:
        """The embeddings (n, dim), float32, that ``codes`` stand for, near unit length."""
        return self._decoder().decode(codes)

    def transform(self, embeddings: Any) -> Any:
        """(n, dim) -> (n, bits) of -1.0 and +1.0, the bits of ``encode``."""
        signs = self.encode(embeddings).signs().astype(np.float32)
        return torch.from_numpy(signs) if isinstance(embeddings, torch.Tensor) else signs

    def ask(self, embeddings: Any) -> Questions:
        """(n, dim) -> ``Questions``: an index orders its codes by the cosine distance of each query
        and what the codes stand for."""
        decoder = self._decoder()
        value = rows.embeddings("embeddings", embeddings, self.weight_.shape[1])
        vectors = _unit_rows(rows.tensor(value))
        directions, mean = _linear_part(decoder)
        return Questions(
            vectors @ directions.T,
            vectors @ (decoder.centre + mean),
            decoder,
            vectors,
            self.fingerprint,
        )

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that say which bits are made: a digest of all that is learned."""
        self._fitted()
        digest = hashlib.blake2b(self._decoder().digest.encode(), digest_size=8)
        for part in (self.weight_, self.offset_):
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _unit_rows(part: torch.Tensor, start: int = 0) -> np.ndarray:
    """Rows of unit length, float32, on the CPU; a row of zeros stays, and nan is refused."""
    part = part.detach().float().cpu()
    if not torch.isfinite(part).all():
        bad = int(torch.isfinite(part).all(dim=1).int().argmin())
        _check.refuse(f"embeddings must be finite; row {start + bad} has nan or inf.")
    norms = part.norm(dim=1, keepdim=True)
    return np.ascontiguousarray((part / torch.where(norms > 0, norms, 1)).numpy())


def _first_signs(known: np.ndarray, bits: int, seed: int) -> np.ndarray:
    """Signs (n, bits) to start from: of a projection, then of a projection of what is left over,
    until there are enough."""
    signs = np.empty((len(known), 0), np.float32)
    left = known
    while signs.shape[1] < bits:
        wanted = min(bits - signs.shape[1], known.shape[1])
        block = _project(left, wanted, seed + signs.shape[1], may_be_flat=signs.shape[1] > 0)
        signs = np.concatenate([signs, np.where(block > 0, 1, -1).astype(np.float32)], axis=1)
        directions, centre = tables.solve_directions(known, signs)
        left = known - centre - signs @ directions
    return signs


def _project(left: np.ndarray, bits: int, seed: int, may_be_flat: bool) -> np.ndarray:
    """(n, bits) outputs of a projection; at random where nothing is left to project."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a frame of few directions is as good a start
        try:
            return Projection(bits, seed=seed).fit(left).transform(left)
        except _check.Refusal:
            if not may_be_flat:
                raise
    return np.random.default_rng(seed).standard_normal((len(left), bits))


def _walk_blocks(
    known: np.ndarray, decoder: Decoder, choose: Callable[[slice, np.ndarray], np.ndarray]
) -> None:
    """Go through the bits in blocks of at most dim, each given what the blocks before it leave of
    the rows; ``choose`` gives the signs of a block."""
    directions, mean = _linear_part(decoder)
    left = known - decoder.centre - mean
    for start in range(0, decoder.bits, decoder.dim):
        block = slice(start, min(start + decoder.dim, decoder.bits))
        left = left - choose(block, left) @ directions[block]


def _predict_signs(
    known: np.ndarray, signs: np.ndarray, decoder: Decoder
) -> tuple[torch.Tensor, torch.Tensor]:
    """Linear maps from what is left of the rows to the bits of each block, by least squares: where
    encoding starts."""
    weight = np.empty((decoder.bits, decoder.dim), np.float32)
    offset = np.empty(decoder.bits, np.float32)

    def learn(block: slice, left: np.ndarray) -> np.ndarray:
        solved, offset[block] = tables.solve_directions(signs[:, block], left)
        weight[block] = solved.T
        return signs[:, block]

    _walk_blocks(known, decoder, learn)
    return torch.from_numpy(weight), torch.from_numpy(offset)


def _guess_signs(
    known: np.ndarray, weight: np.ndarray, offset: np.ndarray, decoder: Decoder
) -> np.ndarray:
    """The signs (n, bits) that the maps of ``_predict_signs`` give."""
    signs = np.empty((len(known), decoder.bits), np.float32)

    def guess(block: slice, left: np.ndarray) -> np.ndarray:
        signs[:, block] = np.where(left @ weight[block].T + offset[block] > 0, 1, -1)
        return signs[:, block]

    _walk_blocks(known, decoder, guess)
    return signs


@lru_cache(maxsize=8)
def make_decoder(atoms: torch.Tensor, centre: torch.Tensor, bits: int) -> Decoder:
    """The decoder of learned tensors, made once: its digest and tables are kept with it."""
    return Decoder(atoms.numpy(), centre.numpy(), bits)


def _linear_part(decoder: Decoder) -> tuple[np.ndarray, np.ndarray]:
    """Directions (bits, dim) and mean (dim,) nearest to the decoder's sums over all codes."""
    directions, means = [], []
    for number, atoms in enumerate(decoder.atoms):
        own = min(decoder.group, decoder.bits - number * decoder.group)
        step = 1 << (decoder.group - own)
        known = tables.patterns(decoder.group)[::step, :own]
        directions.append(known.T @ atoms[::step] / len(known))
        means.append(atoms[::step].mean(axis=0))
    return np.concatenate(directions).astype(np.float32), np.sum(means, axis=0)
