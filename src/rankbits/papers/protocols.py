"""Protocols: which rows of a published dataset train, ask, answer and validate, and by what figure
the answers are judged. They are checked, not trusted.

A protocol is a line of ``SETTINGS``: who reads the files, who draws the rows, how it is judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rankbits import _check
from rankbits._files import data_root
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.papers.draws import draw_classes, draw_per_class, draw_per_label, draw_rows
from rankbits.papers.publishers import (
    cifar,
    clinc150,
    coco,
    cub,
    fashion_mnist,
    imagenet100,
    inshop,
    labelme,
    nus_wide,
    omniglot,
    products,
    vehicleid,
)
from rankbits.papers.publishers.published import Dataset

Facts = dict[str, Any]  # fields of a Protocol


class Setting(NamedTuple):
    """How a protocol is made: ``read`` the files, ``draw`` the rows by a seed, and the fields that
    say how answers are judged."""

    read: Callable[[Path], Dataset]
    draw: Callable[[Dataset, int], Facts]
    judged: Facts = {}  # noqa: RUF012


def protocol(name: str, root: str | os.PathLike[str] | None = None, seed: int = 0) -> Protocol:
    """The protocol called ``name``, its files under ``root`` (default: the data root).

    ``seed`` decides what is drawn; a split that its publisher fixed ignores it.

    >>> protocol("cifar10-s3")
    Traceback (most recent call last):
    rankbits._check.Refusal: There is no protocol 'cifar10-s3' (did you mean 'cifar10-s2'?).
    """
    if name not in SETTINGS:
        _check.refuse(f"There is no protocol {name!r}{_check.nearest(str(name), SETTINGS)}.")
    _check.whole("seed", seed, 0)
    return draw_protocol(name, SETTINGS[name].read(data_root(root)), seed)


def find_protocol(
    data: str | None, root: str | os.PathLike[str] | None = None, seed: int = 0
) -> Protocol | None:
    """The protocol that ``data`` names, or None where it is a file or folder.

    >>> find_protocol(os.curdir)
    """
    if not data or Path(data).exists():
        return None
    if data not in SETTINGS:
        near = _check.nearest(data, SETTINGS)
        _check.refuse(f"{data} is neither a file or folder nor a protocol{near}.")
    return protocol(data, root, seed)


def draw_protocol(name: str, published: Dataset, seed: int) -> Protocol:
    """The protocol called ``name`` of a dataset that was read."""
    setting = SETTINGS[name]
    facts = {"examples": published.examples, "note": published.note, **setting.judged}
    return Protocol(name, **(facts | setting.draw(published, seed)))


def _first_setting(published: Dataset, seed: int) -> Facts:
    """TALR's first setting: 100 queries a class, the rest the database, 500 a class of it train."""
    queries, train, rest = draw_per_class(published.examples.labels, (100, 500), seed)
    return {"train": train, "queries": queries, "database": np.union1d(train, rest)}


def _standard(published: Dataset, seed: int) -> Facts:
    """The publisher's own split: the training part trains and answers, the test part asks."""
    train, test = published.parts["train"], published.parts["test"]
    return {"train": train, "queries": test, "database": train}


def _cifar100_graded(published: Dataset, seed: int) -> Facts:
    """Graded relevance as in NUS-WIDE: images of one class share two labels, of one category one.
    20 queries a class, the rest the database, 100 a class of it train."""
    own = published.examples
    queries, train, rest = draw_per_class(own.labels, (20, 100), seed)
    parts = [np.asarray(numbers) for numbers in (own.labels, own.categories)]
    hot = [part[:, None] == np.unique(part) for part in parts]
    examples = Examples(own.inputs, np.concatenate(hot, axis=1))
    splits = {"train": train, "queries": queries, "database": np.union1d(train, rest)}
    note = "An image is relevant 2 where it is of the same class, 1 where of the same category."
    return {"examples": examples, **splits, "note": note}


def _cifar10_h2q(published: Dataset, seed: int) -> Facts:
    queries, held, train, rest = draw_per_class(published.examples.labels, (100, 100, 500), seed)
    return {"train": train, "queries": queries, "database": rest, "validation": held}


def _fashion(published: Dataset, seed: int) -> Facts:
    database = published.parts["train"]
    held, rest = draw_per_class(published.examples.labels[database], (1000,), seed)
    return {
        "train": database[rest],
        "queries": published.parts["test"],
        "database": database,
        "validation": database[held],
        "note": "The validation images are part of the database, never of the training images.",
    }


def _at_random(counts: tuple[int, int, int], published: Dataset, seed: int) -> Facts:
    """H2Q's larger sets: so many train, queries and validation at random, the rest answers."""
    rows = np.arange(len(published.examples))
    train, queries, held, rest = draw_rows(rows, counts, seed)
    return {"train": train, "queries": queries, "database": rest, "validation": held}


def _nuswide_talr(published: Dataset, seed: int) -> Facts:
    queries, train, rest = draw_per_label(published.examples.labels, (100, 500), seed)
    return {"train": train, "queries": queries, "database": np.union1d(train, rest)}


