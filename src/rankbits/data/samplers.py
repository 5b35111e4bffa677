"""FastAP's sampling schemes: batches in which examples meet their neighbours and hard negatives.

A ranking loss asks each example of a batch for its neighbours there, so batches are drawn by class
(FastAP, Sec. 4.2 and supplement A). ``circles`` says how a class is cut at the end of a batch.
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

    An epoch is ceil(n / (M - 1)) batches of M. That is once around the circle of classes even if
    every cut steps back by one image, so every class is drawn.

    ``per_class=n`` is for classes too large for a batch: it draws M // n different classes and the
    next n images of each. All classes are drawn equally often, whatever their size, and a class of
    fewer than n images gives all of them. An epoch is then ceil(rows / M) batches, or more if that
    does not draw every class once.

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

    def _draw_batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        if self.per_class is not None:
            yield from self._draw_balanced(draw, self.per_class)
            return
        (circle,) = make_circles(self._groups, np.zeros_like(self._groups), None, draw)
        for _ in range(self._length):
            yield circle.take(self.batch_size)

    def _draw_balanced(self, draw: np.random.Generator, per_class: int) -> Iterator[np.ndarray]:
        rows = draw.permutation(len(self.labels))
        rows = rows[np.argsort(self._groups[rows], kind="stable")]
        sizes = np.bincount(self._groups)
        first = np.cumsum(sizes) - sizes
        seen = np.zeros_like(sizes)
        together, waiting = self.batch_size // per_class, np.empty(0, np.int64)
        step = np.arange(per_class)
        for _ in range(self._length):
            if len(waiting) < together:
                order = draw.permutation(len(sizes))
                not_waiting = np.flatnonzero(~np.isin(order, waiting))
                added = not_waiting[: together - len(waiting)]
                classes = np.concatenate([waiting, order[added]])
                waiting = np.delete(order, added)
            else:
                classes, waiting = waiting[:together], waiting[together:]
            size = sizes[classes, None]
            spots = first[classes, None] + (seen[classes, None] + step) % size
            seen[classes] += per_class
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
        """The numbers of the circles of each batch (n, together), in the order of categories."""

    def _draw_batches(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        circles = make_circles(self._groups, self.categories, self.per_class, draw)
        size = self.batch_size // self.together
        for numbers in self._draw_circles(draw):
            yield np.concatenate([circles[number].take(size) for number in numbers])


class CategoryBatches(PartBatches):
    """FastAP's *hard* scheme: half of a batch from one category of classes, half from another.

    An epoch goes through all unordered pairs of different categories in random order and draws
    ``batches_per_pair`` batches of each: 5 on Stanford Online Products (66 pairs: 330 batches), 2
    on In-Shop (253 pairs: 506). With ``together`` = 1, 3 or more categories in a batch, which the
    supplement compares with two, an epoch has as many batches, each of categories drawn at random.
    The classes of a category form a circle, in a new order each epoch, and each batch continues
    where the last one ended. A category of fewer than M/2 images gives all of them, and the batch
    is that much shorter: no image comes twice in a batch. ``per_class`` cuts larger classes into
    runs of about so many images that lie apart in the circle, so that one class does not fill half
    a batch.

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
        count = int(self.categories.max()) + 1
        if count < max(2, together):
            _check.refuse(
                f"CategoryBatches needs at least {max(2, together)} categories; got {count}."
            )
        self.batches_per_pair = _check.whole("batches_per_pair", batches_per_pair, 1)
        self._every_pair = np.array(list(itertools.combinations(range(count), 2)))

    def __len__(self) -> int:
        return len(self._every_pair) * self.batches_per_pair

    def _draw_circles(self, draw: np.random.Generator) -> np.ndarray:
        if self.together != 2:
            count = int(self.categories.max()) + 1
            return np.stack([draw.permutation(count)[: self.together] for _ in range(len(self))])
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
        without = self.categories < 0
        if not without.any() or without.all():
            _check.refuse(
                "PartlyCategoryBatches needs rows with a category and rows without one (-1); got "
                f"{int((~without).sum()):,} with and {int(without.sum()):,} without."
            )
        self._times = -(-np.bincount(self.categories + 1)[1:] // (self.batch_size // 2))

    def __len__(self) -> int:
        return int(self._times.sum())

    def _draw_circles(self, draw: np.random.Generator) -> np.ndarray:
        order = draw.permutation(np.repeat(np.arange(len(self._times)), self._times))
        return np.stack([order + 1, np.zeros_like(order)], axis=1)  # circle 0 has no category


def _check_parts(sampler: PartBatches) -> None:
    """Refuse an odd batch of two parts, and parts of fewer than two images."""
    name, size, parts = type(sampler).__name__, sampler.batch_size, sampler.together
    if parts == 2 and (size % 2 or size < 4):
        _check.refuse(
            f"{name} fills a batch in halves: batch_size must be even and at least 4; got {size}."
        )
    if size < 2 * parts:
        _check.refuse(f"{name} needs a batch_size of at least 2 * {parts}; got {size}.")


def _number_categories(sampler: Batches, value: Any) -> np.ndarray:
    """The category of each row as 0, 1, ...; -1 for a negative one, which means none."""
    name = type(sampler).__name__
    if value is None:
        _check.refuse(f"{name} needs the category of each row; got none.")
    categories = _check.labels("categories", value, len(sampler.labels), names=True)
    if categories.ndim == 2:
        _check.refuse(f"categories must have shape (n,); got {categories.shape}.")
    present = categories >= 0
    numbers = np.full(len(categories), -1, np.int64)
    numbers[present] = np.unique(categories[present], return_inverse=True)[1]
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
    """Make a sampler by name: "shuffled", "random", "hard", "vehicleid", or "auto"; ``options``
    are those of :class:`Batches`.

    "auto" is "shuffled" for multi-hot labels, "hard" if every row has a category and there are two
    or more, and "random" otherwise. If classes are so large that four would not fit whole into a
    batch (or half of one), it also chooses ``per_class``: a sixteenth of the batch, or more if
    there are fewer than sixteen classes.

    >>> type(make_sampler("auto", [[1, 0], [1, 1]], None, 2)).__name__
    'RandomBatches'
    """
    _check.choice("sampler", name, SAMPLERS)
    if name == "auto":
        name, per_class = _choose_sampler(labels, categories, batch_size, per_class)
    if name == "shuffled":
        return RandomBatches(labels, batch_size, **options)
    if name == "random":
        return ClassBatches(labels, batch_size, per_class=per_class, **options)
    parts: dict[str, Any] = {"per_class": per_class, **options}
    if name == "vehicleid":
        return PartlyCategoryBatches(labels, batch_size, categories, **parts)
    parts |= {"batches_per_pair": batches_per_pair, "together": together}
    return CategoryBatches(labels, batch_size, categories, **parts)


def _choose_sampler(
    labels: Any, categories: Any, batch_size: int, per_class: int | None
) -> tuple[str, int | None]:
    """The sampler that "auto" means, and its ``per_class``."""
    values = _check.array("labels", labels)
    if values.ndim != 1 or not len(values):
        return "shuffled", None
    size, classes = _check.whole("batch_size", batch_size, 2), len(np.unique(values))
    name = "random"
    if categories is not None:
        different = np.unique(_check.array("categories", categories))
        halves = size % 2 == 0 and size >= 4
        name = "hard" if len(different) > 1 and different[0] >= 0 and halves else "random"
    part = size // 2 if name == "hard" else size
    if per_class is None and 4 * len(values) > part * classes:
        least = 0 if name == "hard" else size // classes
        if least and size // least > classes:  # more classes would fit than there are
            least = size // (classes + 1) + 1
        per_class = max(2, part // 16, least)
    return name, per_class
