"""Linear support vector machines, one for each bit, fitted together."""

from __future__ import annotations

import torch

STEPS = 60  # of L-BFGS from where the last fit ended


class Machines:
    """Hyperplanes for the same rows float32 (n, dim), fitted again whenever the signs change.

    Each minimises |w|^2 / (2 c n) + the mean of max(0, 1 - z (w x + o))^2 on centred rows with one
    common scale: squared hinges, as LIBLINEAR by default.
    """

    def __init__(self, rows: torch.Tensor, bits: int, cost: float) -> None:
        self.centre = rows.mean(dim=0)
        centred = rows - self.centre
        self.scale = float(centred.square().sum(dim=1).mean().sqrt().clamp(min=1e-30))
        ones = torch.ones(len(rows), 1)
        self.rows = torch.cat([centred / self.scale, ones], dim=1)
        self.planes = torch.zeros(self.rows.shape[1], bits)
        self.decay = 1 / (2 * cost * len(rows))

    def fit(self, signs: torch.Tensor) -> torch.Tensor:
        """Fit the signs (n, bits); returns the outputs (n, bits) of the rows."""
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
        short = (1 - signs * (self.rows @ planes)).clamp(min=0)
        decay = self.decay * planes[:-1].square().sum()
        return decay + short.square().sum() / len(self.rows)

    def outputs(self) -> torch.Tensor:
        return self.rows @ self.planes

    def as_map(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight (bits, dim) and offset (bits,) for rows that are not centred or scaled."""
        weight = self.planes[:-1].double().T / self.scale
        return weight, self.planes[-1].double() - weight @ self.centre.double()
