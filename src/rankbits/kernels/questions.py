"""The nearest codes of float questions: by integer weights, fast, or by floats, the definition.

A question is rounded to whole numbers times one step, and its magnitudes are cut into planes of
bits, laid out as codes are. The distance is then step x sum_p 2^p popcount(plane_p & (code ^
sign)): 3 popcounts a word for int4, 7 for int8, and no rounding beyond that of the question.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.kernels import backend
from rankbits.kernels.codes import Words, _on_cuda, words
from rankbits.types import Codes, Decoder, Questions, Results

LEVELS = {"int4": 7, "int8": 127}
TABLES = 1 << 23  # cells of tables in memory at a time
PRECISIONS = (*LEVELS, "float")
CLIPS = np.linspace(1.0, 0.4, 13, dtype=np.float32)  # shares of the largest weight, to choose from


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Questions as kernels want them; rows can be taken out of them.

    ``whole`` int8 (Q, bits) is None where the weights are asked as floats. The distance is
    ``step`` x sum, and with a decoder (2 ``step`` x sum - ``base``) / length.
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
        names = ("weights", "bases", "whole", "steps")
        parts: dict[str, Any] = {name: getattr(self, name) for name in names}
        taken: dict[str, Any] = {n: None if p is None else p[rows] for n, p in parts.items()}
        return replace(self, **taken)


def round_weights(weights: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of at most ``levels`` in magnitude, int8 (Q, bits), and the step of each
    question, float32 (Q,): of a few clips of its largest weight the one with the least error.

    >>> round_weights(np.array([[7.0, -3.0, 0.2]], np.float32), 7)
    (array([[ 7, -3,  0]], dtype=int8), array([1.], dtype=float32))
    """
    clips = (CLIPS if levels < 100 else CLIPS[:1]) / np.float32(levels)
    name = "reference" if backend.chosen("cpu") == "reference" else "cpu"
    module = importlib.import_module(f"rankbits.kernels.{name}.rounding")
    return module.round_weights(weights, clips, levels)


def check_precision(value: Any) -> str:
    """How the weights of questions are asked: "int4", "int8" or "float"."""
    return _check.choice("precision", value, PRECISIONS)


def lay_out(questions: Questions, precision: str = "int4") -> LaidOut:
    """Questions with their weights rounded to "int4" or "int8", or as they are ("float")."""
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


def _module(database: Words) -> ModuleType:
    there = isinstance(database.words, torch.Tensor)
    name = "cuda" if there else backend.chosen("cpu")
    if name == "cuda":
        _on_cuda()
    return importlib.import_module(f"rankbits.kernels.{name}.questions")


def _module_where(database: Words) -> ModuleType:
    """The kernels where the database lies, even if another backend is wanted: what a shortlist is
    ordered by must have the same digits everywhere."""
    plain = isinstance(database.words, np.ndarray) and backend.chosen("cpu") != "reference"
    return importlib.import_module("rankbits.kernels.cpu.questions") if plain else _module(database)


def question_topk(
    questions: Questions | LaidOut,
    database: Codes | Words,
    k: int,
    *,
    precision: str = "int4",
    inverses: np.ndarray | None = None,
) -> Results:
    """The k nearest rows of the database for each question, by distance, then by row.

    ``ids`` (Q, k) int64 and ``distances`` (Q, k) float32; a database of fewer than k rows gives all
    of them. With a decoder the distance is that of a scan, -(offset + <w, s>) / length;
    ``inverses`` float32 (N,) are those of the rows' lengths, where they are at hand.

    >>> from rankbits import pack
    >>> found = question_topk(Questions([[7, -3]]), pack([[-1, -1], [1, 1]]), k=2)
    >>> found.ids, found.distances
    (array([[1, 0]]), array([[3., 7.]], dtype=float32))
    """
    asked = questions if isinstance(questions, LaidOut) else lay_out(questions, precision)
    right = words(database)
    _check.same_bits(asked.bits, right.bits)
    _check.not_empty("database", len(right))
    k = min(_check.cutoff(k), len(right))
    module = _module(right)
    if asked.decoder is None:
        inverses = None
    elif inverses is None:
        inverses = inverse_lengths(asked.decoder, right)
    if asked.whole is None:
        return Results(*module.weights_topk(asked.weights, right.words, k, asked.bases, inverses))
    assert asked.steps is not None
    scale = None
    if inverses is not None:
        scale = 2 * asked.steps, asked.bases.astype(np.float32), inverses
    if isinstance(right.words, torch.Tensor):
        ids, sums = module.whole_topk(asked.whole, right.words, k, scale)
    else:
        ids, sums = module.planes_topk(asked.planes, asked.signs, right.words, k, right.bits, scale)
    return Results(ids, sums if scale else asked.steps[:, None] * sums.astype(np.float32))


def order_rows(
    questions: Questions,
    database: Codes | Words,
    rows: np.ndarray,
    *,
    inverses: np.ndarray | None = None,
) -> np.ndarray:
    """Distances by the definition, float32 (Q, S), of question i to ``rows[i]`` of the database,
    rows (Q, S). The same question and code give the same digits in any company.

    >>> from rankbits import pack
    >>> order_rows(Questions([[3, -1]]), pack([[-1, -1], [1, 1]]), np.array([[1, 0]]))
    array([[1., 3.]], dtype=float32)
    """
    right = words(database)
    _check.same_bits(questions.bits, right.bits)
    if not rows.size:
        return np.empty(rows.shape, np.float32)
    module = _module_where(right)
    if questions.decoder is None:
        bases = np.zeros(len(questions))
        return module.weights_of_rows(questions.weights, right.words, rows, bases, None)
    if inverses is None:
        inverses = inverse_lengths(questions.decoder, right)
    out = np.empty(rows.shape, np.float32)
    step = max(1, TABLES // (32 * right.bits))
    for start in range(0, len(questions), step):
        part = slice(start, start + step)
        tables = questions.decoder.byte_tables(questions.vectors[part])  # type: ignore[index]
        sums = module.sums_of_rows(tables, right.words, rows[part])
        out[part] = 1 - sums * inverses[rows[part]]
    return out


def inverse_lengths(decoder: Decoder, database: Words) -> np.ndarray:
    """1 / length of the embedding that each code of the database stands for, float32 (N,), on the
    CPU or the device it is on; 1 for a code that stands for zero."""
    _check.same_bits(decoder.bits, database.bits)
    return 1 / _module_where(database).lengths(decoder.atoms, decoder.centre, database.words)
