"""Protocols: which rows of a published dataset train, ask, answer and validate, and by what figure
the answers are judged. They are checked, not trusted.

Each is one function of (root, seed); the table at the end names them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.leaks import check
from rankbits.data.publishers import (
    cifar,
    clinc150,
    coco,
    fashion_mnist,
    imagenet100,
    inshop,
    labelme,
    nus_wide,
    omniglot,
    products,
    vehicleid,
)
from rankbits.data.publishers.published import Published
from rankbits.data.root import data_root
from rankbits.data.splits import (
    drawn,
    drawn_classes,
    drawn_per_class,
    drawn_per_label,
    split_own,
)

__all__ = ["PROTOCOLS", "Protocol", "check", "protocol", "split_own"]


@dataclass(frozen=True, eq=False, repr=False)
class Protocol:
    """A dataset with its splits, each int64 rows of ``examples``, and how answers are judged.

    ``exclude_self``: the queries are the database, each against the rest. ``metric`` is the name of
    the headline figure in ``rb.evaluate``'s report. Rows that are in two splits which must not
    meet are refused.

    >>> one = Protocol("mine", Examples(np.eye(4), [0, 0, 1, 1]), [0, 2], [1], [0, 2, 3])
    >>> one
    Protocol(mine: 2 train, 1 queries, 3 database)
    """

    name: str
    examples: Examples
    train: np.ndarray
    queries: np.ndarray
    database: np.ndarray
    validation: np.ndarray | None = None
    exclude_self: bool = False
    k: tuple[int, ...] = (10, 100, 1000)
    tie_break: bool = False
    relevance: str = "any"
    metric: str = "mAP"
    note: str = ""

    def __post_init__(self) -> None:
        _check.choice("relevance", self.relevance, ("any", "count"))
        for split in ("train", "queries", "database", "validation"):
            if (rows := getattr(self, split)) is not None:
                object.__setattr__(self, split, self._rows(split, rows))
        if self.exclude_self:
            if not np.array_equal(self.queries, self.database):
                _check.refuse(f"The queries of {self.name} must be its database: exclude_self.")
            object.__setattr__(self, "database", self.queries)
        else:
            self._apart("queries", "database")
        self._apart("train", "queries")
        if self.validation is not None:
            self._apart("validation", "train")
            self._apart("validation", "queries")

    def _rows(self, split: str, rows: Any) -> np.ndarray:
        found = np.asarray(rows, np.int64)
        if len(np.unique(found)) != len(found):
            _check.refuse(f"The {split} of {self.name} must have no row twice.")
        if found.size and not (found.min() >= 0 and found.max() < len(self.examples)):
            _check.refuse(f"The {split} of {self.name} must be rows of its examples.")
        return found

    def _apart(self, one: str, other: str) -> None:
        both = np.intersect1d(getattr(self, one), getattr(self, other))
        if len(both):
            _check.refuse(
                f"The {one} and the {other} of {self.name} must not share a row; "
                f"they share {len(both):,}."
            )

    def __repr__(self) -> str:
        held = "" if self.validation is None else f", {len(self.validation):,} validation"
        return (
            f"Protocol({self.name}: {len(self.train):,} train, {len(self.queries):,} queries, "
            f"{len(self.database):,} database{held})"
        )


def protocol(name: str, root: str | os.PathLike[str] | None = None, seed: int = 0) -> Protocol:
    """The protocol called ``name``, its files under ``root`` (see ``rankbits.data.root``).

    ``seed`` decides what is drawn; a split that its publisher fixed ignores it.

    >>> protocol("cifar10-s3")
    Traceback (most recent call last):
    rankbits._check.Refusal: There is no protocol 'cifar10-s3' (did you mean 'cifar10-s2'?).
    """
    if name not in _MAKERS:
        _check.refuse(f"There is no protocol {name!r}{_check.nearest(str(name), _MAKERS)}.")
    return _MAKERS[name](name, data_root(root), _check.whole("seed", seed, 0))


Reader = Callable[[Path], Published]
Maker = Callable[[str, Path, int], Protocol]


def _first_setting(read: Reader) -> Maker:
    """TALR's first setting: 100 queries a class, the rest the database, 500 a class of it train."""

    def make(name: str, root: Path, seed: int) -> Protocol:
        examples = read(root).examples
        queries, train, rest = drawn_per_class(examples.labels, (100, 500), seed)
        return Protocol(name, examples, train, queries, np.union1d(train, rest))

    return make


def _standard(read: Reader) -> Maker:
    """The publisher's own split: the training part trains and answers, the test part asks."""

    def make(name: str, root: Path, seed: int) -> Protocol:
        found = read(root)
        train, test = found.parts["train"], found.parts["test"]
        return Protocol(name, found.examples, train, test, train)

    return make


def _cifar10_h2q(name: str, root: Path, seed: int) -> Protocol:
    examples = cifar.read_ten(root).examples
    queries, held, train, rest = drawn_per_class(examples.labels, (100, 100, 500), seed)
    return Protocol(name, examples, train, queries, rest, held, **_H2Q)


def _fashion(name: str, root: Path, seed: int) -> Protocol:
    found = fashion_mnist.read(root)
    database = found.parts["train"]
    held, rest = drawn_per_class(found.examples.labels[database], (1000,), seed)
    note = "The validation images are part of the database, never of the training images."
    return Protocol(
        name,
        found.examples,
        database[rest],
        found.parts["test"],
        database,
        database[held],
        note=note,
    )


