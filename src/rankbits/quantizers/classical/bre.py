"""Binary reconstructive embeddings: kernel bits whose distances match (Kulis and Darrell 2009)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels.flips import search_weights
from rankbits.quantizers.classical.affinity import read_pairs
from rankbits.quantizers.nonlinear import NonLinear


class BRE(NonLinear):
    """Bits by kernels, such that the share of differing bits is near a wanted distance.

    Bit r of x is the sign of sum_q w_rq (k(x, a_q) - mean of k), with a Gaussian kernel to
    ``anchors`` rows drawn from the embeddings. Over pairs of rows the objective is the mean of
    (t - D / bits)^2, where D is their Hamming distance and the target t is 1 for rows that are not
    similar and 0 for those that are; without labels t is (1 - cosine) / 2 of the centred rows. A
    row forms ``pairs`` pairs, half of them with similar or near rows. An exact search sets each
    weight in turn to its best value, so the objective never rises; ``sweeps`` go over all weights.
    ``objectives_`` has the objective after each bit of each sweep, ``objective_`` the last one.
    ``labels`` are (n,) or multi-hot (n, C). Learns from at most 5,000 rows, drawn by the seed.

    >>> draw = torch.Generator().manual_seed(0)
    >>> y = torch.arange(60) % 3
    >>> x = torch.randn(60, 8, generator=draw) + 3 * torch.eye(3, 8)[y]
    >>> BRE(6, anchors=10).fit(x, y).encode(x)
    Codes(60 rows of 6 bits)
    """

    needs = ("weight_", "offset_", "centre_", "anchors_", "spread_")
    centre_: torch.Tensor
    anchors_: torch.Tensor
    spread_: torch.Tensor
    objectives_: list[float]

    def __init__(
        self,
        bits: int | None = None,
        *,
        anchors: int = 100,
        pairs: int = 50,
        sweeps: int = 2,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.anchors = anchors
        self.pairs = pairs
        self.sweeps = sweeps
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        anchors = _check.whole("anchors", self.anchors, 1)
        sweeps = _check.whole("sweeps", self.sweeps, 1)
        rows, grades = read_pairs(embeddings, labels, self.seed)
        bits = self._bits_for(rows.shape[1])
        draw = np.random.default_rng(self.seed)
        self._place_anchors(torch.from_numpy(rows), anchors, draw)
        kernel = self._compare(torch.from_numpy(rows)).double().numpy().T
        means = kernel.mean(axis=1)
        kernel = np.ascontiguousarray(kernel - means[:, None])
        starts, others = draw_pairs(grades, _check.whole("pairs", self.pairs, 1), draw)
        row_of = np.repeat(np.arange(len(rows)), np.diff(starts))
        apart = 1.0 - grades[row_of, others]
        if labels is None:
            unit = torch.nn.functional.normalize(torch.from_numpy(rows) - self.centre_)
            apart = (1 - (unit @ unit.T).double().numpy()[row_of, others]) / 2
        targets = bits * apart
        weights = draw.standard_normal((bits, len(kernel)))
        ones = weights @ kernel > 0
        distances = (ones[:, row_of] != ones[:, others]).sum(axis=0)
        self.objectives_ = []
        for _ in range(sweeps):
            for bit in range(bits):
                distances -= ones[bit, row_of] != ones[bit, others]
                # (t - D - 1)^2 - (t - D)^2: what it costs a pair to differ in this bit too
                costs = 1 - 2 * (targets - distances)
                weights[bit], ones[bit] = search_weights(
                    kernel, weights[bit], starts, others, costs
                )
                distances += ones[bit, row_of] != ones[bit, others]
                objective = np.square(targets - distances).mean() / bits**2
                self.objectives_.append(float(objective))
        lengths = np.linalg.norm(weights, axis=1, keepdims=True)
        weights /= np.where(lengths > 0, lengths, 1)
        self._set_map(torch.from_numpy(weights), torch.from_numpy(-weights @ means))
        self.objective_ = self.objectives_[-1]

    def _place_anchors(self, rows: torch.Tensor, anchors: int, draw: np.random.Generator) -> None:
        """Set the centre, the anchors and the spread, the unit of length: pairs of rows are 1 apart
        on average."""
        self.centre_ = rows.mean(dim=0)
        centred = rows - self.centre_
        self.spread_ = (2 * centred.square().sum(dim=1).mean()).sqrt().clamp(min=1e-30)
        chosen = np.sort(draw.choice(len(rows), min(anchors, len(rows)), replace=False))
        self.anchors_ = (centred[torch.from_numpy(chosen)] / self.spread_).contiguous()

    def _compare(self, part: torch.Tensor) -> torch.Tensor:
        """The kernels (n, anchors) between rows and anchors."""
        centre, spread, anchors = (
            t.to(part.device) for t in (self.centre_, self.spread_, self.anchors_)
        )
        scaled = (part.float() - centre) / spread
        squares = scaled.square().sum(dim=1)[:, None] + anchors.square().sum(dim=1)
        return torch.exp(-(squares - 2 * scaled @ anchors.T).clamp(min=0))

    def _map(self, part: torch.Tensor) -> torch.Tensor:
        return super()._map(self._compare(part))

    def _dim(self) -> int:
        return len(self.centre_)

    def is_sound(self) -> bool:
        bits, anchors = self.weight_.shape
        parts = [getattr(self, name) for name in self.needs]
        return (
            self.offset_.shape == (bits,)
            and self.anchors_.shape == (anchors, self._dim())
            and self.spread_.shape == ()
            and all(part.dtype == torch.float32 and part.isfinite().all() for part in parts)
        )


def draw_pairs(
    grades: np.ndarray, pairs: int, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of rows: row i is paired with the rows ``others[starts[i]:starts[i + 1]]``.

    Each row draws half of its ``pairs`` from similar rows and half from the others, or as many as
    there are. A pair belongs to both of its rows, and none comes twice.
    """
    rows = len(grades)
    paired = np.zeros((rows, rows), bool)
    for row in range(rows):
        for similar in (True, False):
            from_rows = np.flatnonzero((grades[row] > 0) == similar)
            from_rows = from_rows[from_rows != row]
            count = min(max(1, pairs // 2), len(from_rows))
            paired[row, draw.choice(from_rows, count, replace=False)] = True
    paired |= paired.T
    row_of, others = np.nonzero(paired)
    return np.searchsorted(row_of, np.arange(rows + 1)), others
