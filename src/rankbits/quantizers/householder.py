"""H2Q: the rotation with the least quantization loss; a rotation keeps all similarities."""

from __future__ import annotations

from typing import Any

import torch

from rankbits import _check
from rankbits.quantizers.orthogonal import (
    Objective,
    anneal,
    climb,
    descend,
    descend_householder,
    polar,
)
from rankbits.quantizers.rotations import Rotation, quantization_error

LOSSES: dict[str, Objective] = {
    "l2": quantization_error,
    "l1": lambda y: (y.abs() - 1).abs().mean(),
    "min_entry": lambda y: torch.logsumexp(-(y**2), dim=1).mean(),
    "bit_var": lambda y: (torch.sigmoid(y) * (1 - torch.sigmoid(y))).mean(),
}
RATES = {"l2": 0.1, "l1": 0.1, "min_entry": 0.1, "bit_var": 0.01}
FEW = 20_000  # rows that the descent on losses other than l2 uses


class H2Q(Rotation):
    """Deep Hashing via Householder Quantization: an orthogonal map that lowers a quantization loss.

    Rows are scaled to norm sqrt(bits); y = U f. ``loss``: "l2" (y - sgn y)^2, "l1" |y - sgn y|,
    "min_entry" logsumexp over bits of -y^2, "bit_var" s(y)(1 - s(y)) with the logistic s.
    If ``bits`` is not dim, principal components come first; for more bits a tight frame of them.

    ``solver="fast"``: annealed, accelerated Procrustes steps, the best of ``restarts``; losses
    other than "l2" continue from there by gradient descent on the group. ``solver="sgd"``: the
    paper's gradient steps on Householder vectors, ``epochs`` of batches of 128, with ``optimizer``
    "sgd" as in the authors' code or "adam" as in their text. The loss is never above that of the
    identity.

    >>> x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    >>> h2q = H2Q().fit(x)
    >>> h2q.objective_ < quantization_error(x * 8**0.5 / x.norm(dim=1, keepdim=True))
    tensor(True)
    """

    def __init__(
        self,
        bits: int | None = None,
        *,
        loss: str = "l2",
        solver: str = "fast",
        restarts: int = 1,
        epochs: int = 300,
        optimizer: str = "sgd",
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.loss = loss
        self.solver = solver
        self.restarts = restarts
        self.epochs = epochs
        self.optimizer = optimizer
        self.seed = seed

    def _fit(self, embeddings: Any, labels: Any) -> None:
        objective = LOSSES[_check.choice("loss", self.loss, tuple(LOSSES))]
        _check.choice("solver", self.solver, ("fast", "sgd"))
        _check.choice("optimizer", self.optimizer, ("sgd", "adam"))
        scaled, map_before = self._prepare(embeddings)
        draw = torch.Generator().manual_seed(self.seed)
        if self.solver == "fast":
            rotation = self._solve_fast(scaled, objective, draw)
        else:
            # in single precision, as in the authors' code
            rotation = descend_householder(
                scaled.float(), objective, draw,
                epochs=_check.whole("epochs", self.epochs, 1),
                rate=RATES[self.loss], optimizer=self.optimizer,
            ).double()  # fmt: skip
        identity = torch.eye(scaled.shape[1], dtype=scaled.dtype)
        rotation = min((identity, rotation), key=lambda u: float(objective(scaled @ u.T)))
        self.objective_ = float(objective(scaled @ rotation.T))
        self._set_rotation(rotation, map_before)

    def _solve_fast(
        self, scaled: torch.Tensor, objective: Objective, draw: torch.Generator
    ) -> torch.Tensor:
        start = torch.eye(scaled.shape[1], dtype=scaled.dtype)
        rotations = [
            climb(scaled, anneal(scaled, start, draw))
            for _ in range(_check.whole("restarts", self.restarts, 1))
        ]
        best = min(rotations, key=lambda u: float(quantization_error(scaled @ u.T)))
        if self.loss != "l2":
            few = scaled[torch.randperm(len(scaled), generator=draw)[:FEW]]
            best = descend(few, best, objective, 100)
        return polar(best)
