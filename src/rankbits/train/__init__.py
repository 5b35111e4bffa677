"""Training: one loop, every default in ``TrainConfig``, runs that survive being killed."""

from rankbits.train.config import TrainConfig
from rankbits.train.embed import Embedded, embed
from rankbits.train.memory import Memory
from rankbits.train.run import Run, load_run
from rankbits.train.start import train
from rankbits.train.step import Replay, batch_gradient
from rankbits.train.validation import Validation

__all__ = [
    "Embedded",
    "Memory",
    "Replay",
    "Run",
    "TrainConfig",
    "Validation",
    "batch_gradient",
    "embed",
    "load_run",
    "train",
]
