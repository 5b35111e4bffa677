"""Adam, for the few numbers that a quantizer learns.

``torch.optim`` loads torch's compiler with its first step, which takes four seconds: longer than
most fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

MEAN, SQUARE, FLOOR = 0.9, 0.999, 1e-8  # the paper's, and torch's, defaults


class Adam:
    """Lowers losses by ``steps`` steps, the rate falling along half a cosine from ``rate`` to 0.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> adam = Adam([x], rate=0.5, steps=100)
    >>> for _ in range(100):
    ...     adam.step((x**2).sum())
    >>> bool(x.abs() < 0.1)
    True
    """

    def __init__(self, parameters: Sequence[torch.Tensor], rate: float, steps: int) -> None:
        self.parameters, self.rate, self.steps = parameters, rate, steps
        self.done = 0
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]

    def step(self, loss: torch.Tensor) -> None:
        """Move the parameters, in place, against the gradient of ``loss``."""
        rate = self.rate * (1 + math.cos(math.pi * self.done / self.steps)) / 2
        self.done += 1
        gradients = torch.autograd.grad(loss, list(self.parameters))
        with torch.no_grad():
            for parameter, mean, square, gradient in zip(
                self.parameters, self.means, self.squares, gradients, strict=True
            ):
                mean.lerp_(gradient, 1 - MEAN)
                square.lerp_(gradient**2, 1 - SQUARE)
                spread = (square / (1 - SQUARE**self.done)).sqrt() + FLOOR
                parameter -= rate / (1 - MEAN**self.done) * mean / spread
