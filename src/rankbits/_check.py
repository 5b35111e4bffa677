"""Checks of arguments that several rooms share.

Each check, such as ``_check.whole("bits", value, 1)``, returns the argument in the form that the
library works with, or raises :class:`Refusal`, a ``ValueError`` with one sentence for the caller:
what it must be, and what came. A check that only one room needs is in that room.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch


class Refusal(ValueError):
    """An argument, file or command that rankbits will not work with, in one sentence.

    >>> try:
    ...     cutoff(0)
    ... except Refusal as sentence:
    ...     print(sentence)
    k must be a whole number of at least 1; got 0.
    """


def refuse(sentence: str) -> NoReturn:
    """Raise a ``Refusal`` with this sentence."""
    raise Refusal(sentence)


def suggest(word: str, known: Iterable[str]) -> str:
    """Suggest a known word at the end of a refusal: ``" (did you mean 'x'?)"``; "" where no known
    word is like it."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        names = ", ".join(f"'{a}'" for a in allowed)
        refuse(f"{name} must be one of {names}; got {value!r}{suggest(str(value), allowed)}.")
    return value


TIES = ("mean", "best", "worst")


def ties(value: Any) -> str:
    return choice("ties", value, TIES)


def whole(name: str, value: Any, least: int) -> int:
    """A whole number, bool excluded, of at least ``least``."""
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, (int, np.integer))
        or value < least
    ):
        refuse(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def number(name: str, value: Any) -> float:
    """A finite number, bool excluded."""
    plain = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not plain or not np.isfinite(value):
        refuse(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def cutoff(value: Any) -> int:
    return whole("k", value, 1)


def cutoffs(values: Any) -> tuple[int, ...]:
    """One cutoff or several, sorted and without repeats."""
    several = values if isinstance(values, (tuple, list, range, np.ndarray)) else (values,)
    return tuple(sorted({cutoff(value) for value in several}))


def array(name: str, value: Any) -> np.ndarray:
    """A numpy array from an array, a sequence, or a tensor on any device.

    bfloat16 and float8, which numpy lacks, become float32, which holds them exactly: ties stay
    ties.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16 or "float8" in str(value.dtype):
            value = value.float()
        return value.cpu().numpy()
    try:
        numbers = np.asarray(value)
    except (ValueError, TypeError):
        refuse(f"{name} must be an array of numbers; got {type(value).__name__}.")
    if numbers.dtype.kind not in "biuf":
        refuse(f"{name} must be an array of numbers; got dtype {numbers.dtype}.")
    return numbers


def matrix(name: str, value: Any) -> np.ndarray:
    numbers = array(name, value)
    if numbers.ndim != 2:
        refuse(f"{name} must have two dimensions (rows, columns); got shape {numbers.shape}.")
    return numbers


def finite(name: str, numbers: np.ndarray) -> np.ndarray:
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        bad = int(np.argmin(np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)))
        refuse(f"{name} must be finite; row {bad} has nan or inf.")
    return numbers


def same_length(name: str, rows: int, other: str, wanted: int) -> None:
    if rows != wanted:
        refuse(f"{name} must have one row for each of {other}: {wanted:,}; got {rows:,}.")


def same_bits(query_bits: int, database_bits: int) -> None:
    if query_bits != database_bits:
        refuse(
            f"Queries and database must have the same number of bits; "
            f"got {query_bits} and {database_bits}."
        )


def not_empty(name: str, rows: int) -> None:
    if rows == 0:
        refuse(f"The {name} must not be empty; got 0 rows.")


def packed(value: Any, bits: int) -> np.ndarray:
    """The packed rows of a ``Codes``: uint8, (n, ceil(bits/8)), pad bits zero."""
    rows = array("packed", value)
    width = (bits + 7) // 8
    if rows.dtype != np.uint8:
        refuse(f"packed must be uint8; got {rows.dtype} (rb.pack makes bits of numbers).")
    if rows.ndim != 2 or rows.shape[1] != width:
        refuse(f"packed must have shape (n, {width}) for {bits} bits; got {rows.shape}.")
    if bits % 8 and (rows[:, -1] & ((1 << (8 - bits % 8)) - 1)).any():
        refuse(f"The pad bits after the last of {bits} bits must be zero; some are set.")
    return np.ascontiguousarray(rows)


MOST_GRADE = 255


def grades(name: str, value: Any) -> np.ndarray:
    """Relevance as non-negative whole numbers; bool counts as 0 and 1."""
    numbers = finite(name, array(name, value))
    if numbers.dtype.kind == "f" and (numbers % 1 != 0).any():
        example = numbers[numbers % 1 != 0][0]
        refuse(f"{name} must be whole grades; got fractions such as {example}.")
    if numbers.size and numbers.min() < 0:
        refuse(f"{name} must be non-negative grades; got {numbers.min()}.")
    if numbers.size and numbers.max() > MOST_GRADE:
        refuse(f"{name} must be grades of at most {MOST_GRADE}; got {numbers.max()}.")
    return numbers.astype(np.uint8)


def label_names(name: str, value: Any) -> np.ndarray | None:
    """Labels (n,) that are names, as an array of str; None where they are not names."""
    if isinstance(value, torch.Tensor):
        return None
    try:
        words = np.asarray(value)
    except (ValueError, TypeError):
        return None
    if words.dtype.kind == "O" and any(isinstance(label, str) for label in words.flat):
        for row, label in enumerate(words.flat):
            if not isinstance(label, str):
                refuse(f"{name} must all be names or all whole numbers; row {row} has {label!r}.")
    elif words.dtype.kind not in "UT":
        return None
    if words.ndim != 1:
        refuse(f"{name} that are names must have shape (n,); got {words.shape}.")
    words = words if words.dtype.kind == "U" else np.array(words.tolist(), dtype=str)
    if (words == "").any():
        refuse(f"{name} must not be empty strings; row {int((words == '').argmax())} is one.")
    return words


def number_names(query_labels: Any, database_labels: Any) -> tuple[Any, Any]:
    """Replace names of queries and database by numbers that both share; numbers stay as they are.

    >>> number_names(["cat", "ant"], ["dog", "cat"])
    (array([1, 0]), array([2, 1]))
    """
    query = label_names("query_labels", query_labels)
    database = label_names("database_labels", database_labels)
    if query is None and database is None:
        return query_labels, database_labels
    for name, value in (("query_labels", query_labels), ("database_labels", database_labels)):
        if value is None:
            refuse(f"{name} must be given too.")
    if query is None or database is None:
        kinds = ("numbers", "names") if query is None else ("names", "numbers")
        refuse(
            "Query and database labels must be of one kind, both names or both numbers; "
            f"got {kinds[0]} for the queries and {kinds[1]} for the database."
        )
    numbers = np.unique(np.concatenate([query, database]), return_inverse=True)[1]
    return numbers[: len(query)], numbers[len(query) :]


def labels(name: str, value: Any, rows: int, *, names: bool = False) -> np.ndarray:
    """(n,) whole numbers as int64, or (n, C) multi-hot as bool.

    ``names``: allow (n,) names too, and number them in alphabetical order. Such numbers mean
    nothing in another set of labels: where two sets are compared, call ``number_names`` first.
    """
    if value is None:
        refuse(f"{name} must be given: (n,) whole numbers or names, or (n, C) multi-hot.")
    words = label_names(name, value)
    if words is not None and not names:
        example = f" such as '{words[0]}'" if len(words) else ""
        refuse(f"{name} must be whole numbers here; got names{example}.")
    if words is not None:
        value = np.unique(words, return_inverse=True)[1]
    numbers = finite(name, array(name, value))
    if numbers.ndim not in (1, 2):
        refuse(f"{name} must have shape (n,) or (n, C); got {numbers.shape}.")
    same_length(name, len(numbers), "its codes", rows)
    if numbers.dtype.kind == "f" and (numbers % 1 != 0).any():
        refuse(f"{name} must be whole numbers; got fractions.")
    if numbers.ndim == 1:
        return numbers.astype(np.int64, copy=False)
    if numbers.dtype != bool and not ((numbers == 0) | (numbers == 1)).all():
        refuse(f"{name} with two dimensions must be multi-hot, only 0 and 1; got other values.")
    return numbers.astype(bool, copy=False)


def same_kind_of_labels(query: np.ndarray, database: np.ndarray) -> None:
    if query.ndim != database.ndim or query.shape[1:] != database.shape[1:]:
        refuse(
            "Query and database labels must be of one kind, both (n,) or both (n, C) with one C; "
            f"got {query.shape} and {database.shape}."
        )


def square(rows: int, columns: int) -> None:
    if rows != columns:
        refuse(
            f"exclude_self needs the database to be the queries themselves, row for row; "
            f"got {rows:,} queries and {columns:,} database rows."
        )
