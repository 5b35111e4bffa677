"""Inspect examples before training: count them, and find unreadable files and copies.

Findings are not errors; they are what a person should know about the data.
"""

from __future__ import annotations

import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from rankbits import _check
from rankbits._progress import show_progress
from rankbits.data.examples import THREADS, Examples, hash_rows
from rankbits.data.folders import read_leniently
from rankbits.data.images import Unreadable, decode, measure
from rankbits.data.protocol import Protocol, find_leaks

FIRST = 10
SIDE = 32  # enough to make a decoder read a file to its end


@dataclass(frozen=True)
class Findings:
    """What ``inspect`` finds; ``print`` shows it as plain lines."""

    name: str
    kind: str
    examples: int
    shape: str
    classes: int
    smallest_class: int
    median_class: float
    largest_class: int
    categories: int
    without_label: int
    single: tuple[str, ...]
    unreadable: tuple[str, ...]
    copies_within: int
    copies_across: int
    across: tuple[str, ...]
    leaks: tuple[str, ...]
    note: str = ""
    misplaced: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The findings as JSON, every name in full."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        what = {"files": "image files", "images": "images in memory"}
        lines = [
            f"{self.name}: {self.examples:,} {what.get(self.kind, self.kind)}, {self.shape}",
            f"{self.classes:,} classes of {self.smallest_class:,} to {self.largest_class:,} "
            f"examples, median {self.median_class:g}"
            + (f"; {self.categories:,} categories" if self.categories else ""),
        ]
        if self.without_label:
            lines.append(f"{self.without_label:,} examples have no label")
        lines += _list_names(
            self.single, "classes have one example: nothing else is relevant to it"
        )
        if self.classes == 1:
            lines.append("all examples are of one class: everything is relevant to everything")
        lines += _list_names(self.unreadable, "files cannot be read")
        lines += _list_names(
            self.misplaced,
            "images lie at another depth than the rest: training refuses the folder until they "
            "are moved",
        )
        if self.copies_within:
            lines.append(
                f"{self.copies_within:,} examples are byte-identical to one of their class"
            )
        lines += _list_names(
            self.across, "examples are byte-identical to one of another class (label noise)"
        )
        lines += self.leaks
        if len(lines) == 2:
            lines.append("no problem was found")
        lines += [self.note] if self.note else []
        return "\n".join(_make_printable(line) for line in lines)


def inspect(source: str | os.PathLike[str] | Protocol) -> Findings:
    """Inspect a folder, a table, a file of arrays (see ``read_examples``) or a protocol.

    Every image file is decoded once; a source of which none can be decoded is refused. Images that
    lie at another depth than most are named and left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = {"features": np.array([[1.0], [1.0], [2.0]]), "labels": np.array([0, 1, 1])}
    ...     np.savez(f"{folder}/mine.npz", **rows)
    ...     findings = inspect(f"{folder}/mine.npz")
    >>> findings.classes, findings.single, findings.copies_across
    (2, ('0',), 2)
    """
    if isinstance(source, Protocol):
        leaks = tuple(find_leaks(source))
        return _inspect_examples(repr(source), source.examples, leaks, source.note)
    reading = read_leniently(source)
    note = "; ".join(reading.notes)
    return _inspect_examples(os.fspath(source), reading.examples, (), note, reading.misplaced)


