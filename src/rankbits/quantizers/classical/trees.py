"""Bits by boosted decision trees: what FastHash and StructHash share."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels.trees import ASIDE, boost_trees, score_trees
from rankbits.quantizers.nonlinear import NonLinear

BINS = 32  # a feature is split at 31 of its quantiles
SHARE, FEWEST = 0.1, 32  # of the features that a level of a tree may use (LazyBoost); at least


class TreeBits(NonLinear):
    """Bit r is the sign of a sum of decision trees F_r(x).

    ``transform`` gives F. AdaBoost reads it as half the log-odds of a bit, so ``ask`` weighs each
    bit of a query by how sure it is.
    """

    needs: ClassVar[tuple[str, ...]] = ("features_", "thresholds_", "leaves_", "dim_")
    features_: torch.Tensor  # int32 (bits, rounds, nodes)
    thresholds_: torch.Tensor  # float32 (bits, rounds, nodes)
    leaves_: torch.Tensor  # float32 (bits, rounds, nodes + 1)
    dim_: torch.Tensor
    rounds: int
    depth: int

    def _dim(self) -> int:
        return int(self.dim_)

    def _map(self, part: torch.Tensor) -> torch.Tensor:
        rows = part.float().cpu()
        if not torch.isfinite(rows.sum()):
            _check.finite("embeddings", rows.numpy())
        trees = (t.numpy() for t in (self.features_, self.thresholds_, self.leaves_))
        return torch.from_numpy(score_trees(rows.numpy(), *trees)).to(part.device)

    def is_sound(self) -> bool:
        """Whether the trees are complete and every node names a feature."""
        shape, dim = self.features_.shape, self.dim_
        return (
            len(shape) == 3
            and dim.shape == ()
            and not dim.is_floating_point()
            and self.features_.dtype == torch.int32
            and self.thresholds_.dtype == self.leaves_.dtype == torch.float32
            and self.thresholds_.shape == shape
            and self.leaves_.shape == (*shape[:2], shape[2] + 1)
            and (shape[2] + 1).bit_count() == 1
            and bool((self.features_ >= 0).all() and (self.features_ < dim).all())
            and not bool(self.thresholds_.isnan().any() or self.leaves_.isnan().any())
        )

    def _set_trees(self, bits: list[BoostedBit], dim: int) -> None:
        self.features_, self.thresholds_, self.leaves_ = (
            torch.from_numpy(np.stack([getattr(bit, name) for bit in bits]))
            for name in ("features", "thresholds", "leaves")
        )
        self.dim_ = torch.tensor(dim)


class BoostedBit:
    """The trees of one bit, and the signs (n,) that they give the rows they were grown on."""

    def __init__(
        self, features: np.ndarray, thresholds: np.ndarray, leaves: np.ndarray, signs: torch.Tensor
    ) -> None:
        self.features, self.thresholds, self.leaves = features, thresholds, leaves
        self.signs = signs


class Grower:
    """Grows the trees of one bit after another on the same rows float32 (n, dim)."""

    def __init__(self, rows: np.ndarray, rounds: int, depth: int, seed: int) -> None:
        self.rounds = _check.whole("rounds", rounds, 1)
        self.depth = _check.whole("depth", depth, 1)
        if self.depth > 8:
            _check.refuse(f"depth must be at most 8; got {self.depth}.")
        self.rows, self.draw = rows, np.random.default_rng(seed)
        shares = np.arange(1, BINS) / BINS
        # values of the rows themselves, so that every machine puts a row on the same side
        self.edges = np.quantile(rows, shares, axis=0, method="lower").T.astype(np.float32)
        self.bins = np.stack(
            [np.searchsorted(e, c) for e, c in zip(self.edges, rows.T, strict=True)]
        ).astype(np.uint8)

    def grow(self, wanted: torch.Tensor) -> BoostedBit:
        """Grow trees that predict the signs ``wanted`` (n,) of the rows."""
        dim = len(self.bins)
        count = min(dim, max(FEWEST, round(SHARE * dim)))
        size = (self.rounds, self.depth)
        columns = self.draw.random((*size, dim)).argpartition(count - 1, axis=2)[:, :, :count]
        features, cuts, leaves, _ = boost_trees(self.bins, wanted.numpy() > 0, columns)
        at = np.minimum(cuts, self.edges.shape[1] - 1)
        thresholds = np.where(cuts == ASIDE, np.inf, self.edges[features, at]).astype(np.float32)
        trees = features, thresholds, leaves
        scores = score_trees(self.rows, *(tree[None] for tree in trees))[:, 0]
        return BoostedBit(*trees, torch.where(torch.from_numpy(scores) > 0, 1.0, -1.0))
