"""Learn from images without labels: trained runs, the teachers, label them; the surest are used.

Most images of a database have no label. A teacher gives a new image the class whose training images
are nearest to it. Where the teachers agree and are sure, that class is right much more often than
on average. A run that also learns from these images, in other crops and colours than its teachers
saw, becomes better than its teachers.
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
from rankbits.train.features import compute_once, fingerprint
from rankbits.train.processes import choose_device
from rankbits.train.run import Run, load_run

SHARP = 0.1  # temperature of the softmax over cosines


def add_taught_examples(
    train: Examples,
    unlabelled: Examples,
    teachers: str,
    share: float,
    device: str = "auto",
    mirror: bool = False,
) -> Examples:
    """Add to ``train`` the images of ``unlabelled`` whose labels the teachers are surest of, the
    same ``share`` of each class. ``teachers`` are folders of runs, separated by commas. With
    ``mirror`` they also see the mirror of each image."""
    if train.labels.ndim != 1:
        _check.refuse("Teachers need one class for each example; got multi-hot labels.")
    folders = [name.strip() for name in teachers.split(",") if name.strip()]
    runs = [load_run(Path(name), device=str(choose_device(device))) for name in folders]
    rows, labels = pick_surest(runs, train, unlabelled, share, mirror)
    new = unlabelled.subset(rows).inputs
    inputs: np.ndarray | ImageFiles
    if isinstance(train.inputs, ImageFiles) and isinstance(new, ImageFiles):
        inputs = ImageFiles(np.concatenate([train.inputs.paths, new.paths]))
    elif isinstance(train.inputs, np.ndarray) and isinstance(new, np.ndarray):
        inputs = np.concatenate([train.inputs, new])
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
    """Pick the rows of ``unlabelled`` with the surest labels -> rows (m,), their classes (m,).

    A teacher's vote is the softmax over classes of cos(x, mean of the class) / .1, where the means
    are those of the training examples' outputs. Votes are added, and of each class the ``share``
    with the highest vote is kept, so that no class crowds out another.

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
        labelled, new = (
            _scale_to_unit(_compute_outputs(run, part, mirror)) for part in (train, unlabelled)
        )
        means = np.stack([labelled[train.labels == c].mean(axis=0) for c in classes])
        odds = np.exp((new @ _scale_to_unit(means).T - 1) / SHARP)
        votes += odds / odds.sum(axis=1, keepdims=True)
    best, highest = votes.argmax(axis=1), votes.max(axis=1)
    surest = []
    for place in range(len(classes)):
        rows = np.flatnonzero(best == place)
        most = round(share * len(rows))
        surest.append(rows[np.argsort(-highest[rows], kind="stable")[:most]])
    rows = np.sort(np.concatenate(surest))
    return rows, classes[best[rows]]


def _compute_outputs(run: Run, examples: Examples, mirror: bool) -> np.ndarray:
    """Compute the outputs of a teacher. They are saved in its folder, where that can be written,
    because it may teach several runs."""

    def compute() -> np.ndarray:
        outputs = run.embed(examples, mirror=mirror or None).embeddings
        _check.same_length("images that can be read", len(outputs), "the images", len(examples))
        return outputs

    if run.folder is None or not os.access(run.folder, os.W_OK):
        return compute()
    mirror = mirror or run.config.mirror
    key = fingerprint(examples, "mirror" if mirror else "", run.folder / WEIGHTS)
    return compute_once(run.folder / "outputs" / f"{key}.npy", len(examples), compute)


def _scale_to_unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
