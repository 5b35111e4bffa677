"""MACHash: codes and hash functions in turn, until they agree (Raziperchikolaei and
Carreira-Perpiñán 2016, the method of auxiliary coordinates)."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.classical.affinity import find_cliques, read_pairs
from rankbits.quantizers.classical.cuts import MOST, minimise_bit, start_bit
from rankbits.quantizers.classical.machines import Machines

FIRST, GROWTH = 0.1, 2.0  # the penalty, in mean absolute products, and its growth from step to step


class MACHash(Quantizer):
    """Linear bits for the loss of pairs (bits y - z_i' z_j)^2, y = 1 for similar rows and -1 else.

    The codes z of the rows are separate variables, and a penalty draws them to the hash functions
    h: minimise the sum over pairs of the loss + mu sum |z_i - h(x_i)|^2. In each of ``steps``,
    minimum cuts improve the codes bit by bit, linear support vector machines of cost ``cost`` fit h
    to them, and mu grows, until codes and outputs agree. The h with the least loss of pairs wins.

    ``objective_`` is its mean loss of a pair, over bits^2. ``penalised_`` has for each step the
    penalised objective before, after the codes and after the functions, at one mu: it never rises.
    ``losses_`` has the loss of the outputs after each step. ``labels`` are (n,) or multi-hot (n,
    C); without labels, near rows are similar. Learns from at most 5,000 rows, drawn by the seed.
    The bits are linear, so ``fold``, ``to_onnx`` and ``ask`` work.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(60) % 3
    >>> x = torch.randn(60, 8, generator=draw) + 3 * torch.eye(3, 8)[y]
    >>> MACHash(6).fit(x, y).encode(x)
    Codes(60 rows of 6 bits)
    """

    penalised_: list[tuple[float, float, float]]
    losses_: list[float]

    def __init__(
        self, bits: int | None = None, *, steps: int = 6, cost: float = 1.0, seed: int = 0
    ) -> None:
        self.bits = bits
        self.steps = steps
        self.cost = cost
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        steps = _check.whole("steps", self.steps, 1)
        if _check.number("cost", self.cost) <= 0:
            _check.refuse(f"cost must be above 0; got {self.cost}.")
        rows, grades = read_pairs(embeddings, labels, self.seed)
        bits = self._bits_for(rows.shape[1])
        pairs = _Pairs(torch.from_numpy(grades > 0), bits)
        machines = Machines(torch.from_numpy(rows), bits, self.cost)
        for bit in range(bits):
            pairs.start(bit, self.seed + bit)
        outputs = _take_signs(machines.fit(pairs.codes))
        penalty, best = FIRST * pairs.measure_strength(), float("inf")
        self.penalised_, self.losses_ = [], []
        for _ in range(steps):
            half = max(1.0, float(round(penalty / 2)))  # cuts of whole numbers are exact
            before = pairs.measure(outputs, 2 * half)
            for bit in range(bits):
                pairs.improve(bit, outputs[:, bit], half)
            between = pairs.measure(outputs, 2 * half)
            planes, fitted = machines.planes.clone(), _take_signs(machines.fit(pairs.codes))
            # machines minimise a hinge loss; one that errs on more rows than before is not used
            worse = (fitted * pairs.codes).sum(dim=0) < (outputs * pairs.codes).sum(dim=0)
            machines.planes[:, worse] = planes[:, worse]
            outputs = torch.where(worse, outputs, fitted)
            self.penalised_.append((before, between, pairs.measure(outputs, 2 * half)))
            self.losses_.append(pairs.measure_loss(outputs))
            if self.losses_[-1] < best:
                best = self.losses_[-1]
                weight, offset = machines.as_map()
            if torch.equal(outputs, pairs.codes):
                break
            penalty *= GROWTH
        self._set_map(weight, offset)
        self.objective_ = best


def _take_signs(outputs: torch.Tensor) -> torch.Tensor:
    return torch.where(outputs > 0, 1.0, -1.0)


class _Pairs:
    """The codes (n, bits) of all rows, and what is left of their pairs: z_i' z_j - bits y."""

    def __init__(self, similar: torch.Tensor, bits: int) -> None:
        self.wanted = torch.where(similar, 1.0, -1.0).fill_diagonal_(1)
        self.blocks = find_cliques(similar.numpy(), MOST)
        self.codes = torch.zeros(len(similar), bits)
        self.left = torch.zeros_like(self.wanted)
        self.bits = bits

    def start(self, bit: int, seed: int) -> None:
        """Find first values of a bit, given the bits before it, with r y in place of bits y."""
        self.left -= self.wanted
        signs = start_bit(self.left, seed)
        nothing = torch.zeros(len(signs))
        self._keep(bit, minimise_bit(self.left, nothing, signs, self.blocks, passes=1)[0])

    def improve(self, bit: int, outputs: torch.Tensor, half: float) -> None:
        """Improve the values of a bit; the other bits stay, and what they leave weighs z_i z_j."""
        old = self.codes[:, bit].clone()
        self.left.addr_(old, old, alpha=-1)
        self._keep(bit, minimise_bit(self.left, -half * outputs, old, self.blocks, passes=1)[0])

    def _keep(self, bit: int, signs: torch.Tensor) -> None:
        self.left.addr_(signs, signs)
        self.codes[:, bit] = signs

    def measure_strength(self) -> float:
        return float((self.left @ self.codes).abs().mean())

    def measure(self, outputs: torch.Tensor, penalty: float) -> float:
        """Half of the penalised objective: a pair counts once, and a row not with itself."""
        pairs = self.left.double().square().sum() - self.left.diagonal().double().square().sum()
        return float(pairs / 2 + penalty * (self.codes - outputs).square().sum())

    def measure_loss(self, outputs: torch.Tensor) -> float:
        """The mean over pairs of (y - z_i' z_j / bits)^2 for signs (n, bits)."""
        left = (outputs @ outputs.T - self.bits * self.wanted).fill_diagonal_(0)
        return float(left.square().sum() / (left.numel() - len(left)) / self.bits**2)
