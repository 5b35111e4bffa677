"""Classes in a circle, cut into batches so that an image meets another of its class.

Classes lie one after another in a circle, and a batch (or half of one) is a stretch of it. Three
rules say where a stretch ends. If a cut would leave a single image of a class for the next stretch,
that stretch starts one image earlier. If the last image would be alone, a second one of its class
replaces an image of a class that has three or more in the stretch; if no class has three, the
stretch ends one image early. So every image that has a neighbour in the circle has one in its
stretch, and the circle moves on by at least M - 1 images for a stretch of M.
"""

from __future__ import annotations

import numpy as np


class Circle:
    """Rows in a circle; those of one run (a class, or a piece of one) lie side by side."""

    def __init__(self, rows: np.ndarray, runs: np.ndarray) -> None:
        self.rows, self.cursor = rows, 0
        edges = np.flatnonzero(np.diff(runs, prepend=-1))
        lengths = np.diff(edges, append=len(rows))
        self.first = np.repeat(edges, lengths)
        self.stop = np.repeat(edges + lengths, lengths)

    def take(self, size: int) -> np.ndarray:
        """The next ``size`` rows, all if there are no more, or one fewer where a cut needs it."""
        if len(self.rows) <= size:
            return self.rows
        spots = (self.cursor + np.arange(size)) % len(self.rows)
        last = int(spots[-1])
        run, counts = np.unique(self.first[spots], return_counts=True)
        alone = counts[np.searchsorted(run, self.first[last])] == 1
        if alone and self.stop[last] - last > 1:
            spare = np.flatnonzero(np.isin(self.first[spots], run[counts > 2]))
            if not len(spare):
                self.cursor = last
                return self.rows[spots[:-1]]
            last += 1
            spots = np.append(np.delete(spots, spare[-1]), last)
        left = self.stop[last] - last - 1
        self.cursor = last if left == 1 else (last + 1) % len(self.rows)
        return self.rows[spots]


def make_circles(
    groups: np.ndarray, categories: np.ndarray, per_class: int | None, draw: np.random.Generator
) -> list[Circle]:
    """A circle for each category in ascending order. Classes (``groups``) and the rows in them are
    shuffled; ``per_class`` cuts larger classes into runs of about so many rows."""
    rows = draw.permutation(len(groups))
    rows = rows[np.argsort(groups[rows], kind="stable")]
    group = groups[rows]
    sizes = np.bincount(groups)
    if per_class is None:
        runs = group
    else:
        # even pieces, never of one image where the class has two
        pieces = np.minimum(-(-sizes // per_class), np.maximum(1, sizes // 2))
        nth = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[group]
        offsets = np.cumsum(pieces) - pieces
        runs = offsets[group] + nth * pieces[group] // sizes[group]
    place = draw.permutation(int(runs.max()) + 1)[runs]
    order = np.lexsort((place, categories[rows]))
    rows, place = rows[order], place[order]
    edges = np.flatnonzero(np.diff(categories[rows]))
    parts = zip(np.split(rows, edges + 1), np.split(place, edges + 1), strict=True)
    return [Circle(*part) for part in parts]
