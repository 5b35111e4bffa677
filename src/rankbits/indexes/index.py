"""What every index is: five verbs, and one way to read ids.

The checks of arguments stand here, so that each engine refuses with the same words.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import torch

from rankbits import _check
from rankbits.types import Codes, Results
from rankbits.types.codes import check_fingerprint, check_same_encoder

if TYPE_CHECKING:
    from typing import Self

LONGEST = 1024  # bytes of a string id
LARGEST = int(np.iinfo(np.int64).max)
MOST_FACTS = 1 << 16


class Encoding(Protocol):
    """What an index asks of an encoder."""

    @property
    def fingerprint(self) -> str: ...

    def encode(self, inputs: Any) -> Codes: ...


class Index(abc.ABC):
    """What remembers a database of codes. Five verbs: add, remove, search, within, count.

    Ids are whole numbers (int64) or strings, one kind an index. Every verb is all or nothing: a
    refusal changes nothing.
    """

    bits: int
    encoder: Encoding | None = None  # makes codes of what is no codes, where one is attached

    _facts: Mapping[str, str] = MappingProxyType({})

    @property
    def facts(self) -> Mapping[str, str]:
        """What the index remembers of its codes: ``fingerprint`` of their encoder, and where the
        ``encoder`` and the ``inputs`` lie."""
        return self._facts

    def remember(self, facts: Mapping[str, str]) -> None:
        """Keep these ``facts`` in place of those before, as lastingly as the codes."""
        self._facts = check_facts(facts)

    @property
    def fingerprint(self) -> str | None:
        """The encoder whose codes these are; None where it is not known."""
        return self.facts.get("fingerprint")

    @property
    def has_string_ids(self) -> bool | None:
        """Whether ids are strings; None while the index is empty and may become either."""
        return None

    @abc.abstractmethod
    def add(self, codes: Codes, ids: Any = None) -> Self:
        """Remember ``codes`` under ``ids`` (n,), no id twice in one call; returns self.

        An id already there is replaced. None: numbered on from the largest that is there, from 0 in
        an empty index (only where ids are whole numbers).
        """

    @abc.abstractmethod
    def remove(self, ids: Any) -> int:
        """Forget ``ids``; how many of them were there."""

    @abc.abstractmethod
    def search(self, queries: Codes, k: int, *, among: Any = None) -> Results:
        """The k nearest for each query, (Q, min(k, candidates)): by distance, ties by order of
        insertion unless the engine says otherwise.

        ``among``: the only ids that may be found; unknown ones are ignored.
        """

    @abc.abstractmethod
    def within(self, queries: Codes, radius: int, *, among: Any = None) -> Results:
        """Everything at Hamming distance ``radius`` or less, with ``offsets``; same order."""

    @abc.abstractmethod
    def count(self) -> int:
        """How many codes are remembered."""

    def _to_codes(self, value: Any) -> Codes:
        """``Codes`` of this index's bits and encoder; other inputs go through the encoder."""
        codes = value
        if not isinstance(codes, Codes):
            if self.encoder is None:
                _check.refuse(
                    f"Codes are wanted here (rb.pack makes them); got {type(value).__name__}."
                )
            codes = self.encoder.encode(value)
        check_same_encoder(codes.fingerprint, self.fingerprint, "this index")
        return codes

    def _codes_to_add(self, value: Any) -> Codes:
        """As ``_to_codes``; the first codes of an empty index say whose codes it holds."""
        codes = self._to_codes(value)
        if codes.bits != self.bits:
            _check.refuse(f"This index holds codes of {self.bits} bits; got codes of {codes.bits}.")
        if codes.fingerprint and self.fingerprint is None and len(codes) and not self.count():
            self.remember({**self.facts, "fingerprint": codes.fingerprint})
        return codes

    def _query_codes(self, value: Any) -> Codes:
        codes = self._to_codes(value)
        _check.same_bits(codes.bits, self.bits)
        return codes

    def close(self) -> None:  # noqa: B027
        """Let go of files and connections; nothing acknowledged is lost."""

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an empty index is still an index

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def check_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts as an index keeps them: short texts by name, JSON of at most 64 KiB."""
    kept = {str(name): str(value) for name, value in facts.items() if value is not None}
    check_fingerprint(kept.get("fingerprint"))
    if len(json.dumps(kept)) > MOST_FACTS:
        _check.refuse(f"An index remembers at most {MOST_FACTS:,} characters of facts.")
    return kept


def read_facts(text: str) -> dict[str, str]:
    """What ``json.dumps`` of ``check_facts`` wrote; ValueError where it is something else."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError
    try:
        return check_facts(found)
    except _check.Refusal as sentence:
        raise ValueError(str(sentence)) from sentence


def check_k(k: Any) -> int:
    return _check.cutoff(k)


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
        ids = _listed(ids, name)
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


def _listed(ids: Any, name: str) -> np.ndarray:
    """The array of a list, set or other iterable, whose elements are of one kind."""
    try:
        items = ids.tolist() if isinstance(ids, np.ndarray) and ids.ndim == 1 else list(ids)
    except TypeError:
        _check.refuse(f"{name} must be whole numbers or strings; got {type(ids).__name__}.")
    kinds = set(map(type, items))
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _strings(items, name)
    if not all(issubclass(k, (int, np.integer)) and not issubclass(k, bool) for k in kinds):
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        _check.refuse(f"{name} must be all whole numbers or all strings; got {listed}.")
    try:
        return np.array(items, np.int64)
    except OverflowError:
        _check.refuse(f"{name} must fit in 64 bits with a sign; some do not.")


def _strings(items: list[str], name: str) -> np.ndarray:
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
    found = np.empty(len(items), object)
    found[:] = [str(item) for item in items]
    return found


def new_ids(ids: Any, codes: Codes) -> np.ndarray:
    """The ids of ``codes`` to add, given ones only: one for each row, none twice."""
    return distinct_ids(ids, len(codes), "codes")


def distinct_ids(ids: Any, rows: int, what: str) -> np.ndarray:
    found = parse_ids(ids)
    _check.same_length("ids", len(found), what, rows)
    once = len(set(found.tolist())) if found.dtype == object else len(np.unique(found))
    if once != len(found):
        _check.refuse(f"ids must not hold an id twice; {len(found) - once:,} are repeated.")
    return found


def numbered(largest: int | None, rows: int) -> np.ndarray:
    """Ids numbered on from ``largest``, or from 0 where there is none."""
    start = 0 if largest is None else largest + 1
    if start + rows - 1 > LARGEST:
        _check.refuse(f"No whole numbers are left after id {largest}: give ids.")
    return np.arange(start, start + rows, dtype=np.int64)


def same_kind(ids: np.ndarray, strings: bool, name: str = "ids") -> np.ndarray:
    """Refuse strings where the index holds whole numbers, and the other way about."""
    if len(ids) and (ids.dtype == object) != strings:
        held, came = ("strings", "whole numbers") if strings else ("whole numbers", "strings")
        _check.refuse(f"{name} of this index are {held}; got {came}.")
    return ids


def needs_ids() -> NoReturn:
    _check.refuse("ids must be given: this index holds strings, which cannot be numbered on.")
