"""Protocols: which rows of a published dataset are for training, queries, database and validation,
and by which figure the ranking is judged.

A protocol is a line of ``SETTINGS``: what reads the files, what draws the rows, how it is judged.
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
    """How a protocol is made: ``read`` the files, ``draw`` the rows by a seed, and ``judged``, the
    fields of the protocol that say how rankings are judged."""

    read: Callable[[Path], Dataset]
    draw: Callable[[Dataset, int], Facts]
    judged: Facts = {}  # noqa: RUF012


def protocol(name: str, root: str | os.PathLike[str] | None = None, seed: int = 0) -> Protocol:
    """Make the protocol called ``name`` from its files under ``root`` (default: the data root).

    ``seed`` decides what is drawn; a split that its publisher fixed ignores it.

    >>> protocol("cifar10-s3")
    Traceback (most recent call last):
    rankbits._check.Refusal: There is no protocol 'cifar10-s3' (did you mean 'cifar10-s2'?).
    """
    if name not in SETTINGS:
        _check.refuse(f"There is no protocol {name!r}{_check.suggest(str(name), SETTINGS)}.")
    _check.whole("seed", seed, 0)
    return draw_protocol(name, SETTINGS[name].read(data_root(root)), seed)


def find_protocol(
    data: str | None, root: str | os.PathLike[str] | None = None, seed: int = 0
) -> Protocol | None:
    """Make the protocol that ``data`` names; None where it is a file or folder.

    >>> find_protocol(os.curdir)
    """
    if not data or Path(data).exists():
        return None
    if data not in SETTINGS:
        near = _check.suggest(data, SETTINGS)
        _check.refuse(f"{data} is neither a file or folder nor a protocol{near}.")
    return protocol(data, root, seed)


def draw_protocol(name: str, published: Dataset, seed: int) -> Protocol:
    """Make the protocol called ``name`` from a dataset that was read."""
    setting = SETTINGS[name]
    facts = {"examples": published.examples, "note": published.note, **setting.judged}
    return Protocol(name, **(facts | setting.draw(published, seed)))


def _draw_first_setting(published: Dataset, seed: int) -> Facts:
    """Draw 100 queries per class; the rest is the database, of which 500 per class train (TALR)."""
    queries, train, rest = draw_per_class(published.examples.labels, (100, 500), seed)
    return {"train": train, "queries": queries, "database": np.union1d(train, rest)}


def _take_standard(published: Dataset, seed: int) -> Facts:
    """Train on the publisher's training part, which is the database; the test part has queries."""
    train, test = published.parts["train"], published.parts["test"]
    return {"train": train, "queries": test, "database": train}


def _draw_cifar100_graded(published: Dataset, seed: int) -> Facts:
    """Grade relevance as in NUS-WIDE: images of one class share two labels, of one category one.
    20 queries per class, the rest the database, of which 100 per class train."""
    examples = published.examples
    queries, train, rest = draw_per_class(examples.labels, (20, 100), seed)
    parts = [np.asarray(numbers) for numbers in (examples.labels, examples.categories)]
    hot = [part[:, None] == np.unique(part) for part in parts]
    graded = Examples(examples.inputs, np.concatenate(hot, axis=1))
    splits = {"train": train, "queries": queries, "database": np.union1d(train, rest)}
    note = "An image is relevant 2 where it is of the same class, 1 where of the same category."
    return {"examples": graded, **splits, "note": note}


def _draw_cifar10_h2q(published: Dataset, seed: int) -> Facts:
    parts = draw_per_class(published.examples.labels, (100, 100, 500), seed)
    return dict(zip(("queries", "validation", "train", "database"), parts, strict=True))


def _draw_fashion(published: Dataset, seed: int) -> Facts:
    database = published.parts["train"]
    validation, train = draw_per_class(published.examples.labels[database], (1000,), seed)
    return {
        "train": database[train],
        "queries": published.parts["test"],
        "database": database,
        "validation": database[validation],
        "note": "The validation images are part of the database, never of the training images.",
    }


def _draw_at_random(counts: tuple[int, int, int], published: Dataset, seed: int) -> Facts:
    """Draw training, query and validation rows of all (H2Q's larger sets); the rest is database."""
    parts = draw_rows(np.arange(len(published.examples)), counts, seed)
    return dict(zip(("train", "queries", "validation", "database"), parts, strict=True))


def _draw_nuswide_talr(published: Dataset, seed: int) -> Facts:
    queries, train, rest = draw_per_label(published.examples.labels, (100, 500), seed)
    return {"train": train, "queries": queries, "database": np.union1d(train, rest)}


def _draw_imagenet100(published: Dataset, seed: int) -> Facts:
    """Train on 130 images per class of the training part, which is the database (HashNet, TALR)."""
    database = published.parts["train"]
    train, _ = draw_per_class(published.examples.labels[database], (130,), seed)
    return {"train": database[train], "queries": published.parts["val"], "database": database}


