"""Convert ids: in JSON they are strings, in an index whole numbers or strings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankbits._check import Refusal
from rankbits.indexes.checks import LARGEST, parse_ids
from rankbits.serve.limits import reject, shorten

WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def parse_id(value: Any, strings: bool | None) -> int | str | None:
    """Convert an id to the index's kind; None where the index cannot hold it.

    ``strings``: whether the ids of the index are strings; None while it is empty.

    >>> parse_id("17", strings=False), parse_id(17, strings=True), parse_id("017", strings=False)
    (17, '17', None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        reject(422, f"An id must be a string or a whole number; got {shorten(value)}.")
    if strings:
        return str(value)
    if isinstance(value, int):
        return value if -LARGEST - 1 <= value <= LARGEST else None
    if strings is None:
        return value
    if not WHOLE.fullmatch(value):
        return None
    number = int(value)
    return number if -LARGEST - 1 <= number <= LARGEST else None


def convert_ids(values: Sequence[Any], strings: bool | None) -> np.ndarray:
    """Convert ids, and drop those that the index cannot hold."""
    names = [name for value in values if (name := parse_id(value, strings)) is not None]
    return _make_array(names) if names else np.empty(0, object if strings else np.int64)


def check_new_ids(values: Sequence[Any], strings: bool | None) -> np.ndarray:
    """Convert ids to add; repeats, and ids that the index cannot hold, are refused."""
    names = []
    for value in values:
        name = parse_id(value, strings)
        if name is None:
            reject(422, f"Ids of this index are whole numbers of 64 bits; got {shorten(value)}.")
        names.append(name)
    repeated = len(names) - len(set(names))
    if repeated:
        reject(422, f"ids must not hold an id twice; {repeated:,} are repeated.")
    return _make_array(names)


def _make_array(names: list[int | str]) -> np.ndarray:
    try:
        return parse_ids(names)
    except Refusal as sentence:
        reject(422, str(sentence))
