"""Linear support vector machines, one for each bit, all at once."""

from __future__ import annotations

import torch

STEPS = 60  # of L-BFGS from where the last fit ended


class Machines:
    """Hyperplanes for the same rows float32 (n, dim), fitted again and again to other signs.

    Each minimises |w|^2 / (2 c n) + the mean of max(0, 1 - z (w x + o))^2, on rows that are centred
    and scaled as a whole: squared hinges, as LIBLINEAR's default.
    """

    def __init__(self, known: torch.Tensor, bits: int, cost: float) -> None:
        self.centre = known.mean(dim=0)
        centred = known - self.centre
        self.scale = float(centred.square().sum(dim=1).mean().sqrt().clamp(min=1e-30))
        ones = torch.ones(len(known), 1)
        self.known = torch.cat([centred / self.scale, ones], dim=1)
        self.planes = torch.zeros(self.known.shape[1], bits)
        self.decay = 1 / (2 * cost * len(known))

    def fit(self, signs: torch.Tensor) -> torch.Tensor:
        """Fit the signs (n, bits); the outputs (n, bits) for the rows."""
        planes = self.planes.clone().requires_grad_()
        search = torch.optim.LBFGS(
            [planes], max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe"
        )

        def lose() -> torch.Tensor:
            search.zero_grad()
            loss = self.measure(planes, signs)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        search.step(lose)  # type: ignore[no-untyped-call]
        self.planes = planes.detach()
        return self.outputs()

    def measure(self, planes: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        short = (1 - signs * (self.known @ planes)).clamp(min=0)
        decay = self.decay * planes[:-1].square().sum()
        return decay + short.square().sum() / len(self.known)

    def outputs(self) -> torch.Tensor:
        return self.known @ self.planes

    def as_map(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (bits, dim) and offset (bits,) for rows as they came."""
        weight = self.planes[:-1].double().T / self.scale
        return weight, self.planes[-1].double() - weight @ self.centre.double()