_H2Q: dict[str, Any] = {"k": (1000, 5000), "tie_break": True, "metric": "mAP@5000 retrieved"}


def _at_random(read: Reader, counts: tuple[int, int, int]) -> Maker:
    """H2Q's larger sets: so many train, queries and validation at random, the rest answers."""

    def make(name: str, root: Path, seed: int) -> Protocol:
        found = read(root)
        train, queries, held, rest = drawn(np.arange(len(found.examples)), counts, seed)
        return Protocol(name, found.examples, train, queries, rest, held, **_H2Q, note=found.note)

    return make


def _nuswide_talr(name: str, root: Path, seed: int) -> Protocol:
    found = nus_wide.read(root)
    queries, train, rest = drawn_per_label(found.examples.labels, (100, 500), seed)
    return Protocol(
        name,
        found.examples,
        train,
        queries,
        np.union1d(train, rest),
        k=(1000, 5000),
        relevance="count",
        note=found.note,
    )


def _imagenet100(name: str, root: Path, seed: int) -> Protocol:
    found = imagenet100.read(root)
    database, queries = found.parts["train"], found.parts["val"]
    train, _ = drawn_per_class(found.examples.labels[database], (130,), seed)
    note = (
        "mAP@1000 divides by all relevant images; HashNet and H2Q divide by those retrieved, "
        "'mAP@1000 retrieved'."
    )
    return Protocol(
        name,
        found.examples,
        database[train],
        queries,
        database,
        k=(100, 1000),
        metric="mAP@1000",
        note=note,
    )


def _without_labels(read: Reader, part: str) -> Maker:
    """TALR's LabelMe experiment: neighbours are what lies near, and every row is its own class."""

    def make(name: str, root: Path, seed: int) -> Protocol:
        found = read(root)
        queries, train, more, _ = drawn(found.parts[part], (2000, 5000, 15000), seed)
        note = (
            "No labels: affinities 1, 2, 5, 10 are the 5%, 1%, 0.2%, 0.1% nearest by the distance "
            "of the inputs."
        )
        examples = Examples(found.examples.inputs, np.arange(len(found.examples)))
        database = np.union1d(train, more)
        return Protocol(name, examples, train, queries, database, metric="NDCG", note=note)

    return make


def _clinc150(name: str, root: Path, seed: int) -> Protocol:
    """FastAP's setting on texts: 6 intents of each domain train, 2 validate, the rest are judged,
    each text against the others."""
    found = clinc150.read(root)
    once = found.examples.subset(found.parts["once"])
    domains = np.asarray(once.categories)
    train, held, asked = drawn_classes(once.labels, domains, (6, 2), seed)
    note = "Whole intents train, validate or are judged; a text that came before is left out."
    return Protocol(name, once, train, asked, asked, held, True, (1, 10), metric="hit@1", note=note)


def _against_the_rest(read: Reader, train: str, test: str, k: tuple[int, ...]) -> Maker:
    """Classes never seen in training, each of their images against all the others."""

    def make(name: str, root: Path, seed: int) -> Protocol:
        found = read(root)
        asked = found.parts[test]
        return Protocol(
            name,
            found.examples,
            found.parts[train],
            asked,
            asked,
            exclude_self=True,
            k=k,
            metric="hit@1",
        )

    return make


def _inshop(name: str, root: Path, seed: int) -> Protocol:
    found = inshop.read(root)
    train, queries, database = (found.parts[part] for part in inshop.PARTS)
    k = (1, 10, 20, 30, 40, 50)
    return Protocol(name, found.examples, train, queries, database, k=k, metric="hit@1")


def _vehicles(size: str) -> Maker:
    def read(root: Path) -> Published:
        return vehicleid.read(root, size)

    return _against_the_rest(read, "train", "test", (1, 5))


_MAKERS: dict[str, Maker] = {
    "cifar10-s1": _first_setting(cifar.read_ten),
    "cifar10-s2": _standard(cifar.read_ten),
    "cifar10-h2q": _cifar10_h2q,
    "cifar100": _standard(cifar.read_hundred),
    "fashion-mnist": _fashion,
    "fashion-mnist-s1": _first_setting(fashion_mnist.read),
    "nuswide-talr": _nuswide_talr,
    "nuswide-h2q": _at_random(nus_wide.read, (10_500, 2_100, 2_100)),
    "coco-h2q": _at_random(coco.read, (10_000, 5_000, 5_000)),
    "imagenet100": _imagenet100,
    "labelme": _without_labels(labelme.read, "all"),
    "products": _against_the_rest(products.read, "train", "test", (1, 10, 100, 1000)),
    "inshop": _inshop,
    "vehicleid-small": _vehicles("small"),
    "vehicleid-medium": _vehicles("medium"),
    "vehicleid-large": _vehicles("large"),
    "omniglot": _against_the_rest(omniglot.read, "background", "evaluation", (1, 5, 10, 20)),
    "clinc150": _clinc150,
    "clinc150-neighbours": _without_labels(clinc150.read, "once"),
}
PROTOCOLS = tuple(_MAKERS)
