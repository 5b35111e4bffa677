"""Evidence: what a report was computed from, saved so that runs can be compared later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._files import read_arrays, write_arrays
from rankbits.types.codes import Codes

MOST_BYTES = 1 << 26  # more bytes of codes, labels and rows are not saved; figures always are
SIDES = ("query", "database")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """The codes, the labels and the figures of each query behind a ``Report``.

    ``per_query[name]`` is float64 (Q,), nan where nothing is relevant. ``codes``, ``labels`` and
    ``rows`` are pairs, (queries, database): labels are (n,) or multi-hot (n, C), rows say which
    examples of the data they were. ``codes`` is None where floats were ranked, or where the file
    would have been too large.

    >>> import tempfile
    >>> codes = Codes(np.array([[128], [192]], np.uint8), 2)
    >>> evidence = Evidence({"mAP": [0.5, 1.0]}, (codes, codes), ([4, 5], [4, 5]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     evidence.save(f"{folder}/judged.npz")
    ...     again = Evidence.load(f"{folder}/judged.npz")
    >>> again.codes, again.labels[0], again.per_query["mAP"]
    ((Codes(2 rows of 2 bits), Codes(2 rows of 2 bits)), array([4, 5]), array([0.5, 1. ]))
    """

    per_query: Mapping[str, Any]
    codes: tuple[Codes, Codes] | None = None
    labels: tuple[Any, Any] | None = None
    rows: tuple[Any, Any] | None = None
    relevance: str = "any"
    exclude_self: bool = False

    def __post_init__(self) -> None:
        figures = {n: np.asarray(v, np.float64) for n, v in self.per_query.items()}
        _check.choice("relevance", self.relevance, ("any", "count"))
        if len({v.shape for v in figures.values()} | {(len(v),) for v in figures.values()}) > 1:
            _check.refuse("per_query must have one (Q,) array for each figure, all of one length.")
        object.__setattr__(self, "per_query", figures)
        if self.codes is not None:
            _check.same_bits(self.codes[0].bits, self.codes[1].bits)
        for name, pair in (("labels", self.labels), ("rows", self.rows)):
            if pair is None:
                continue
            sides = tuple(_check.array(name, side) for side in pair)
            for codes, side in zip(self.codes or (), sides, strict=False):
                _check.same_length(name, len(side), "the codes", len(codes))
            object.__setattr__(self, name, sides)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.npz``; codes, labels and rows of more than ``MOST_BYTES`` are left out."""
        arrays = {f"figure.{n}": np.asarray(v) for n, v in self.per_query.items()}
        facts = {"relevance": self.relevance, "exclude_self": str(int(self.exclude_self))}
        large: dict[str, np.ndarray] = {}
        for i, side in enumerate(SIDES):
            if i == 1 and self.exclude_self:
                break
            if self.codes is not None:
                large[f"{side}.packed"] = self.codes[i].packed
                facts["bits"] = str(self.codes[i].bits)
            if self.labels is not None:
                large[f"{side}.labels"], facts["classes"] = _pack_labels(self.labels[i])
            if self.rows is not None:
                large[f"{side}.rows"] = _shrink_dtype(self.rows[i])
        if sum(a.nbytes for a in large.values()) <= MOST_BYTES:
            arrays |= large
        write_arrays(path, "judged", facts, arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Evidence:
        """Read what ``save`` wrote; a truncated, damaged or foreign file is refused."""
        facts, arrays = read_arrays(path, "judged")
        try:
            alone = facts["exclude_self"] == "1"
            sides = SIDES[:1] * 2 if alone else SIDES
            pairs: dict[str, Any] = {}
            for name in ("packed", "labels", "rows"):
                if f"query.{name}" in arrays:
                    pairs[name] = tuple(arrays[f"{side}.{name}"] for side in sides)
            if "packed" in pairs:
                query, database = (Codes(p, int(facts["bits"])) for p in pairs.pop("packed"))
                pairs["codes"] = (query, database)
            if "labels" in pairs:
                pairs["labels"] = tuple(
                    _unpack_labels(a, facts["classes"]) for a in pairs["labels"]
                )
            figures = {n[7:]: a for n, a in arrays.items() if n.startswith("figure.")}
            return Evidence(figures, relevance=facts["relevance"], exclude_self=alone, **pairs)
        except (KeyError, ValueError) as error:
            reason = f": {error}" if isinstance(error, _check.Refusal) else "."
            _check.refuse(f"{path} is damaged or not the evidence of a judged run{reason}")


def _shrink_dtype(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers in the smallest dtype that holds them."""
    if numbers.dtype.kind not in "iu" or not numbers.size:
        return numbers
    dtype = np.result_type(*map(np.min_scalar_type, (numbers.min(), numbers.max())))
    return numbers.astype(dtype) if dtype.kind in "iu" else numbers


def _pack_labels(labels: np.ndarray) -> tuple[np.ndarray, str]:
    if labels.ndim == 1:
        return _shrink_dtype(labels), "0"
    return np.packbits(labels.astype(bool), axis=1), str(labels.shape[1])


def _unpack_labels(packed: np.ndarray, classes: str) -> np.ndarray:
    if classes == "0":
        return packed.astype(np.int64)
    return np.unpackbits(packed, axis=1, count=int(classes)).astype(bool)