def _inspect_examples(
    name: str,
    examples: Examples,
    leaks: tuple[str, ...],
    note: str,
    misplaced: tuple[str, ...] = (),
) -> Findings:
    shape, unreadable = _describe_inputs(examples)
    labels = examples.labels
    if labels.ndim == 2:
        counts = labels.sum(axis=0)
        classes = np.flatnonzero(counts)
        counts, without_label = counts[classes], int((~labels.any(axis=1)).sum())
        classes_of_rows = hash_rows(labels)
    else:
        classes, counts = np.unique(labels, return_counts=True)
        without_label, classes_of_rows = 0, labels
    names = examples.class_names
    class_names = [names[c] if names and c >= 0 else str(c) for c in classes]
    within, across = _find_copies(hash_rows(examples.inputs), classes_of_rows)
    groups = examples.categories
    return Findings(
        name=name,
        kind=examples.kind,
        examples=len(examples),
        shape=shape,
        classes=len(classes),
        smallest_class=int(counts.min()) if len(counts) else 0,
        median_class=float(np.median(counts)) if len(counts) else 0.0,
        largest_class=int(counts.max(initial=0)),
        categories=0 if groups is None else len(np.unique(groups[groups >= 0])),
        without_label=without_label,
        single=tuple(c for c, n in zip(class_names, counts, strict=True) if n == 1),
        unreadable=unreadable,
        copies_within=within,
        copies_across=len(across),
        across=tuple(_name_row(examples, row) for row in across),
        leaks=leaks,
        note=note,
        misplaced=misplaced,
    )


def _describe_inputs(examples: Examples) -> tuple[str, tuple[str, ...]]:
    """The sizes of the inputs in words, and a sentence for each that cannot be read."""
    if examples.kind == "features":
        return f"{examples.inputs.shape[1]:,} dimensions", ()  # type: ignore[union-attr]
    if examples.kind == "texts":
        sizes = sorted(map(len, examples.inputs.values))  # type: ignore[union-attr]
        middle = sizes[len(sizes) // 2]
        return f"{sizes[0]:,} to {sizes[-1]:,} characters, median {middle:,}", ()
    if examples.kind == "images":
        height, width, channels = examples.inputs.shape[1:]  # type: ignore[union-attr]
        return f"{width} x {height} pixels, {'colour' if channels == 3 else 'grey'}", ()
    paths = [str(path) for path in examples.inputs.paths]  # type: ignore[union-attr]
    # the filters of warnings belong to the whole process: set once here, not in each thread
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore")
        measured = pool.map(_measure_image, paths)
        results = list(show_progress(measured, "read", len(paths), "files"))
    unreadable = tuple(result for result in results if isinstance(result, str))
    shapes = [result for result in results if not isinstance(result, str)]
    if not shapes:
        _check.refuse(f"None of {len(paths):,} images can be read; the first: {unreadable[0]}")
    widths, heights = np.array(shapes).T
    small, large = (widths.min(), heights.min()), (widths.max(), heights.max())
    shape = f"{small[0]:,} x {small[1]:,}"
    shape += "" if small == large else f" to {large[0]:,} x {large[1]:,}"
    return f"{shape} pixels", unreadable


def _measure_image(path: str) -> tuple[int, int] | str:
    """The width and height of an image, or why it cannot be read."""
    try:
        decode(path, SIDE)
        return measure(path)
    except Unreadable as sentence:
        return str(sentence)


def _find_copies(hashes: np.ndarray, labels: np.ndarray) -> tuple[int, np.ndarray]:
    """How many rows equal another of their class, and the rows that equal one of another class."""
    _, group = np.unique(hashes, return_inverse=True)
    _, label = np.unique(labels, return_inverse=True)
    pair = group.astype(np.int64) * (int(label.max(initial=0)) + 1) + label
    _, pair_of_row, pair_sizes = np.unique(pair, return_inverse=True, return_counts=True)
    equal_in_class, equal = pair_sizes[pair_of_row], np.bincount(group)[group]
    return int((equal_in_class > 1).sum()), np.flatnonzero(equal > equal_in_class)


def _name_row(examples: Examples, row: int) -> str:
    if examples.kind == "files":
        return str(examples.inputs.paths[row])  # type: ignore[union-attr]
    return f"row {row}"


def _list_names(names: tuple[str, ...], what: str) -> list[str]:
    if not names:
        return []
    lines = [f"{len(names):,} {what}:", *(f"  {name}" for name in names[:FIRST])]
    more = len(names) - FIRST
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def _make_printable(text: str) -> str:
    """Replace the bytes of file names that are not UTF-8, which a terminal cannot print."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
