"""FastAP's schemes of sampling, so that examples meet their neighbours and hard negatives.

A ranking loss asks each example of a batch for its neighbours there, so batches are drawn by class
(FastAP, Sec. 4.2 and supplement A). How a class is cut at the end of a batch: see ``circles``.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.batches import Batches, RandomBatches
from rankbits.data.circles import make_circles

SAMPLERS = ("auto", "shuffled", "random", "hard", "vehicleid")


class ClassBatches(Batches):
    """FastAP's *random* scheme: whole classes in random order until the batch is full.

    An epoch is ceil(n / (M - 1)) batches of M: that takes the circle of classes past its beginning
    however often a cut stepped back, so every class is met.

    ``per_class=n`` draws M // n different classes and n images of each instead, for classes too
    large to come whole: all classes come equally often whatever their size, each walks through its
    own images, and one with fewer than n gives what it has. An epoch is then ceil(rows / M)
    batches, or as many as all classes need to come once.

    >>> [len(batch) for batch in ClassBatches([0, 0, 0, 0, 1, 1, 1, 1], 4, per_class=2)]
    [4, 4]
    """

    def __init__(
        self, labels: Any, batch_size: int, *, per_class: int | None = None, **options: int
    ) -> None:
        super().__init__(labels, batch_size, **options)
        self.per_class = per_class
        _, self._groups, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        rows, classes = len(self.labels), len(sizes)
        if per_class is None:
            self._length = 1 if rows <= self.batch_size else -(-rows // (self.batch_size - 1))
            return
        together = self.batch_size // _check.whole("per_class", per_class, 2)
        if not 1 <= together <= classes:
            _check.refuse(
                f"per_class = {per_class} in a batch of {self.batch_size} means {together} classes "
                f"at once; there are {classes} (per_class from {-(-self.batch_size // classes)} to "
                f"{self.batch_size})."
            )
        self._length = max(-(-rows // self.batch_size), -(-classes // together))

    def __len__(self) -> int:
        return self._length

    def _batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        if self.per_class is not None:
            yield from self._balanced(draw, self.per_class)
            return
        (ring,) = make_circles(self._groups, np.zeros_like(self._groups), None, draw)
        for _ in range(self._length):
            yield ring.take(self.batch_size)

    def _balanced(self, draw: np.random.Generator, few: int) -> Iterator[np.ndarray]:
        rows = draw.permutation(len(self.labels))
        rows = rows[np.argsort(self._groups[rows], kind="stable")]
        sizes = np.bincount(self._groups)
        first = np.cumsum(sizes) - sizes
        seen = np.zeros_like(sizes)
        together, waiting = self.batch_size // few, np.empty(0, np.int64)
        step = np.arange(few)
        for _ in range(self._length):
            if len(waiting) < together:
                fresh = draw.permutation(len(sizes))
                other = ~np.isin(fresh, waiting)
                chosen = np.flatnonzero(other)[: together - len(waiting)]
                classes = np.concatenate([waiting, fresh[chosen]])
                waiting = np.delete(fresh, chosen)
            else:
                classes, waiting = waiting[:together], waiting[together:]
            size = sizes[classes, None]
            spots = first[classes, None] + (seen[classes, None] + step) % size
            seen[classes] += few
            yield rows[spots[step < size]]


class PartBatches(Batches):
    """Batches of equal parts, each from a circle of the classes of one category."""

    together = 2  # categories in a batch

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        categories: Any,
        *,
        per_class: int | None = None,
        **options: int,
    ) -> None:
        super().__init__(labels, batch_size, **options)
        _check_parts(self)
        self.categories = _number_categories(self, categories)
        self.per_class = per_class if per_class is None else _check.whole("per_class", per_class, 2)
        # a class in two categories counts as two
        pairs = np.stack([self.labels, self.categories], axis=1)
        self._groups = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)

    @abc.abstractmethod
    def _draw_circles(self, draw: np.random.Generator) -> np.ndarray:
        """The circles of each batch (n, together), counted in ascending order of categories."""

    def _batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        rings = make_circles(self._groups, self.categories, self.per_class, draw)
        size = self.batch_size // self.together
        for chosen in self._draw_circles(draw):
            yield np.concatenate([rings[ring].take(size) for ring in chosen])


class CategoryBatches(PartBatches):
    """FastAP's *hard* scheme: half of a batch from one category of classes, half from another.

    Every unordered pair of different categories in random order, ``batches_per_pair`` batches
    each: 5 on Stanford Online Products (66 pairs: 330 batches an epoch), 2 on In-Shop (253: 506).
    With ``together`` = 1, 3 or more categories in a batch, which the supplement compares with two,
    an epoch has as many batches, and the categories of each are drawn anew.
    A category is a circle of its classes, in a new order each epoch, and goes on where the batch
    before left it. One of fewer than M/2 images gives all it has, and the batch is that much
    shorter: no image comes twice in a batch. ``per_class`` cuts larger classes into runs of about
    so many images that lie apart in the circle, so that a half is not filled by one class.

    >>> hard = CategoryBatches(np.repeat(np.arange(24), 3), 8, np.repeat(np.arange(12), 6))
    >>> len(hard)
    330
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        categories: Any,
        *,
        batches_per_pair: int = 5,
        together: int = 2,
        **options: Any,
    ) -> None:
        self.together = _check.whole("together", together, 1)
        super().__init__(labels, batch_size, categories, **options)
        without = int((self.categories < 0).sum())
        if without:
            _check.refuse(
                f"CategoryBatches needs a category for every row; {without:,} rows have none "
                "(PartlyCategoryBatches, 'vehicleid', takes those)."
            )
        several = int(self.categories.max()) + 1
        if several < max(2, together):
            _check.refuse(
                f"CategoryBatches needs at least {max(2, together)} categories; got {several}."
            )
        self.batches_per_pair = _check.whole("batches_per_pair", batches_per_pair, 1)
        self._every_pair = np.array(list(itertools.combinations(range(several), 2)))

    def __len__(self) -> int:
        return len(self._every_pair) * self.batches_per_pair

    def _draw_circles(self, draw: np.random.Generator) -> np.ndarray:
        if self.together != 2:
            several = int(self.categories.max()) + 1
            return np.stack([draw.permutation(several)[: self.together] for _ in range(len(self))])
        return np.repeat(draw.permutation(self._every_pair), self.batches_per_pair, axis=0)


