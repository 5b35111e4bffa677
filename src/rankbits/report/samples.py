"""Choose sample queries, and find the images nearest to them."""

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
from rankbits.report.png import make_uri
from rankbits.types import Evidence

SIDE, NEAREST, METHODS = 40, 10, 6
FindProtocol = Callable[..., Protocol | None]  # of a run's data, root and seed


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images, uint8 (n, h, w[, channels]) or files, and the image of each row of codes."""

    images: Any
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def draw(self, row: int) -> str:
        """Draw the image of a row of codes -> its data URI."""
        image = int(self.rows[row])
        if isinstance(self.images, ImageFiles):
            return make_uri(decode(str(self.images.paths[image]), SIDE))
        return make_uri(shrink(np.asarray(self.images[image])))


@dataclass(frozen=True)
class Near:
    """A near image: its data URI, how far it is, and whether it is a neighbour."""

    image: str
    distance: int
    relevant: bool
    label: str


@dataclass(frozen=True)
class SampleRow:
    """What one method finds for a query, and its figure there (nan: not known)."""

    method: str
    value: float
    nearest: tuple[Near, ...]


@dataclass(frozen=True)
class Sample:
    """A query and what each method finds for it."""

    image: str
    label: str
    rows: tuple[SampleRow, ...]


def shrink(pixels: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Average pixels in blocks until the shorter side is less than twice ``side``.

    >>> shrink(np.full((100, 100), 7, np.uint8)).shape
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
    """Read images in the order of the codes: an ``.npz`` with ``images``, a folder or a table."""
    source = Path(path)
    if source.suffix in (".npz", ".safetensors"):
        columns = read_columns(source)
        if "images" not in columns:
            _check.refuse(f"{source} holds no array called 'images'.")
        images: Any = columns["images"]
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


def find_pictures(
    groups: Sequence[Group], find_protocol: FindProtocol | None
) -> tuple[Pictures, Pictures]:
    """Find the images that a run was judged on in its data; refuses where no run has them."""
    for group in groups:
        entry, evidence = group.first, group.evidence
        if find_protocol is None or not entry.settings or not evidence or evidence.rows is None:
            continue
        try:
            run = entry.settings
            protocol = find_protocol(run.get("data"), run.get("root"), run.get("seed", 0))
        except (_check.Refusal, OSError, TypeError) as sentence:
            _check.refuse(f"the data of {group.name} cannot be read ({sentence}).")
        if protocol is None or protocol.examples.kind == "features":
            _check.refuse("the data are features, not images.")
        if max(rows.max(initial=0) for rows in evidence.rows) < len(protocol.examples):
            queries, database = (Pictures(protocol.examples.inputs, r) for r in evidence.rows)
            return queries, database
    _check.refuse("no images were given (--query-images, --database-images).")


def choose_samples(
    groups: Sequence[Group], pictures: tuple[Pictures, Pictures], many: int, figure: str = "mAP"
) -> tuple[Sample, ...]:
    """Choose ``many`` queries from the hardest to the easiest of the best method, evenly spaced by
    rank, each with the nearest images of every method (ties in the order of the database)."""
    shown = [g for g in groups if _fits(g.evidence, pictures)][:METHODS]
    ranked = [(f.value, g) for g in shown if (f := g.figure(figure)) is not None]
    if not ranked or many < 1:
        return ()
    best = max(ranked, key=lambda pair: pair[0])[1]
    values = best.first.per_query(figure)
    if values is None or np.isnan(values).all():
        return ()
    hardest_first = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]
    places = np.linspace(0.02, 0.98, many) * (len(hardest_first) - 1)
    queries = dict.fromkeys(int(hardest_first[round(p)]) for p in places.tolist())
    return tuple(_make_sample(query, shown, pictures, figure) for query in queries)


def _fits(evidence: Evidence | None, pictures: tuple[Pictures, Pictures]) -> bool:
    if evidence is None or evidence.codes is None:
        return False
    return all(len(c) == len(p) for c, p in zip(evidence.codes, pictures, strict=True))


def _make_sample(
    query: int, groups: Sequence[Group], pictures: tuple[Pictures, Pictures], figure: str
) -> Sample:
    rows = []
    for group in groups:
        evidence = group.evidence
        assert evidence is not None and evidence.codes is not None and evidence.labels is not None
        query_label, item_labels = evidence.labels[0][query], evidence.labels[1]
        k = min(NEAREST + evidence.exclude_self, len(evidence.codes[1]))
        ids, distances = hamming_topk(evidence.codes[0][[query]], evidence.codes[1], k)[0]
        near: list[Near] = []
        for item, distance in zip(ids.tolist(), distances.tolist(), strict=True):
            if (evidence.exclude_self and item == query) or len(near) == NEAREST:
                continue
            label = item_labels[item]
            same = query_label & label if np.ndim(label) else query_label == label
            spelled = _spell_label(label, group.first.class_names)
            near.append(Near(pictures[1].draw(item), distance, bool(np.any(same)), spelled))
        values = group.first.per_query(figure)
        value = float("nan") if values is None else float(values[query])
        rows.append(SampleRow(group.name, value, tuple(near)))
    names = next((g.first.class_names for g in groups if g.first.class_names), ())
    return Sample(pictures[0].draw(query), _spell_label(query_label, names), tuple(rows))


def _spell_label(label: Any, names: Sequence[str]) -> str:
    """Spell a label as its name or its number, and several labels as the first three."""
    numbers = np.flatnonzero(label).tolist() if np.ndim(label) else [int(label)]
    words = [names[i] if 0 <= i < len(names) else str(i) for i in numbers]
    return ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")
