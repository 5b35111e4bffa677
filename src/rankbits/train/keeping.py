"""What a run keeps while it learns: its best weights, and a checkpoint to go on from."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from rankbits.train.checkpoints import (
    CHECKPOINT,
    WEIGHTS,
    Progress,
    load_checkpoint,
    load_tensors,
    put,
    save_checkpoint,
)
from rankbits.train.run import Run


@dataclass(eq=False)
class Keeper:
    """Writes into the folder of a run, or keeps the best weights in memory where it has none.

    ``writes``: whether this process does it; of several, one writes and all read.
    """

    run: Run
    loss: torch.nn.Module
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    writes: bool
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    saved: float = field(default_factory=time.monotonic)

    def keep_best(self) -> None:
        """Keep the present weights as the best."""
        if self.writes:
            self.run.keep()
        if self.run.folder is None:
            self.best = {n: t.detach().clone() for n, t in self.run.model.state_dict().items()}

    def load_best(self) -> Run:
        """Give the network its best weights, and evaluation mode."""
        run = self.run
        weights = run.folder / WEIGHTS if run.folder else None
        if weights is not None and weights.is_file():
            put(run.model, load_tensors(weights, "model")[0], weights)
        elif self.best:
            run.model.load_state_dict(self.best)
        run.model.eval()
        return run

    def save(self) -> None:
        """Write the checkpoint."""
        self.saved = time.monotonic()
        run = self.run
        if run.folder is not None and self.writes:
            facts = {"scaler": self.scaler.state_dict(), "config": run.config.facts()}
            save_checkpoint(run.folder, run.model, self.loss, self.optimiser, run.progress, facts)

    def resume(self) -> Progress | None:
        """Load the checkpoint in the folder, if there is one -> where it stands."""
        run = self.run
        if run.folder is None or not (run.folder / CHECKPOINT).is_file():
            return None
        progress, facts = load_checkpoint(run.folder, run.model, self.loss, self.optimiser)
        run.config.refuse_other(facts["config"], run.folder)
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(facts["scaler"])
        run.progress = progress
        return progress