class PartlyCategoryBatches(PartBatches):
    """FastAP's scheme for VehicleID: half of a batch from a category, half from classes that have
    none (category -1).

    An epoch is the sum over categories of ceil(2 N_c / M) batches, in random order; circles, cuts
    and small categories are as in :class:`CategoryBatches`.

    >>> categories = np.repeat([0, 1, -1, -1], 6)
    >>> len(PartlyCategoryBatches(np.repeat(np.arange(12), 2), 8, categories))
    4
    """

    def __init__(self, labels: Any, batch_size: int, categories: Any, **options: Any) -> None:
        super().__init__(labels, batch_size, categories, **options)
        free = self.categories < 0
        if not free.any() or free.all():
            _check.refuse(
                "PartlyCategoryBatches needs rows with a category and rows without one (-1); got "
                f"{int((~free).sum()):,} with and {int(free.sum()):,} without."
            )
        self._times = -(-np.bincount(self.categories + 1)[1:] // (self.batch_size // 2))

    def __len__(self) -> int:
        return int(self._times.sum())

    def _draw_circles(self, draw: np.random.Generator) -> np.ndarray:
        order = draw.permutation(np.repeat(np.arange(len(self._times)), self._times))
        return np.stack([order + 1, np.zeros_like(order)], axis=1)  # circle 0 has no category


def _check_parts(sampler: PartBatches) -> None:
    """Refuse a batch that halves do not fill, or whose parts have fewer than two images."""
    name, size, parts = type(sampler).__name__, sampler.batch_size, sampler.together
    if parts == 2 and (size % 2 or size < 4):
        _check.refuse(
            f"{name} fills a batch in halves: batch_size must be even and at least 4; got {size}."
        )
    if size < 2 * parts:
        _check.refuse(f"{name} needs a batch_size of at least 2 * {parts}; got {size}.")


def _number_categories(sampler: Batches, value: Any) -> np.ndarray:
    """One category for each row as 0, 1, ...; negative: none, as -1."""
    name = type(sampler).__name__
    if value is None:
        _check.refuse(f"{name} needs the category of each row; got none.")
    categories = _check.labels("categories", value, len(sampler.labels), names=True)
    if categories.ndim == 2:
        _check.refuse(f"categories must have shape (n,); got {categories.shape}.")
    known = categories >= 0
    numbers = np.full(len(categories), -1, np.int64)
    numbers[known] = np.unique(categories[known], return_inverse=True)[1]
    return numbers


def make_sampler(
    name: str,
    labels: Any,
    categories: Any,
    batch_size: int,
    *,
    per_class: int | None = None,
    batches_per_pair: int = 5,
    together: int = 2,
    **options: int,
) -> Batches:
    """A sampler by name: "shuffled", "random", "hard", "vehicleid", or "auto"; ``options`` are
    those of :class:`Batches`.

    "auto" shuffles multi-hot labels, is "hard" where every row has one of two or more categories,
    and "random" otherwise. Where classes are so large that four would not fit whole into a batch
    (or half of one), it also chooses ``per_class``: a sixteenth of the batch, or more where there
    are fewer than sixteen classes.

    >>> type(make_sampler("auto", [[1, 0], [1, 1]], None, 2)).__name__
    'RandomBatches'
    """
    _check.choice("sampler", name, SAMPLERS)
    if name == "auto":
        name, per_class = _choose(labels, categories, batch_size, per_class)
    if name == "shuffled":
        return RandomBatches(labels, batch_size, **options)
    if name == "random":
        return ClassBatches(labels, batch_size, per_class=per_class, **options)
    parts: dict[str, Any] = {"per_class": per_class, **options}
    if name == "vehicleid":
        return PartlyCategoryBatches(labels, batch_size, categories, **parts)
    parts |= {"batches_per_pair": batches_per_pair, "together": together}
    return CategoryBatches(labels, batch_size, categories, **parts)


def _choose(
    labels: Any, categories: Any, batch_size: int, per_class: int | None
) -> tuple[str, int | None]:
    values = _check.array("labels", labels)
    if values.ndim != 1 or not len(values):
        return "shuffled", None
    size, classes = _check.whole("batch_size", batch_size, 2), len(np.unique(values))
    name = "random"
    if categories is not None:
        known = np.unique(_check.array("categories", categories))
        halves = size % 2 == 0 and size >= 4
        name = "hard" if len(known) > 1 and known[0] >= 0 and halves else "random"
    room = size // 2 if name == "hard" else size
    if per_class is None and 4 * len(values) > room * classes:
        few = 0 if name == "hard" else size // classes
        if few and size // few > classes:  # more classes would fit than there are
            few = size // (classes + 1) + 1
        per_class = max(2, room // 16, few)
    return name, per_class
