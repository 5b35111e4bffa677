"""The nearest codes of float questions: by whole weights, which is fast, or by floats as defined.

The weights of a question are rounded to whole numbers times one step. Their magnitudes are cut into
planes of bits, which are laid out as codes are. The distance is then step x sum_p 2^p
popcount(plane_p & (code ^ sign)): 3 popcounts a word for int4, 7 for int8, and nothing is rounded
but the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels import backend
from rankbits.kernels.codes import Words, choose_module, words
from rankbits.types import Codes, Decoder, Questions, Results

LEVELS = {"int4": 7, "int8": 127}
TABLES = 1 << 23  # most cells of tables in memory at a time
PRECISIONS = (*LEVELS, "float")
CLIPS = np.linspace(1.0, 0.4, 13, dtype=np.float32)  # shares of the largest weight to clip at


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Questions in the layout of the kernels; ``laid_out[rows]`` takes some of them.

    ``whole`` int8 (Q, bits) are the rounded weights, None where floats are used. The distance is
    step x sum, and with a decoder (2 step x sum - base) / length.
    """

    weights: np.ndarray
    bases: np.ndarray
    decoder: Decoder | None
    whole: np.ndarray | None = None
    steps: np.ndarray | None = None
    levels: int = 0

    @property
    def bits(self) -> int:
        return self.weights.shape[1]

    @cached_property
    def planes(self) -> np.ndarray:
        """The magnitudes' bits, uint64 (Q, P, W), the lowest first."""
        magnitudes = np.abs(self.whole)  # type: ignore[arg-type]
        powers = np.arange(self.levels.bit_length(), dtype=np.int8)
        return _pack_words((magnitudes[:, None] >> powers[:, None]) & 1)

    @cached_property
    def signs(self) -> np.ndarray:
        """Where whole weights are positive, uint64 (Q, W)."""
        return _pack_words(np.greater(self.whole, 0))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: np.ndarray) -> LaidOut:
        parts: dict[str, Any] = {}
        for name in ("weights", "bases", "whole", "steps"):
            array = getattr(self, name)
            parts[name] = None if array is None else array[rows]
        return replace(self, **parts)


