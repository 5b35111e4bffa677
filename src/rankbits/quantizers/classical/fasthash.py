"""FastHash: bits found by minimum cuts, then learned by boosted trees (Lin et al. 2014)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits.quantizers.classical.affinity import find_cliques, read_pairs
from rankbits.quantizers.classical.cuts import MOST, minimise_bit, start_bit
from rankbits.quantizers.classical.trees import Grower, TreeBits


class FastHash(TreeBits):
    """Bits by boosted decision trees, learned one after another, each given those before.

    The loss of a pair at Hamming distance D after r bits is D^2 if the rows are similar, and
    max(r / 2 - D, 0)^2 if not. Given the first r - 1 bits, it is a z_i z_j + const in the signs of
    bit r, with a = (loss if equal - loss if different) / 2. Minimum cuts find signs that are good
    for all pairs, and then ``rounds`` trees of ``depth`` are boosted to predict them. ``labels``
    are (n,) or multi-hot (n, C); without labels, near rows are similar. Learns from at most 5,000
    rows, drawn by the seed. ``objective_`` is the mean loss of a pair, in squared bits;
    ``energies_`` has, for each bit, the sum of a z_i z_j before and after each pass over the
    blocks: it never rises.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(60) % 3
    >>> x = torch.randn(60, 8, generator=draw) + 3 * torch.eye(3, 8)[y]
    >>> FastHash(6, rounds=5).fit(x, y).encode(x)
    Codes(60 rows of 6 bits)
    """

    energies_: list[list[float]]

    def __init__(
        self, bits: int | None = None, *, rounds: int = 100, depth: int = 4, seed: int = 0
    ) -> None:
        self.bits = bits
        self.rounds = rounds
        self.depth = depth
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        rows, grades = read_pairs(embeddings, labels, self.seed)
        bits = self._bits_for(rows.shape[1])
        grower = Grower(rows, self.rounds, self.depth, self.seed)
        similar = torch.from_numpy(grades > 0)
        blocks = find_cliques(similar.numpy(), MOST)
        nothing = torch.zeros(len(rows))
        # the distance of a pair so far, plus bits + 1 if the rows are similar
        kinds = similar.int() * (bits + 1)
        grown, self.energies_ = [], []
        for r in range(1, bits + 1):
            weights = weigh_pairs(kinds, r, bits)
            start = start_bit(weights, self.seed + r)
            wanted, energies = minimise_bit(weights, nothing, start, blocks)
            bit = grower.grow(wanted)
            positive = bit.signs > 0
            kinds += positive[:, None] != positive
            grown.append(bit)
            self.energies_.append(energies)
        self._set_trees(grown, rows.shape[1])
        counts = torch.bincount(kinds.view(-1)).double()
        counts[0] -= len(rows)  # a row with itself
        table = torch.from_numpy(_tabulate_losses(bits)).view(-1)[: len(counts)]
        self.objective_ = float(table @ counts / counts.sum())


def _tabulate_losses(r: int) -> np.ndarray:
    """The loss at each distance of r bits, (2, r + 1): of other pairs, then of similar ones."""
    distance = np.arange(r + 1)
    return np.stack([np.maximum(r / 2 - distance, 0.0) ** 2, distance**2.0])


def weigh_pairs(kinds: torch.Tensor, r: int, bits: int) -> torch.Tensor:
    """Eight times the weight a of z_i z_j for bit ``r``, float32 (n, n), which is a whole number.

    ``kinds`` int32 (n, n): the distance of a pair so far, plus bits + 1 if it is similar.

    >>> weigh_pairs(torch.tensor([[4, 1]], dtype=torch.int32), r=3, bits=3)
    tensor([[-4.,  1.]])
    """
    losses, table = _tabulate_losses(r), torch.zeros(2, bits + 1)
    table[:, :r] = torch.from_numpy(4 * (losses[:, :-1] - losses[:, 1:]))
    return table.view(-1).index_select(0, kinds.view(-1)).view(kinds.shape)
