"""Results: which rows a search found, nearest first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Results:
    """What a search found: ``ids`` and ``distances``, nearest first, equal distances by id.

    A search for k gives two (queries, k) arrays. A search within a radius finds a different number
    for each query: the arrays are flat and ``offsets`` (queries + 1,) says where a query begins.
    ``results[i]`` is ``(ids, distances)`` of query i in both.

    >>> results = Results(np.array([4, 7, 1]), np.array([0, 2, 1]), offsets=np.array([0, 2, 3]))
    >>> len(results), results[1]
    (2, (array([1]), array([1])))
    """

    ids: np.ndarray
    distances: np.ndarray
    offsets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids) if self.offsets is None else len(self.offsets) - 1

    def __getitem__(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        if self.offsets is None:
            return self.ids[query], self.distances[query]
        span = slice(*self.offsets[range(len(self))[query] :][:2])
        return self.ids[span], self.distances[span]
