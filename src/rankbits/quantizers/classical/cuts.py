"""The values of one bit for all rows: find a start, and improve it by minimum cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rankbits.kernels.cuts import improve_signs

MOST = 64  # rows in a block: the cost of a cut grows with their cube
POWER_STEPS = 20


def minimise_bit(
    weights: torch.Tensor,
    unary: torch.Tensor,
    start: torch.Tensor,
    blocks: Sequence[np.ndarray],
    passes: int = 2,
) -> tuple[torch.Tensor, list[float]]:
    """Improve signs float32 (n,) by ``passes`` over the blocks; also returns the energy before and
    after each pass.

    The energy is z' A z / 2 + u' z, with ``weights`` (n, n) as A and ``unary`` (n,) as u; inside a
    block, A must be 0 or below.
    """
    signs, energies = start, [_measure_energy(weights, unary, start)]
    for _ in range(passes):
        better = improve_signs(weights.numpy(), unary.numpy(), signs.numpy(), blocks)
        signs = torch.from_numpy(better)
        energies.append(_measure_energy(weights, unary, signs))
        if energies[-1] == energies[-2]:
            break
    return signs, energies


def _measure_energy(weights: torch.Tensor, unary: torch.Tensor, signs: torch.Tensor) -> float:
    products = (weights @ signs - weights.diagonal() * signs).double()
    return float((products / 2 + unary) @ signs.double())


def start_bit(weights: torch.Tensor, seed: int) -> torch.Tensor:
    """The signs of the eigenvector of A with the least eigenvalue, by power steps from a draw. It
    minimises the energy without u if signs may be any numbers."""
    draw = torch.Generator().manual_seed(seed)
    vector = torch.randn(len(weights), generator=draw)
    # a shift of all eigenvalues, so that the least becomes the largest in size
    shift = float(weights.norm(1)) / len(weights)
    for _ in range(POWER_STEPS):
        vector = shift * vector - weights @ vector
        vector /= vector.norm().clamp(min=1e-30)
    return torch.where(vector > 0, 1.0, -1.0)