def _draw_imagenet_h2q(published: Dataset, seed: int) -> Facts:
    """Draw the same, but half of the publisher's validation part are queries, half validate."""
    facts = _draw_imagenet100(published, seed)
    part = facts["queries"]
    queries, validation = draw_rows(part, (len(part) // 2,), seed)
    return {**facts, "queries": queries, "validation": validation}


def _draw_without_labels(part: str, published: Dataset, seed: int) -> Facts:
    """Draw TALR's LabelMe experiment: near rows are neighbours, and every row is its own class."""
    queries, train, more, _ = draw_rows(published.parts[part], (2000, 5000, 15000), seed)
    return {
        "examples": Examples(published.examples.inputs, np.arange(len(published.examples))),
        "train": train,
        "queries": queries,
        "database": np.union1d(train, more),
        "note": "No labels: affinities 1, 2, 5, 10 are the 5%, 1%, 0.2%, 0.1% nearest by the "
        "distance of the inputs.",
    }


def _draw_clinc150(published: Dataset, seed: int) -> Facts:
    """Draw FastAP's setting on texts: 6 intents of each domain train, 2 validate, the rest are
    judged, each text against the others."""
    once = published.examples.subset(published.parts["once"])
    parts = draw_classes(once.labels, np.asarray(once.categories), (6, 2), seed)
    train, validation, judged = parts
    note = "Whole intents train, validate or are judged; a text that came before is left out."
    splits = {"train": train, "queries": judged, "database": judged, "validation": validation}
    return {"examples": once, **splits, "exclude_self": True, "note": note}


def _take_unseen(train: str, test: str, published: Dataset, seed: int) -> Facts:
    """Judge classes that are not in training, each of their images against all the others."""
    judged = published.parts[test]
    splits = {"train": published.parts[train], "queries": judged, "database": judged}
    return {**splits, "exclude_self": True}


def _take_inshop(published: Dataset, seed: int) -> Facts:
    splits = ("train", "queries", "database")
    return {s: published.parts[part] for s, part in zip(splits, inshop.PARTS, strict=True)}


def _judge_hits(*k: int) -> Facts:
    return {"k": k, "metric": "hit@1"}


H2Q = {"k": (1000, 5000), "tie_break": True, "metric": "mAP@5000 retrieved"}
NDCG = {"metric": "NDCG"}
TRAIN_TEST = partial(_take_unseen, "train", "test")
SETTINGS: dict[str, Setting] = {
    "cifar10-s1": Setting(cifar.read_ten, _draw_first_setting),
    "cifar10-s2": Setting(cifar.read_ten, _take_standard),
    "cifar10-h2q": Setting(cifar.read_ten, _draw_cifar10_h2q, H2Q),
    "cifar100": Setting(cifar.read_hundred, _take_standard),
    "cifar100-graded": Setting(
        cifar.read_hundred, _draw_cifar100_graded, {"relevance": "count", "metric": "NDCG"}
    ),
    "fashion-mnist": Setting(fashion_mnist.read, _draw_fashion),
    "fashion-mnist-s1": Setting(fashion_mnist.read, _draw_first_setting),
    "nuswide-talr": Setting(
        nus_wide.read, _draw_nuswide_talr, {"k": (1000, 5000), "relevance": "count"}
    ),
    "nuswide-h2q": Setting(nus_wide.read, partial(_draw_at_random, (10_500, 2_100, 2_100)), H2Q),
    "coco-h2q": Setting(coco.read, partial(_draw_at_random, (10_000, 5_000, 5_000)), H2Q),
    "imagenet100": Setting(
        imagenet100.read, _draw_imagenet100, {"k": (100, 1000), "metric": "mAP@1000 retrieved"}
    ),
    "imagenet-h2q": Setting(
        imagenet100.read,
        _draw_imagenet_h2q,
        {"k": (1000,), "tie_break": True, "metric": "mAP@1000 retrieved"},
    ),
    "labelme": Setting(labelme.read, partial(_draw_without_labels, "all"), NDCG),
    "products": Setting(products.read, TRAIN_TEST, _judge_hits(1, 10, 100, 1000)),
    "inshop": Setting(inshop.read, _take_inshop, _judge_hits(1, 10, 20, 30, 40, 50)),
    "vehicleid-small": Setting(partial(vehicleid.read, size=800), TRAIN_TEST, _judge_hits(1, 5)),
    "vehicleid-medium": Setting(partial(vehicleid.read, size=1600), TRAIN_TEST, _judge_hits(1, 5)),
    "vehicleid-large": Setting(partial(vehicleid.read, size=2400), TRAIN_TEST, _judge_hits(1, 5)),
    "cub": Setting(cub.read, TRAIN_TEST, _judge_hits(1, 2, 4, 8)),
    "omniglot": Setting(
        omniglot.read,
        partial(_take_unseen, "background", "evaluation"),
        _judge_hits(1, 5, 10, 20),
    ),
    "clinc150": Setting(clinc150.read, _draw_clinc150, _judge_hits(1, 10)),
    "clinc150-neighbours": Setting(clinc150.read, partial(_draw_without_labels, "once"), NDCG),
}
PROTOCOLS = tuple(SETTINGS)