def _imagenet100(published: Dataset, seed: int) -> Facts:
    """HashNet's and TALR's setting: 130 images a class train, all of the training part answer."""
    database = published.parts["train"]
    train, _ = draw_per_class(published.examples.labels[database], (130,), seed)
    return {"train": database[train], "queries": published.parts["val"], "database": database}


def _imagenet_h2q(published: Dataset, seed: int) -> Facts:
    """The same, but half of the validation part asks and half of it validates."""
    facts = _imagenet100(published, seed)
    asked = facts["queries"]
    queries, held = draw_rows(asked, (len(asked) // 2,), seed)
    return {**facts, "queries": queries, "validation": held}


def _without_labels(part: str, published: Dataset, seed: int) -> Facts:
    """TALR's LabelMe experiment: neighbours are what lies near, and every row is its own class."""
    queries, train, more, _ = draw_rows(published.parts[part], (2000, 5000, 15000), seed)
    return {
        "examples": Examples(published.examples.inputs, np.arange(len(published.examples))),
        "train": train,
        "queries": queries,
        "database": np.union1d(train, more),
        "note": "No labels: affinities 1, 2, 5, 10 are the 5%, 1%, 0.2%, 0.1% nearest by the "
        "distance of the inputs.",
    }


def _clinc150(published: Dataset, seed: int) -> Facts:
    """FastAP's setting on texts: 6 intents of each domain train, 2 validate, the rest are judged,
    each text against the others."""
    once = published.examples.subset(published.parts["once"])
    train, held, asked = draw_classes(once.labels, np.asarray(once.categories), (6, 2), seed)
    note = "Whole intents train, validate or are judged; a text that came before is left out."
    splits = {"train": train, "queries": asked, "database": asked, "validation": held}
    return {"examples": once, **splits, "exclude_self": True, "note": note}


def _against_the_rest(train: str, test: str, published: Dataset, seed: int) -> Facts:
    """Classes never seen in training, each of their images against all the others."""
    asked = published.parts[test]
    splits = {"train": published.parts[train], "queries": asked, "database": asked}
    return {**splits, "exclude_self": True}


def _inshop(published: Dataset, seed: int) -> Facts:
    splits = ("train", "queries", "database")
    return {s: published.parts[part] for s, part in zip(splits, inshop.PARTS, strict=True)}


def _judge_hits(*k: int) -> Facts:
    return {"k": k, "metric": "hit@1"}


H2Q = {"k": (1000, 5000), "tie_break": True, "metric": "mAP@5000 retrieved"}
NDCG = {"metric": "NDCG"}
TRAIN_TEST = partial(_against_the_rest, "train", "test")
SETTINGS: dict[str, Setting] = {
    "cifar10-s1": Setting(cifar.read_ten, _first_setting),
    "cifar10-s2": Setting(cifar.read_ten, _standard),
    "cifar10-h2q": Setting(cifar.read_ten, _cifar10_h2q, H2Q),
    "cifar100": Setting(cifar.read_hundred, _standard),
    "cifar100-graded": Setting(
        cifar.read_hundred, _cifar100_graded, {"relevance": "count", "metric": "NDCG"}
    ),
    "fashion-mnist": Setting(fashion_mnist.read, _fashion),
    "fashion-mnist-s1": Setting(fashion_mnist.read, _first_setting),
    "nuswide-talr": Setting(
        nus_wide.read, _nuswide_talr, {"k": (1000, 5000), "relevance": "count"}
    ),
    "nuswide-h2q": Setting(nus_wide.read, partial(_at_random, (10_500, 2_100, 2_100)), H2Q),
    "coco-h2q": Setting(coco.read, partial(_at_random, (10_000, 5_000, 5_000)), H2Q),
    "imagenet100": Setting(
        imagenet100.read, _imagenet100, {"k": (100, 1000), "metric": "mAP@1000 retrieved"}
    ),
    "imagenet-h2q": Setting(
        imagenet100.read,
        _imagenet_h2q,
        {"k": (1000,), "tie_break": True, "metric": "mAP@1000 retrieved"},
    ),
    "labelme": Setting(labelme.read, partial(_without_labels, "all"), NDCG),
    "products": Setting(products.read, TRAIN_TEST, _judge_hits(1, 10, 100, 1000)),
    "inshop": Setting(inshop.read, _inshop, _judge_hits(1, 10, 20, 30, 40, 50)),
    "vehicleid-small": Setting(partial(vehicleid.read, size=800), TRAIN_TEST, _judge_hits(1, 5)),
    "vehicleid-medium": Setting(partial(vehicleid.read, size=1600), TRAIN_TEST, _judge_hits(1, 5)),
    "vehicleid-large": Setting(partial(vehicleid.read, size=2400), TRAIN_TEST, _judge_hits(1, 5)),
    "cub": Setting(cub.read, TRAIN_TEST, _judge_hits(1, 2, 4, 8)),
    "omniglot": Setting(
        omniglot.read,
        partial(_against_the_rest, "background", "evaluation"),
        _judge_hits(1, 5, 10, 20),
    ),
    "clinc150": Setting(clinc150.read, _clinc150, _judge_hits(1, 10)),
    "clinc150-neighbours": Setting(clinc150.read, partial(_without_labels, "once"), NDCG),
}
PROTOCOLS = tuple(SETTINGS)
