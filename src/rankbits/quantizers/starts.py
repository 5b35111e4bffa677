"""Signs to start from: where the search for the best bits of rows begins.

Bits come in blocks that end where a nested code ends, and have at most dim bits each: a block
describes what the blocks before it leave of the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch

from rankbits import _check
from rankbits.quantizers import atoms as tables
from rankbits.quantizers.projection import Projection
from rankbits.types import Decoder


def _cut_blocks(ends: Sequence[int], dim: int) -> list[slice]:
    """Blocks of at most ``dim`` bits, one of which ends at each of ``ends``."""
    stops = [0]
    for end in ends:
        while stops[-1] < end:
            stops.append(min(end, stops[-1] + dim))
    return [slice(*pair) for pair in pairwise(stops)]


def first_signs(known: np.ndarray, ends: Sequence[int], seed: int) -> np.ndarray:
    """Signs (n, bits) of projections, block by block; a nested code ends at each of ``ends``."""
    signs = np.empty((len(known), 0), np.float32)
    left = known
    for span in _cut_blocks(ends, known.shape[1]):
        block = _project(left, span.stop - span.start, seed + span.start, span.start > 0)
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
    """Go through the blocks, each given what is left of the rows when the bits before it are
    decoded; ``choose`` gives all signs up to the end of a block."""
    levels = (*decoder.nested, decoder)
    left = known - levels[0].linear[1]
    for block in _cut_blocks([level.bits for level in levels], decoder.dim):
        signs = choose(block, left)
        level = next(level for level in levels if level.bits >= block.stop)
        directions, mean = level.linear
        left = known - mean - signs @ directions[: block.stop]


def predict_signs(
    known: np.ndarray, signs: np.ndarray, decoder: Decoder
) -> tuple[torch.Tensor, torch.Tensor]:
    """Linear maps from what is left of the rows to the bits of each block, by least squares: where
    encoding starts."""
    weight = np.empty((decoder.bits, decoder.dim), np.float32)
    offset = np.empty(decoder.bits, np.float32)

    def learn(block: slice, left: np.ndarray) -> np.ndarray:
        solved, offset[block] = tables.solve_directions(signs[:, block], left)
        weight[block] = solved.T
        return signs[:, : block.stop]

    _walk_blocks(known, decoder, learn)
    return torch.from_numpy(weight), torch.from_numpy(offset)


def guess_signs(
    known: np.ndarray, weight: np.ndarray, offset: np.ndarray, decoder: Decoder, tries: int
) -> np.ndarray:
    """The signs (n, bits) that the maps of ``predict_signs`` give; those of a nested code are
    improved before the next block is guessed."""
    signs = np.empty((len(known), decoder.bits), np.float32)
    ends = [level.bits for level in decoder.nested]

    def guess(block: slice, left: np.ndarray) -> np.ndarray:
        signs[:, block] = np.where(left @ weight[block].T + offset[block] > 0, 1, -1)
        first = signs[:, : block.stop]
        if block.stop in ends:
            levels = tables.take_levels(decoder)[: 1 + ends.index(block.stop)]
            choices = tables.choose_by_signs(first, decoder.group)
            gram = tables.add_grams(levels)
            choices = tables.refine(known, choices, levels, gram, 1, tries)
            first[:] = tables.signs_of(choices, decoder.group, block.stop)
        return first

    _walk_blocks(known, decoder, guess)
    return signs
