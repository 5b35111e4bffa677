"""The vectors whose sums stand for embeddings, by least squares given what rows choose.

A group of g bits chooses one of 2**g vectors. Vectors start as sums of one direction for each bit
(the linear part, a few numbers for every row) and leave it as far as the rows bear out: their
difference from the linear part is held back by ``ridge`` rows that say it is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankbits.kernels.choices import count_pairs, improve_choices, sum_by_choice
from rankbits.types.decoder import Decoder, make_patterns

Level = tuple[np.ndarray, np.ndarray]  # atoms (atoms, dim) and centre (dim,) of some first bits
FAVOUR = 1.6  # power by which a level of fewer bits counts more (docs/bytes.md)
SMALL = 1e-4  # of all rows: keeps the directions of bits that say the same apart


def choose_by_signs(signs: np.ndarray, group: int) -> np.ndarray:
    """The value of each group, uint8 (n, groups), of (n, bits) signs; bits that are missing in the
    last group are 0."""
    rows, bits = signs.shape
    ones = np.zeros((rows, -(-bits // group) * group), np.uint8)
    ones[:, :bits] = signs > 0
    powers = 1 << np.arange(group - 1, -1, -1)
    return (ones.reshape(rows, -1, group) * powers).sum(axis=2, dtype=np.uint8)


def signs_of(choices: np.ndarray, group: int, bits: int) -> np.ndarray:
    """-1 and +1, float32 (n, bits), that choose these values."""
    return make_patterns(group)[choices].reshape(len(choices), -1)[:, :bits]


def linear_atoms(directions: np.ndarray, group: int) -> np.ndarray:
    """float32 (atoms, dim): for each value of each group, plus or minus the ``directions`` (bits,
    dim) of its bits."""
    bits, dim = directions.shape
    whole = np.zeros((-(-bits // group) * group, dim), np.float32)
    whole[:bits] = directions
    groups = whole.reshape(-1, group, dim)
    return np.einsum("vb,gbd->gvd", make_patterns(group), groups).reshape(-1, dim)


def solve_directions(rows: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions (bits, dim) and centre (dim,) with the least |row - centre - signs @ directions|^2
    over all rows, float32."""
    known = np.concatenate([signs, np.ones((len(signs), 1), np.float32)], axis=1)
    products = (known.T @ known).astype(np.float64)
    products[np.diag_indices(signs.shape[1])] += SMALL * len(rows)
    solved = np.linalg.solve(products, (known.T @ rows).astype(np.float64)).astype(np.float32)
    return solved[:-1], solved[-1]


def solve_levels(
    rows: np.ndarray, choices: np.ndarray, group: int, ends: Sequence[int], ridge: float | None
) -> list[Level]:
    """``solve_atoms`` for the first bits up to each of ``ends``."""
    return [
        solve_atoms(rows, np.ascontiguousarray(choices[:, : -(-end // group)]), group, end, ridge)
        for end in ends
    ]


def solve_atoms(
    rows: np.ndarray, choices: np.ndarray, group: int, bits: int, ridge: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Atoms (atoms, dim) and centre (dim,) for these choices, float32; the linear part alone where
    ``ridge`` is None."""
    signs = signs_of(choices, group, bits)
    directions, centre = solve_directions(rows, signs)
    atoms = linear_atoms(directions, group)
    if ridge is None or group == 1:
        return atoms, centre
    left = rows - centre - signs @ directions
    pairs = count_pairs(choices, 1 << group)
    pairs[np.diag_indices(len(pairs))] += ridge
    atoms += np.linalg.solve(pairs, sum_by_choice(choices, left, 1 << group)).astype(np.float32)
    return atoms, centre


def take_levels(decoder: Decoder) -> list[Level]:
    """The levels of a decoder, that of all bits last."""
    both = (*decoder.nested, decoder)
    return [(level.atoms.reshape(-1, level.dim), level.centre) for level in both]


def choose_shares(levels: Sequence[Level]) -> list[float]:
    """How much each level counts: the fewer its bits, the more."""
    most = len(levels[-1][0])
    return [(most / len(atoms)) ** FAVOUR for atoms, _ in levels]


def add_grams(levels: Sequence[Level]) -> np.ndarray:
    """The products of atoms with each other, (atoms, atoms), weighted and added over levels."""
    most = len(levels[-1][0])
    gram = np.zeros((most, most), np.float32)
    for share, (atoms, _) in zip(choose_shares(levels), levels, strict=True):
        gram[: len(atoms), : len(atoms)] += share * (atoms @ atoms.T)
    return gram


def refine(
    rows: np.ndarray,
    choices: np.ndarray,
    levels: Sequence[Level],
    gram: np.ndarray,
    step: int,
    tries: int,
) -> np.ndarray:
    """Choices that bring the sums of atoms nearer to the rows, those of all levels together: the
    weighted sum over levels of |row - sum|^2 is one quadratic form of the choices."""
    products = np.zeros((len(rows), len(gram)), np.float32)
    for share, (atoms, centre) in zip(choose_shares(levels), levels, strict=True):
        products[:, : len(atoms)] += share * ((rows - centre) @ atoms.T)
    return improve_choices(choices, products, gram, step=step, tries=tries)
