"""From any dimension to any number of bits, without labels."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.losses import tie_aware_ndcg_loss
from rankbits.quantizers import rows
from rankbits.quantizers.affine import Quantizer
from rankbits.quantizers.descent import Adam
from rankbits.quantizers.orthogonal import anneal, climb, polar
from rankbits.quantizers.principal import Moments, keep_directions, make_frame
from rankbits.quantizers.rotations import quantization_error

MOST_ROWS = 50_000  # sampled to fit a rotation or to learn from neighbours
SHARES = ((0.05, 1), (0.01, 2), (0.002, 5), (0.001, 10))  # TALR's LabelMe experiment


class Projection(Quantizer):
    """Linear hash functions for any embeddings: (n, dim) -> ``bits``, fewer or more than dim.

    ``objective="pca"``: principal components, then the rotation with the least error (H2Q's fast
    solver); for more bits than the rows have directions, a tight frame of these.
    ``objective="neighbours"``: from there, the map itself is trained so that Hamming distance ranks
    each row's nearest neighbours first, by tie-aware NDCG with affinities 1, 2, 5, 10 for the 5, 1,
    0.2 and 0.1 % nearest (TALR's label-free setting).

    ``fit`` reads the rows in chunks, so they may be a memory-mapped file of millions.
    ``partial_fit`` takes rows in parts (PCA only, rotated on a sample of them).

    >>> x = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    >>> Projection(bits=8).fit(x).encode(x)
    Codes(300 rows of 8 bits)
    """

    def __init__(
        self,
        bits: int | None = None,
        *,
        objective: str = "pca",
        steps: int = 300,
        batch: int = 1000,
        alpha: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.objective = objective
        self.steps = steps
        self.batch = batch
        self.alpha = alpha
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        _check.choice("objective", self.objective, ("pca", "neighbours"))
        value = rows.check_embeddings("embeddings", embeddings)
        self._moments = Moments().add(value)
        drawn, _ = rows.sample(value, MOST_ROWS, self.seed)
        self._fit_moments(drawn.float().cpu())
        if self.objective == "neighbours":
            self._learn_neighbours(drawn.float().cpu())

    def partial_fit(self, embeddings: Any, labels: Any = None) -> Projection:
        """Learn from more rows; returns self."""
        if self.objective != "pca":
            _check.refuse("partial_fit is for objective='pca'; neighbours need all rows at once.")
        value = rows.check_embeddings("embeddings", embeddings)
        if not hasattr(self, "_moments"):
            self._moments, self._seen = Moments(), torch.empty(0, value.shape[1])
        self._moments.add(value)
        drawn, _ = rows.sample(value, MOST_ROWS, self.seed)
        draw = torch.Generator().manual_seed(self.seed)
        seen = torch.cat([self._seen, drawn.float().cpu()])
        self._seen = seen[torch.randperm(len(seen), generator=draw)[:MOST_ROWS]]
        self._fit_moments(self._seen)
        return self

    def _fit_moments(self, drawn: torch.Tensor) -> None:
        """Set the map: principal directions, rotated for the least error on the drawn rows."""
        draw = torch.Generator().manual_seed(self.seed)
        bits = self._bits_for(drawn.shape[1])
        mean, kept = keep_directions(self._moments, bits)
        parts = rows.split_chunks(drawn)
        projected = torch.cat([(part.double() - mean) @ kept.T for _, part in parts])
        frame = make_frame(bits, len(kept), draw)
        scaled = projected * (bits**0.5 / projected.norm(dim=1, keepdim=True).clamp(min=1e-12))
        turned = climb(scaled, anneal(scaled, frame, draw))
        frame = min((frame, turned), key=lambda u: float(quantization_error(scaled @ u.T)))
        frame = polar(frame)
        self.rotation_ = frame.float()
        self.objective_ = float(quantization_error(scaled @ frame.T))
        weight = frame @ kept
        self._set_map(weight, -(weight @ mean))

    def _learn_neighbours(self, drawn: torch.Tensor) -> None:
        """Train the map so that codes rank the nearest neighbours of the drawn rows first."""
        draw = torch.Generator().manual_seed(self.seed)
        drawn = drawn.double()
        mean = drawn.mean(dim=0)
        # outputs get a spread of 1, which tanh(alpha y) needs
        first = self.weight_.double()
        weight = (first / ((drawn - mean) @ first.T).std()).requires_grad_()
        offset = torch.zeros(len(weight), dtype=torch.float64).requires_grad_()
        steps = _check.whole("steps", self.steps, 1)
        adam = Adam([weight, offset], 0.02 * float(weight.detach().std()), steps)
        batch = min(_check.whole("batch", self.batch, 2), len(drawn))
        for _ in range(steps):
            part = drawn[torch.randperm(len(drawn), generator=draw)[:batch]]
            activations = (part - mean) @ weight.T + offset
            loss = tie_aware_ndcg_loss(
                activations, None, alpha=self.alpha, affinity=grade_neighbours(part),
                bins=min(len(weight), 32),
            )  # fmt: skip
            adam.step(loss)
        self.objective_ = float(loss.detach())
        if hasattr(self, "rotation_"):
            del self.rotation_  # the map is no longer a rotation of principal components
        self._set_map(weight, offset - weight @ mean)


def grade_neighbours(part: torch.Tensor) -> torch.Tensor:
    """Affinities uint8 (m, m): 1, 2, 5, 10 for each row's nearest others by cosine, in the shares
    of ``SHARES``; 0 for the rest."""
    unit = torch.nn.functional.normalize(part, dim=1)
    similar = (unit @ unit.T).fill_diagonal_(-2.0)
    affinities = torch.zeros(similar.shape, dtype=torch.uint8)
    for share, affinity in SHARES:
        count = max(1, round(share * (len(part) - 1)))
        affinities.scatter_(1, similar.topk(count, dim=1).indices, affinity)
    return affinities