def round_weights(weights: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Round weights to whole numbers of at most ``levels`` in magnitude, int8 (Q, bits), times a
    step for each question, float32 (Q,): the one with the least error among a few.

    >>> round_weights(np.array([[7.0, -3.0, 0.2]], np.float32), 7)
    (array([[ 7, -3,  0]], dtype=int8), array([1.], dtype=float32))
    """
    clips = (CLIPS if levels < 100 else CLIPS[:1]) / np.float32(levels)
    return backend.load_loops("rounding").round_weights(weights, clips, levels)


def check_precision(value: Any) -> str:
    """The precision of weights in a search, "int4", "int8" or "float"; refuses any other."""
    return _check.choice("precision", value, PRECISIONS)


def lay_out(questions: Questions, precision: str = "int4") -> LaidOut:
    """Lay questions out with weights rounded to "int4" or "int8", or as they are ("float")."""
    precision = check_precision(precision)
    weights, decoder = questions.weights, questions.decoder
    if precision == "float":
        bases = questions.offsets + np.abs(weights).sum(axis=1, dtype=np.float64)
        return LaidOut(weights, bases, decoder)
    whole, steps = round_weights(weights, LEVELS[precision])
    totals = np.abs(whole).sum(axis=1, dtype=np.int32)
    bases = questions.offsets + steps * totals.astype(np.float64)
    return LaidOut(weights, bases, decoder, whole, steps, LEVELS[precision])


def _pack_words(ones: np.ndarray) -> np.ndarray:
    """0 and 1 (..., bits) as uint64 words (..., W), laid out as those of codes."""
    packed = np.packbits(ones, axis=-1)
    padded = np.zeros((*ones.shape[:-1], -(-ones.shape[-1] // 64) * 8), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64)


def _choose_exact_module(database: Words) -> ModuleType:
    """The kernels that order a shortlist. They run where the database lies, even if
    ``RANKBITS_BACKEND=cuda``: a distance must have the same digits everywhere."""
    if isinstance(database.words, torch.Tensor):
        return choose_module(database, "questions")
    return backend.load_loops("questions")


def question_topk(
    questions: Questions | LaidOut,
    database: Codes | Words,
    k: int,
    *,
    precision: str = "int4",
    inverses: np.ndarray | None = None,
) -> Results:
    """Find the k nearest rows of the database for each question, by distance, then by row.

    ``ids`` (Q, k) int64 and ``distances`` (Q, k) float32; a database of fewer than k rows gives all
    of them. With a decoder the distance is that of a scan, -(offset + <w, s>) / length;
    ``inverses`` float32 (N,), 1 / length of each row, are computed where they are not given.

    >>> from rankbits import pack
    >>> nearest = question_topk(Questions([[7, -3]]), pack([[-1, -1], [1, 1]]), k=2)
    >>> nearest.ids, nearest.distances
    (array([[1, 0]]), array([[3., 7.]], dtype=float32))
    """
    left = questions if isinstance(questions, LaidOut) else lay_out(questions, precision)
    right = words(database)
    _check.same_bits(left.bits, right.bits)
    _check.not_empty("database", len(right))
    k = min(_check.cutoff(k), len(right))
    module = choose_module(right, "questions")
    if left.decoder is None:
        inverses = None
    elif inverses is None:
        inverses = inverse_lengths(left.decoder, right)
    if left.whole is None:
        return Results(*module.weights_topk(left.weights, right.words, k, left.bases, inverses))
    assert left.steps is not None
    scale = None
    if inverses is not None:
        scale = 2 * left.steps, left.bases.astype(np.float32), inverses
    if hasattr(module, "whole_topk"):  # a GPU, wherever the words lie
        ids, sums = module.whole_topk(left.whole, right.words, k, scale)
    else:
        ids, sums = module.planes_topk(left.planes, left.signs, right.words, k, right.bits, scale)
    return Results(ids, sums if scale else left.steps[:, None] * sums.astype(np.float32))


def order_rows(
    questions: Questions,
    database: Codes | Words,
    rows: np.ndarray,
    *,
    inverses: np.ndarray | None = None,
) -> np.ndarray:
    """Measure distances as defined, float32 (Q, S), of question i to ``rows[i]`` of the database,
    rows (Q, S). The same question and code give the same digits whatever else is asked.

    >>> from rankbits import pack
    >>> order_rows(Questions([[3, -1]]), pack([[-1, -1], [1, 1]]), np.array([[1, 0]]))
    array([[1., 3.]], dtype=float32)
    """
    right = words(database)
    _check.same_bits(questions.bits, right.bits)
    if not rows.size:
        return np.empty(rows.shape, np.float32)
    module = _choose_exact_module(right)
    if questions.decoder is None:
        bases = np.zeros(len(questions))
        return module.weigh_rows(questions.weights, right.words, rows, bases, None)
    if inverses is None:
        inverses = inverse_lengths(questions.decoder, right)
    out = np.empty(rows.shape, np.float32)
    step = max(1, TABLES // (32 * right.bits))
    for start in range(0, len(questions), step):
        part = slice(start, start + step)
        tables = questions.decoder.make_byte_tables(questions.vectors[part])  # type: ignore[index]
        sums = module.sum_rows(tables, right.words, rows[part])
        out[part] = 1 - sums * inverses[rows[part]]
    return out


def inverse_lengths(decoder: Decoder, database: Words) -> np.ndarray:
    """1 / length of the embedding that each code of the database stands for, float32 (N,), in the
    memory where the database lies; 1 for a code that stands for zero."""
    _check.same_bits(decoder.bits, database.bits)
    module = _choose_exact_module(database)
    return 1 / module.measure_lengths(decoder.atoms, decoder.centre, database.words)
