"""The values of one bit of all rows: where to start, and how to improve them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rankbits.kernels.cuts import improve_signs

MOST = 64  # rows of a block: a cut costs the cube of them
POWER_STEPS = 20


def minimise_bit(
    weights: torch.Tensor,
    unary: torch.Tensor,
    start: torch.Tensor,
    blocks: Sequence[np.ndarray],
    passes: int = 2,
) -> tuple[torch.Tensor, list[float]]:
    """Signs float32 (n,) after ``passes`` over the blocks, and the energy before and after each.

    The energy is z' A z / 2 + u' z, ``weights`` (n, n) is A and ``unary`` (n,) is u; A is 0 or
    below in a block.
    """
    signs, energies = start, [_energy(weights, unary, start)]
    for _ in range(passes):
        better = improve_signs(weights.numpy(), unary.numpy(), signs.numpy(), blocks)
        signs = torch.from_numpy(better)
        energies.append(_energy(weights, unary, signs))
        if energies[-1] == energies[-2]:
            break
    return signs, energies


def _energy(weights: torch.Tensor, unary: torch.Tensor, signs: torch.Tensor) -> float:
    products = (weights @ signs - weights.diagonal() * signs).double()
    return float((products / 2 + unary) @ signs.double())


def start_bit(weights: torch.Tensor, seed: int) -> torch.Tensor:
    """Signs of the eigenvector of A with the least value, by power steps from a draw: what is best
    for the energy without u where signs may be any numbers."""
    draw = torch.Generator().manual_seed(seed)
    vector = torch.randn(len(weights), generator=draw)
    # added to all eigenvalues, so that the least is the farthest from zero
    shift = float(weights.norm(1)) / len(weights)
    for _ in range(POWER_STEPS):
        vector = shift * vector - weights @ vector
        vector /= vector.norm().clamp(min=1e-30)
    return torch.where(vector > 0, 1.0, -1.0)
