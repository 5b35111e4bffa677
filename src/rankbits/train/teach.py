"""Learning from images without labels: trained runs label them, and the surest labels are learned.

A database has far more images than anybody labelled. A teacher's outputs put a new image near the
middle of one class of the training images; where teachers agree and are sure, that class is right
much more often than their average. A run that learns from those images too, and sees each of them
in other crops and colours than its teachers did, ends up ahead of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.train.checkpoints import WEIGHTS
from rankbits.train.features import computed_once, fingerprint
from rankbits.train.processes import device_of
from rankbits.train.run import Run, load_run

SHARP = 0.1  # cosines are compared in units of this


def taught_examples(
    train: Examples,
    unlabelled: Examples,
    teachers: str,
    share: float,
    device: str = "auto",
    mirror: bool = False,
) -> Examples:
    """Add to ``train`` the images of ``unlabelled`` whose labels the ``teachers`` are surest of,
    the same ``share`` of each class. ``teachers`` are folders of runs, separated by commas. With
    ``mirror`` they also look at the mirror of each image."""
    if train.labels.ndim != 1:
        _check.refuse("Teachers need one class for each example; got multi-hot labels.")
    folders = [name.strip() for name in teachers.split(",") if name.strip()]
    runs = [load_run(Path(name), device=str(device_of(device))) for name in folders]
    rows, labels = pick_surest(runs, train, unlabelled, share, mirror)
    chosen = unlabelled.subset(rows)
    inputs: np.ndarray | ImageFiles
    if isinstance(train.inputs, ImageFiles) and isinstance(chosen.inputs, ImageFiles):
        inputs = ImageFiles(np.concatenate([train.inputs.paths, chosen.inputs.paths]))
    elif isinstance(train.inputs, np.ndarray) and isinstance(chosen.inputs, np.ndarray):
        inputs = np.concatenate([train.inputs, chosen.inputs])
    else:
        _check.refuse("Labelled and unlabelled examples must both be files, or both arrays.")
    return Examples(inputs, np.concatenate([train.labels, labels]), class_names=train.class_names)


def pick_surest(
    teachers: Sequence[Run],
    train: Examples,
    unlabelled: Examples,
    share: float,
    mirror: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``unlabelled`` (m,) with the class the teachers give each, (m,).

    A teacher's vote is the softmax over classes of cos(x, middle of the class) / .1, where the
    middles are those of the training examples' outputs; votes are averaged, and of each class the
    ``share`` with the highest vote is kept, so that no class crowds out another.

    >>> from rankbits.train import TrainConfig
    >>> from rankbits.train.run import Inputs
    >>> import torch
    >>> run = Run(torch.nn.Identity(), TrainConfig(bits=2), Inputs("features", dim=2))
    >>> known = Examples(np.float32([[1, 0], [0, 1]]), [3, 5])
    >>> new = Examples(np.float32([[2, 1], [9, 1], [1, 8], [3, 4]]), [0, 0, 0, 0])
    >>> pick_surest([run], known, new, 0.5)
    (array([1, 2]), array([3, 5]))
    """
    if not 0 < _check.number("taught", share) <= 1:
        _check.refuse(f"taught is a share above 0 and at most 1; got {share}.")
    classes = np.unique(train.labels)
    votes = np.zeros((len(unlabelled), len(classes)))
    for run in teachers:
        labelled, new = (_unit(_compute_outputs(run, part, mirror)) for part in (train, unlabelled))
        middles = _unit(np.stack([labelled[train.labels == c].mean(axis=0) for c in classes]))
        scores = np.exp((new @ middles.T - 1) / SHARP)
        votes += scores / scores.sum(axis=1, keepdims=True)
    best = votes.argmax(axis=1)
    sure = votes.max(axis=1)
    kept = []
    for place in range(len(classes)):
        rows = np.flatnonzero(best == place)
        most = round(share * len(rows))
        kept.append(rows[np.argsort(-sure[rows], kind="stable")[:most]])
    rows = np.sort(np.concatenate(kept))
    return rows, classes[best[rows]]


def _compute_outputs(run: Run, examples: Examples, mirror: bool) -> np.ndarray:
    """The outputs of a teacher. They are kept in its folder, because it may teach several runs,
    unless that folder cannot be written."""

    def compute() -> np.ndarray:
        outputs = run.embed(examples, mirror=mirror or None).embeddings
        _check.same_length("images that can be read", len(outputs), "the images", len(examples))
        return outputs

    if run.folder is None or not os.access(run.folder, os.W_OK):
        return compute()
    mirror = mirror or run.config.mirror
    key = fingerprint(examples, "mirror" if mirror else "", run.folder / WEIGHTS)
    return computed_once(run.folder / "outputs" / f"{key}.npy", len(examples), compute)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
