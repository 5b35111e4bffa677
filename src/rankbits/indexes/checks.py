"""Checks that all indexes share: of ids, k, a radius and facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import torch

from rankbits import _check
from rankbits.types.codes import check_fingerprint

LONGEST = 1024  # bytes of a string id
LARGEST = int(np.iinfo(np.int64).max)
MOST_FACTS = 1 << 16


class UnknownId(_check.Refusal):
    """The index does not hold this id, or no longer."""


def check_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts as an index keeps them: texts by name, at most 64 KiB of JSON."""
    texts = {str(name): str(value) for name, value in facts.items() if value is not None}
    check_fingerprint(texts.get("fingerprint"))
    if len(json.dumps(texts)) > MOST_FACTS:
        _check.refuse(f"An index remembers at most {MOST_FACTS:,} characters of facts.")
    return texts


def read_facts(text: str) -> dict[str, str]:
    """Read facts from JSON; ValueError where the text is no facts of an index."""
    facts = json.loads(text)
    if not isinstance(facts, dict) or not all(isinstance(v, str) for v in facts.values()):
        raise ValueError
    try:
        return check_facts(facts)
    except _check.Refusal as sentence:
        raise ValueError(str(sentence)) from sentence


def check_radius(radius: Any) -> int:
    return _check.whole("radius", radius, 0)


def parse_ids(ids: Any, name: str = "ids") -> np.ndarray:
    """One id or many as int64 (n,), or as an object array (n,) of str.

    >>> parse_ids([7, 3]), parse_ids("cat")
    (array([7, 3]), array(['cat'], dtype=object))
    """
    if isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, np.ndarray) and ids.ndim == 0:
        ids = ids.item()
    if isinstance(ids, (str, int, np.integer)):
        ids = [ids]
    if isinstance(ids, range):
        ids = np.arange(ids.start, ids.stop, ids.step)
    if not isinstance(ids, np.ndarray) or ids.dtype.kind in "OU":
        ids = _parse_list(ids, name)
    if ids.ndim != 1:
        _check.refuse(f"{name} must have shape (n,); got {ids.shape}.")
    if ids.dtype == object:
        return ids
    if not len(ids):
        return np.empty(0, np.int64)
    if ids.dtype.kind not in "iu":
        _check.refuse(f"{name} must be whole numbers or strings; got dtype {ids.dtype}.")
    if ids.dtype == np.uint64 and ids.max() > LARGEST:
        _check.refuse(f"{name} must fit in 64 bits with a sign; got {ids.max()}.")
    return ids.astype(np.int64, copy=False)


def _parse_list(ids: Any, name: str) -> np.ndarray:
    """Ids of a list, set or other iterable as an array; all must be of one kind."""
    try:
        items = ids.tolist() if isinstance(ids, np.ndarray) and ids.ndim == 1 else list(ids)
    except TypeError:
        _check.refuse(f"{name} must be whole numbers or strings; got {type(ids).__name__}.")
    kinds = set(map(type, items))
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _check_strings(items, name)
    if not all(issubclass(k, (int, np.integer)) and not issubclass(k, bool) for k in kinds):
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        _check.refuse(f"{name} must be all whole numbers or all strings; got {listed}.")
    try:
        return np.array(items, np.int64)
    except OverflowError:
        _check.refuse(f"{name} must fit in 64 bits with a sign; some do not.")


def _check_strings(items: list[str], name: str) -> np.ndarray:
    try:
        sizes = [len(item.encode()) for item in items]
    except UnicodeEncodeError:
        _check.refuse(f"{name} must be strings of valid Unicode; some are not.")
    if min(sizes) == 0:
        _check.refuse(f"{name} must not be empty strings; row {sizes.index(0)} is one.")
    if max(sizes) > LONGEST:
        _check.refuse(f"{name} must be of at most {LONGEST:,} bytes in UTF-8; got {max(sizes):,}.")
    if any("\0" in item for item in items):
        _check.refuse(f"{name} must not contain the character NUL; some do.")
    strings = np.empty(len(items), object)
    strings[:] = [str(item) for item in items]
    return strings


def parse_distinct_ids(ids: Any, rows: int, what: str = "codes") -> np.ndarray:
    """As ``parse_ids``; there must be one id for each row, and none twice."""
    parsed = parse_ids(ids)
    _check.same_length("ids", len(parsed), what, rows)
    once = len(set(parsed.tolist())) if parsed.dtype == object else len(np.unique(parsed))
    if once != len(parsed):
        _check.refuse(f"ids must not hold an id twice; {len(parsed) - once:,} are repeated.")
    return parsed


def number_rows(largest: int | None, rows: int) -> np.ndarray:
    """The next whole numbers after ``largest`` as ids of new rows; from 0 where it is None."""
    start = 0 if largest is None else largest + 1
    if start + rows - 1 > LARGEST:
        _check.refuse(f"No whole numbers are left after id {largest}: give ids.")
    return np.arange(start, start + rows, dtype=np.int64)


def same_kind(ids: np.ndarray, strings: bool | None, name: str = "ids") -> np.ndarray:
    """Refuse strings where the index holds whole numbers, and the reverse; returns ``ids``. An
    empty index (None) takes either kind."""
    if len(ids) and strings is not None and (ids.dtype == object) != strings:
        wanted, came = ("strings", "whole numbers") if strings else ("whole numbers", "strings")
        _check.refuse(f"{name} of this index are {wanted}; got {came}.")
    return ids


def refuse_missing_ids() -> NoReturn:
    _check.refuse("ids must be given: this index holds strings, which cannot be numbered on.")
