"""Ids on the wire are strings; an index knows whole numbers or strings. These functions convert
them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankbits._check import Refusal
from rankbits.indexes.checks import LARGEST, parse_ids
from rankbits.serve.limits import brief, reject

WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def one_id(value: Any, strings: bool | None) -> int | str | None:
    """An id as the index spells it; None where no such id can be in it.

    ``strings``: whether ids of the index are strings; None while it is empty.

    >>> one_id("17", strings=False), one_id(17, strings=True), one_id("017", strings=False)
    (17, '17', None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        reject(422, f"An id must be a string or a whole number; got {brief(value)}.")
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


def known_ids(values: Sequence[Any], strings: bool | None) -> np.ndarray:
    """Those of ``values`` that the index could hold."""
    found = [one_id(value, strings) for value in values]
    kept = [name for name in found if name is not None]
    try:
        return parse_ids(kept) if kept else np.empty(0, object if strings else np.int64)
    except Refusal as sentence:
        reject(422, str(sentence))


def new_ids(values: Sequence[Any], strings: bool | None) -> np.ndarray:
    """Check ids to add: refuse repeats, and ids that the index cannot hold."""
    found = []
    for value in values:
        name = one_id(value, strings)
        if name is None:
            reject(422, f"Ids of this index are whole numbers of 64 bits; got {brief(value)}.")
        found.append(name)
    if len(set(found)) != len(found):
        reject(
            422, f"ids must not hold an id twice; {len(found) - len(set(found)):,} are repeated."
        )
    try:
        return parse_ids(found)
    except Refusal as sentence:
        reject(422, str(sentence))
