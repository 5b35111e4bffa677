"""Which examples meet in a batch.

The plan of an epoch is a pure function of (seed, epoch): every process makes the same global
batches and takes its own share, and a run can resume in the middle of an epoch.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from rankbits import _check


class Batches(Sampler[list[int]], abc.ABC):
    """A batch sampler: ``plan(epoch)`` gives the global batches, iteration this process's share.

    ``epoch`` and ``start`` say where the next iteration begins; a finished one leaves them at the
    next epoch. A loader with workers draws batches ahead of their use, so a trainer that saves its
    place counts the batches it used and comes back with ``at(epoch, start)``.
    """

    def __init__(
        self, labels: Any, batch_size: int, *, seed: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        names = _check.label_names("labels", labels)
        values = _check.array("labels", labels) if names is None else names
        rows = len(values) if values.ndim else 0
        self.labels = _check.labels("labels", values, rows, names=True)
        _check.not_empty("labels", len(self.labels))
        if self.labels.ndim == 2 and not isinstance(self, RandomBatches):
            _check.refuse(
                f"{type(self).__name__} needs one class for each row, labels of shape (n,); got "
                f"multi-hot {self.labels.shape} (RandomBatches takes those)."
            )
        self.world = _check.whole("world", world, 1)
        self.rank = _check.whole("rank", rank, 0)
        if self.rank >= self.world:
            _check.refuse(f"rank must be less than world = {self.world}; got {self.rank}.")
        self.batch_size = _check.whole("batch_size", batch_size, max(2, self.world))
        self.seed = _check.whole("seed", seed, 0)
        self.epoch, self.start = 0, 0

    @abc.abstractmethod
    def __len__(self) -> int:
        """Batches in an epoch, the same for each process."""

    @abc.abstractmethod
    def _draw_batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        """The global batches of one epoch; ``draw`` gives its random numbers."""

    def plan(self, epoch: int) -> Iterator[np.ndarray]:
        """The global batches of an epoch, each an int64 array of rows without repeats."""
        draw = np.random.default_rng([self.seed, _check.whole("epoch", epoch, 0)])
        return self._draw_batches(draw)

    def share(self, batch: np.ndarray) -> np.ndarray:
        """This process's rows of a global batch. The shares of all ranks, joined in order, are the
        batch, and their lengths differ by at most one (some are empty if there are fewer rows than
        processes)."""
        rows = len(batch)
        return batch[rows * self.rank // self.world : rows * (self.rank + 1) // self.world]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in itertools.islice(self.plan(self.epoch), self.start, None):
            self.start += 1
            yield self.share(batch).tolist()
        self.at(self.epoch + 1)

    def at(self, epoch: int, start: int = 0) -> Batches:
        """Begin the next iteration at batch ``start`` of ``epoch``; returns self."""
        _check.whole("epoch", epoch, 0)
        if _check.whole("start", start, 0) > len(self):
            _check.refuse(f"start must be at most the {len(self):,} batches an epoch; got {start}.")
        self.epoch, self.start = int(epoch), int(start)
        return self


class RandomBatches(Batches):
    """All rows in random order, cut into batches: for multi-hot labels and losses without ranks.

    The last, shorter batch is kept unless it is a single row and there are other batches.

    >>> [len(batch) for batch in RandomBatches([0, 1] * 5, 4)]
    [4, 4, 2]
    """

    def __len__(self) -> int:
        whole, rest = divmod(len(self.labels), self.batch_size)
        return whole + (rest > 1 or not whole)

    def _draw_batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        order = draw.permutation(len(self.labels))
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield order[start : start + self.batch_size]
