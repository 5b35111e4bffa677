"""Atoms: the vectors whose sums stand for embeddings, solved for by least squares.

A group of g bits chooses one of 2**g atoms. Atoms start as sums of one direction for each bit (the
linear part) and leave it as far as the rows support that: ``ridge`` imagined rows say that the
difference from the linear part is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankbits.kernels.choices import count_pairs, improve_choices, sum_by_choice
from rankbits.types.decoder import Decoder, make_patterns

Level = tuple[np.ndarray, np.ndarray]  # atoms (atoms, dim) and centre (dim,) of the first bits
FAVOUR = 1.6  # power by which a level of fewer bits counts more (docs/bytes.md)
SMALL = 1e-4  # a ridge, as a share of the rows, for bits that are always equal


def choose_by_signs(signs: np.ndarray, group: int) -> np.ndarray:
    """The number that each group of (n, bits) signs spells, uint8 (n, groups): the atom it chooses.
    Bits that are missing in the last group are 0."""
    rows, bits = signs.shape
    ones = np.zeros((rows, -(-bits // group) * group), np.uint8)
    ones[:, :bits] = signs > 0
    powers = 1 << np.arange(group - 1, -1, -1)
    return (ones.reshape(rows, -1, group) * powers).sum(axis=2, dtype=np.uint8)


def to_signs(choices: np.ndarray, group: int, bits: int) -> np.ndarray:
    """The signs, float32 (n, bits), that make these choices: the inverse of ``choose_by_signs``."""
    return make_patterns(group)[choices].reshape(len(choices), -1)[:, :bits]


def make_linear_atoms(directions: np.ndarray, group: int) -> np.ndarray:
    """Atoms float32 (atoms, dim): the sums, with the signs of each choice, of the ``directions``
    (bits, dim) of its bits."""
    bits, dim = directions.shape
    whole = np.zeros((-(-bits // group) * group, dim), np.float32)
    whole[:bits] = directions
    groups = whole.reshape(-1, group, dim)
    return np.einsum("vb,gbd->gvd", make_patterns(group), groups).reshape(-1, dim)


def solve_directions(rows: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions (bits, dim) and centre (dim,), float32, with the least sum over rows of |row -
    centre - signs @ directions|^2."""
    design = np.concatenate([signs, np.ones((len(signs), 1), np.float32)], axis=1)
    products = (design.T @ design).astype(np.float64)
    products[np.diag_indices(signs.shape[1])] += SMALL * len(rows)
    solved = np.linalg.solve(products, (design.T @ rows).astype(np.float64)).astype(np.float32)
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
    """The best atoms (atoms, dim) and centre (dim,), float32, for these choices; only the linear
    part where ``ridge`` is None."""
    signs = to_signs(choices, group, bits)
    directions, centre = solve_directions(rows, signs)
    atoms = make_linear_atoms(directions, group)
    if ridge is None or group == 1:
        return atoms, centre
    left = rows - centre - signs @ directions
    pairs = count_pairs(choices, 1 << group)
    pairs[np.diag_indices(len(pairs))] += ridge
    atoms += np.linalg.solve(pairs, sum_by_choice(choices, left, 1 << group)).astype(np.float32)
    return atoms, centre


def take_levels(decoder: Decoder) -> list[Level]:
    """The levels of a decoder; the last is that of all bits."""
    both = (*decoder.nested, decoder)
    return [(level.atoms.reshape(-1, level.dim), level.centre) for level in both]


def choose_shares(levels: Sequence[Level]) -> list[float]:
    """The weight of each level: the fewer its bits, the higher."""
    most = len(levels[-1][0])
    return [(most / len(atoms)) ** FAVOUR for atoms, _ in levels]


def add_grams(levels: Sequence[Level]) -> np.ndarray:
    """The inner products of atoms, (atoms, atoms), a weighted sum over levels."""
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
    """Better choices: they lower the weighted sum over levels of |row - sum of chosen atoms|^2,
    which is one quadratic form of the choices."""
    products = np.zeros((len(rows), len(gram)), np.float32)
    for share, (atoms, centre) in zip(choose_shares(levels), levels, strict=True):
        products[:, : len(atoms)] += share * ((rows - centre) @ atoms.T)
    return improve_choices(choices, products, gram, step=step, tries=tries)
