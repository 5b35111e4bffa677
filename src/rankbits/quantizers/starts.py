"""The signs from which the search for the best bits of rows starts.

Bits are split into blocks of at most dim bits that end where a nested code ends. A block describes
what is left of the rows after the blocks before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import atoms
from rankbits.quantizers.projection import Projection
from rankbits.types import Decoder


def _cut_blocks(ends: Sequence[int], dim: int) -> list[slice]:
    """Cut the bits into blocks of at most ``dim``; one block ends at each of ``ends``."""
    stops = [0]
    for end in ends:
        while stops[-1] < end:
            stops.append(min(end, stops[-1] + dim))
    return [slice(*pair) for pair in pairwise(stops)]


def project_signs(rows: np.ndarray, ends: Sequence[int], seed: int) -> np.ndarray:
    """The signs (n, bits) of projections, block by block; nested codes end at ``ends``."""
    signs = np.empty((len(rows), 0), np.float32)
    left = rows
    for span in _cut_blocks(ends, rows.shape[1]):
        block = _project(left, span.stop - span.start, seed + span.start, span.start > 0)
        signs = np.concatenate([signs, np.where(block > 0, 1, -1).astype(np.float32)], axis=1)
        directions, centre = atoms.solve_directions(rows, signs)
        left = rows - centre - signs @ directions
    return signs


def _project(left: np.ndarray, bits: int, seed: int, may_be_flat: bool) -> np.ndarray:
    """The (n, bits) outputs of a projection; random ones if nothing is left to project."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few directions are no problem for a start
        try:
            return Projection(bits, seed=seed).fit(left).transform(left)
        except _check.Refusal:
            if not may_be_flat:
                raise
    return np.random.default_rng(seed).standard_normal((len(left), bits))


def _walk_blocks(
    rows: np.ndarray, decoder: Decoder, choose: Callable[[slice, np.ndarray], np.ndarray]
) -> None:
    """Call ``choose`` for each block with what is left of the rows when the bits before it are
    decoded; it returns all signs up to the end of the block."""
    levels = (*decoder.nested, decoder)
    left = rows - levels[0].linear[1]
    for block in _cut_blocks([level.bits for level in levels], decoder.dim):
        signs = choose(block, left)
        level = next(level for level in levels if level.bits >= block.stop)
        directions, mean = level.linear
        left = rows - mean - signs @ directions[: block.stop]


def fit_sign_maps(
    rows: np.ndarray, signs: np.ndarray, decoder: Decoder
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit linear maps, by least squares, from what is left of the rows to the bits of each block:
    the start of encoding."""
    weight = np.empty((decoder.bits, decoder.dim), np.float32)
    offset = np.empty(decoder.bits, np.float32)

    def learn(block: slice, left: np.ndarray) -> np.ndarray:
        solved, offset[block] = atoms.solve_directions(signs[:, block], left)
        weight[block] = solved.T
        return signs[:, : block.stop]

    _walk_blocks(rows, decoder, learn)
    return torch.from_numpy(weight), torch.from_numpy(offset)


def guess_signs(
    rows: np.ndarray, weight: np.ndarray, offset: np.ndarray, decoder: Decoder, tries: int
) -> np.ndarray:
    """The signs (n, bits) by the maps of ``fit_sign_maps``; those of a nested code are improved
    before the next block is guessed."""
    signs = np.empty((len(rows), decoder.bits), np.float32)
    ends = [level.bits for level in decoder.nested]

    def guess(block: slice, left: np.ndarray) -> np.ndarray:
        signs[:, block] = np.where(left @ weight[block].T + offset[block] > 0, 1, -1)
        first = signs[:, : block.stop]
        if block.stop in ends:
            levels = atoms.take_levels(decoder)[: 1 + ends.index(block.stop)]
            choices = atoms.choose_by_signs(first, decoder.group)
            gram = atoms.add_grams(levels)
            choices = atoms.refine(rows, choices, levels, gram, 1, tries)
            first[:] = atoms.to_signs(choices, decoder.group, block.stop)
        return first

    _walk_blocks(rows, decoder, guess)
    return signs
