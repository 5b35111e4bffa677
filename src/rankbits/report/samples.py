"""Sample queries with the images nearest to them, where images are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_columns
from rankbits.data.folders import read_examples
from rankbits.data.images import ImageFiles, decode
from rankbits.data.protocol import Protocol
from rankbits.kernels import hamming_topk
from rankbits.report.groups import Group
from rankbits.report.png import uri
from rankbits.types import Evidence

SIDE, NEAREST, METHODS = 40, 10, 6
FindProtocol = Callable[..., Protocol | None]  # of a run's data, root and seed


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of rows: arrays uint8 (n, h, w[, channels]) or files, and which row is which image."""

    images: Any
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def uri(self, row: int) -> str:
        at = int(self.rows[row])
        if isinstance(self.images, ImageFiles):
            return uri(decode(str(self.images.paths[at]), SIDE))
        return uri(small(np.asarray(self.images[at])))


@dataclass(frozen=True)
class Near:
    """An image found: where, how far, and whether it is a neighbour."""

    image: str
    distance: int
    relevant: bool
    label: str


@dataclass(frozen=True)
class Answer:
    """What one method finds for a query, and its figure there (nan is unknown)."""

    method: str
    value: float
    nearest: tuple[Near, ...]


@dataclass(frozen=True)
class Sample:
    """A query and what each method finds for it."""

    image: str
    label: str
    answers: tuple[Answer, ...]


def small(pixels: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Pixels averaged in blocks until no side is twice ``side``.

    >>> small(np.full((100, 100), 7, np.uint8)).shape
    (50, 50)
    """
    block = max(1, min(pixels.shape[:2]) // side)
    if block == 1:
        return pixels
    height, width = (n // block for n in pixels.shape[:2])
    cut = pixels[: height * block, : width * block]
    parts = cut.reshape(height, block, width, block, *pixels.shape[2:])
    return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)


def read_pictures(path: str | Path) -> Pictures:
    """Images in the order of the codes: an ``.npz`` with ``images`` uint8, a folder or a table."""
    source = Path(path)
    if source.suffix in (".npz", ".safetensors"):
        found = read_columns(source)
        if "images" not in found:
            _check.refuse(f"{source} holds no array called 'images'.")
        images: Any = found["images"]
    else:
        images = read_examples(source).inputs
    if not isinstance(images, ImageFiles):
        plain = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3, 4))
        if images.dtype != np.uint8 or not plain or not images.size:
            _check.refuse(
                f"images in {source} must be uint8 (n, h, w) or (n, h, w, 1 or 3); "
                f"got {images.dtype} {images.shape}."
            )
    return Pictures(images, np.arange(len(images)))


def pictures_of(
    groups: Sequence[Group], find_protocol: FindProtocol | None
) -> tuple[tuple[Pictures, Pictures] | None, str]:
    """The images a run was judged on, read again from its data, or why there are none."""
    for group in groups:
        entry, evidence = group.first, group.seen
        if find_protocol is None or not entry.settings or not evidence or evidence.rows is None:
            continue
        try:
            said = entry.settings
            how = find_protocol(said.get("data"), said.get("root"), said.get("seed", 0))
        except (_check.Refusal, OSError, TypeError) as sentence:
            return None, f"the data of {group.name} is not at hand ({sentence})"
        if how is None or how.examples.kind == "features":
            return None, "the data are features, not images"
        if max(rows.max(initial=0) for rows in evidence.rows) < len(how.examples):
            inputs = how.examples.inputs
            return (Pictures(inputs, evidence.rows[0]), Pictures(inputs, evidence.rows[1])), ""
    return None, "no images were given (--query-images, --database-images)"


def samples(
    groups: Sequence[Group], pictures: tuple[Pictures, Pictures], many: int, figure: str = "mAP"
) -> tuple[Sample, ...]:
    """``many`` queries from the hardest to the easiest of the best method, evenly spaced by rank,
    each with the nearest images of every method (ties in the order of the database)."""
    shown = [g for g in groups if _fits(g.seen, pictures)][:METHODS]
    ranked = [(f.value, g) for g in shown if (f := g.figure(figure)) is not None]
    if not ranked or many < 1:
        return ()
    best = max(ranked, key=lambda pair: pair[0])[1]
    order = best.first.per_query(figure)
    if order is None:
        return ()
    defined = np.flatnonzero(~np.isnan(order))
    hard = defined[np.argsort(order[defined], kind="stable")]
    if not len(hard):
        return ()
    places = np.linspace(0.02, 0.98, many) * (len(hard) - 1)
    chosen = dict.fromkeys(int(hard[round(p)]) for p in places.tolist())
    return tuple(_sample(query, shown, pictures, figure) for query in chosen)


def _fits(evidence: Evidence | None, pictures: tuple[Pictures, Pictures]) -> bool:
    if evidence is None or evidence.codes is None:
        return False
    return all(len(c) == len(p) for c, p in zip(evidence.codes, pictures, strict=True))


def _sample(
    query: int, groups: Sequence[Group], pictures: tuple[Pictures, Pictures], figure: str
) -> Sample:
    answers = []
    for group in groups:
        evidence = group.seen
        assert evidence is not None and evidence.codes is not None and evidence.labels is not None
        asked, (own, others) = evidence.codes[0][[query]], evidence.labels
        wanted = min(NEAREST + evidence.exclude_self, len(evidence.codes[1]))
        found = hamming_topk(asked, evidence.codes[1], wanted)
        near: list[Near] = []
        for row, distance in zip(found.ids[0].tolist(), found.distances[0].tolist(), strict=True):
            if (evidence.exclude_self and row == query) or len(near) == NEAREST:
                continue
            relevant = (
                bool(np.any(own[query] & others[row]))
                if own.ndim == 2
                else (own[query] == others[row])
            )
            label = spelled_label(others[row], group.first.class_names)
            near.append(Near(pictures[1].uri(row), int(distance), bool(relevant), label))
        values = group.first.per_query(figure)
        value = float("nan") if values is None else float(values[query])
        answers.append(Answer(group.name, value, tuple(near)))
    names = next((g.first.class_names for g in groups if g.first.class_names), ())
    evidence = groups[0].seen
    assert evidence is not None and evidence.labels is not None
    label = spelled_label(evidence.labels[0][query], names)
    return Sample(pictures[0].uri(query), label, tuple(answers))


def spelled_label(label: Any, names: Sequence[str]) -> str:
    """A label's name, or its number; of several the first three."""
    held = np.flatnonzero(label).tolist() if np.ndim(label) else [int(label)]
    words = [names[i] if 0 <= i < len(names) else str(i) for i in held]
    return ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")
