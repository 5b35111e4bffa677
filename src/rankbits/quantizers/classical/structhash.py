"""StructHash: bits by column generation for a ranking loss (Lin et al. 2014 and 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels.orders import find_violated
from rankbits.quantizers.classical.affinity import find_cliques, read_pairs
from rankbits.quantizers.classical.cuts import MOST, minimise_bit, start_bit
from rankbits.quantizers.classical.trees import BoostedBit, Grower, TreeBits
from rankbits.types import Questions

COSTS = {"ndcg": 1e6, "auc": 1e3}
MOST_PLANES = 20  # cutting planes that are remembered
ENOUGH = 1e-3  # stop when another plane can lower the objective by less than this share


class StructHash(TreeBits):
    """Bits with weights whose weighted Hamming distance ranks well: a structured SVM over bits.

    With w >= 0 the distance of two rows is the sum of w_r over the bits in which they differ. Over
    lists (``queries`` rows, each against all others) it minimises sum w + C xi, where for every
    order y of the lists

        w' [psi(right order) - psi(y)] >= loss(y) - xi,

    psi being the mean over pairs of a relevant and another item of how much farther the other is,
    if it comes later. ``loss`` is "ndcg" or "auc", C is ``cost`` (1e6 and 1e3 by default). The
    orders are found by cutting planes, at most ``planes`` for each bit. The next bit is the one
    whose constraint in the dual is violated most: minimum cuts find its values, and ``rounds``
    trees of ``depth`` are boosted to predict them.

    Only questions (``ask``) use the weights; codes rank without them. ``objectives_`` has sum w +
    C xi after each bit: it never rises. ``labels`` are (n,) or multi-hot (n, C); without labels,
    near rows are relevant by grade. Learns from at most 5,000 rows, drawn by the seed.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(60) % 3
    >>> x = torch.randn(60, 8, generator=draw) + 3 * torch.eye(3, 8)[y]
    >>> StructHash(6, rounds=5).fit(x, y).encode(x)
    Codes(60 rows of 6 bits)
    """

    needs = (*TreeBits.needs, "weight_")
    objectives_: list[float]

    def __init__(
        self,
        bits: int | None = None,
        *,
        loss: str = "ndcg",
        cost: float | None = None,
        queries: int = 500,
        planes: int = 5,
        rounds: int = 100,
        depth: int = 4,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.loss = loss
        self.cost = cost
        self.queries = queries
        self.planes = planes
        self.rounds = rounds
        self.depth = depth
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        _check.choice("loss", self.loss, tuple(COSTS))
        cost = COSTS[self.loss] if self.cost is None else _check.number("cost", self.cost)
        if cost <= 0:
            _check.refuse(f"cost must be above 0; got {cost}.")
        planes = _check.whole("planes", self.planes, 1)
        _import_solver()  # a missing package is refused before minutes of work
        rows, grades = read_pairs(embeddings, labels, self.seed)
        bits = self._bits_for(rows.shape[1])
        grower = Grower(rows, self.rounds, self.depth, self.seed)
        blocks = find_cliques(grades > 0, MOST)
        draw = np.random.default_rng(self.seed)
        count = min(_check.whole("queries", self.queries, 1), len(rows))
        query_rows = np.sort(draw.choice(len(rows), count, replace=False))
        master = _Master(query_rows, np.exp2(grades[query_rows]) - 1.0, self.loss == "ndcg", cost)
        nothing = torch.zeros(len(rows))
        grown: list[BoostedBit] = []
        self.objectives_ = []
        for bit in range(bits):
            weights = master.weigh_pairs(len(rows))
            start = start_bit(weights, self.seed + bit)
            wanted, _ = minimise_bit(weights, nothing, start, blocks)
            grown.append(grower.grow(wanted))
            master.add_bit(grown[-1].signs.numpy())
            self.objectives_.append(master.solve(planes))
        self._set_trees(grown, rows.shape[1])
        self.weight_ = torch.from_numpy(master.weights).float()
        self.objective_ = self.objectives_[-1]

    def ask(self, embeddings: Any) -> Questions:
        """(n, dim) -> ``Questions``: an index orders its codes by weighted Hamming distance."""
        signs = np.where(_check.array("embeddings", self.transform(embeddings)) > 0, 1, -1)
        return Questions(signs * self.weight_.numpy(), fingerprint=self.fingerprint)

    def is_sound(self) -> bool:
        bits = self.features_.shape[:1]
        return (
            super().is_sound()
            and self.weight_.shape == bits
            and bool((self.weight_ >= 0).all() and self.weight_.isfinite().all())
        )


class _Master:
    """The weights of the bits so far, and the cutting planes that constrain them."""

    def __init__(self, query_rows: np.ndarray, gains: np.ndarray, ndcg: bool, cost: float) -> None:
        self.query_rows, self.gains, self.ndcg, self.cost = query_rows, gains, ndcg, cost
        self.signs = np.empty((gains.shape[1], 0), np.float32)
        self.weights = np.empty(0)
        self.planes: list[_Plane] = [self._find_plane(self.weights)]
        self.duals = np.array([1.0])

    def weigh_pairs(self, rows: int) -> torch.Tensor:
        """The weights of z_i z_j, float32 (n, n), in the energy. The bit that minimises it is the
        one whose constraint in the dual is violated most."""
        sums = sum(d * p.coefficients for d, p in zip(self.duals, self.planes, strict=True))
        weights = np.zeros((rows, rows), np.float32)
        weights[self.query_rows] += sums / np.abs(sums).max(initial=1e-30)
        weights[:, self.query_rows] += weights[self.query_rows].T.copy()
        return torch.from_numpy(weights)

    def add_bit(self, signs: np.ndarray) -> None:
        self.signs = np.column_stack([self.signs, signs])
        self.weights = np.append(self.weights, 0.0)
        for plane in self.planes:
            plane.slopes = np.append(plane.slopes, self._measure_slope(plane.coefficients, signs))

    def _measure_slope(self, coefficients: np.ndarray, signs: np.ndarray) -> float:
        """The sum of coefficients over the pairs that differ in a bit, per query."""
        equal = signs[self.query_rows] @ coefficients @ signs
        return float((coefficients.sum(dtype=np.float64) - equal) / 2 / len(self.query_rows))

    def _find_plane(self, weights: np.ndarray) -> _Plane:
        """The plane of the orders that the distances by these weights violate most."""
        queries = self.signs[self.query_rows] * weights
        distances = (weights.sum() - queries @ self.signs.T.astype(np.float64)) / 2
        coefficients, losses = find_violated(distances, self.gains, self.query_rows, self.ndcg)
        slopes = np.array([self._measure_slope(coefficients, s) for s in self.signs.T])
        return _Plane(coefficients, slopes, float(losses.mean()))

    def solve(self, planes: int) -> float:
        """Minimise sum w + C xi with at most so many more planes; returns it. It never rises."""
        best_weights, best, duals = self.weights, np.inf, self.duals
        weights, promised = self.weights, -np.inf
        for _ in range(planes + 1):
            plane = self._find_plane(weights)
            violated = max(0.0, plane.height - float(plane.slopes @ weights))
            value = float(weights.sum()) + self.cost * violated
            if value < best:
                best_weights, best = weights, value
            if best - promised <= ENOUGH * best:
                break
            self.planes.append(plane)
            weights, duals, promised = self._minimise()
        active = np.argsort(-duals, kind="stable")[:MOST_PLANES]
        active = np.sort(active[duals[active] > 0])
        if len(active):
            self.planes, self.duals = [self.planes[k] for k in active], duals[active]
        self.weights = best_weights
        return float(best)

    def _minimise(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Solve the linear programme of the planes so far: weights, duals, and its value."""
        linprog = _import_solver()
        slopes = np.stack([plane.slopes for plane in self.planes])
        heights = np.array([plane.height for plane in self.planes])
        size = slopes.shape[1]
        solved = linprog(
            np.append(np.ones(size), self.cost),
            A_ub=-np.column_stack([slopes, np.ones(len(slopes))]),
            b_ub=-heights,
            method="highs",
        )
        if not solved.success:  # the solver gave up: zero weights are always feasible
            return self.weights, self.duals, -np.inf
        return np.maximum(solved.x[:size], 0), -solved.ineqlin.marginals, float(solved.fun)


def _import_solver() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        _check.refuse("StructHash needs the package scipy: pip install 'rankbits[classical]'.")
    return linprog


class _Plane:
    """One constraint: slopes' w >= height - xi; coefficients (Q, n) give the slope of a new bit."""

    def __init__(self, coefficients: np.ndarray, slopes: np.ndarray, height: float) -> None:
        self.coefficients, self.slopes, self.height = coefficients, slopes, height
