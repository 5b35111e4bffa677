"""A column of ids: which id a row has, and which row an id has.

Ids that follow each other are stored as the first alone, other whole numbers as int64 with a binary
search, strings as Python's with a dict. What a look-up needs is made when it is first used.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from rankbits.indexes.checks import LARGEST, LONGEST

COUNTED, NUMBERS, STRINGS = 0, 1, 2  # kinds of ids in a file


class Column:
    """The ids of some rows, none twice; a column never changes.

    >>> column = Column(np.array([7, 3, 5]))
    >>> column.rows_of(np.array([5, 6])), column.at(np.array([0]))
    (array([ 2, -1]), array([7]))
    >>> Column(np.arange(100, 103)).first
    100
    """

    def __init__(self, ids: np.ndarray | None, first: int | None = None, rows: int = 0) -> None:
        if ids is not None and ids.dtype != object and len(ids):
            start = int(ids[0])
            if int(ids[-1]) - start == len(ids) - 1 and (np.diff(ids) == 1).all():
                first, rows, ids = start, len(ids), None
        self._ids, self.first = ids, first
        self._rows = len(ids) if ids is not None else rows

    def __len__(self) -> int:
        return self._rows

    @property
    def strings(self) -> bool:
        return self._ids is not None and self._ids.dtype == object

    def all(self) -> np.ndarray:
        if self._ids is not None:
            return self._ids
        start = self.first or 0
        return np.arange(start, start + self._rows, dtype=np.int64)

    def at(self, rows: np.ndarray) -> np.ndarray:
        """The ids of ``rows``, in their shape."""
        if self._ids is not None:
            return self._ids[rows]
        return rows + self.first if self.first else rows

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray | None]:
        assert self._ids is not None
        if (self._ids[1:] > self._ids[:-1]).all():
            return self._ids, None
        order = np.argsort(self._ids)
        return self._ids[order], order

    @cached_property
    def _by_name(self) -> dict[str, int]:
        assert self._ids is not None
        return dict(zip(self._ids.tolist(), range(len(self._ids)), strict=True))

    def rows_of(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each id of ``wanted``; -1 for an id that is not in the column."""
        if not len(self) or not len(wanted) or self.strings != (wanted.dtype == object):
            return np.full(len(wanted), -1, np.int64)
        if self.strings:
            find = self._by_name.get
            return np.fromiter((find(x, -1) for x in wanted.tolist()), np.int64, len(wanted))
        if self._ids is None:
            start = self.first or 0
            inside = (wanted >= start) & (wanted <= start + (len(self) - 1))
            return np.where(inside, wanted - start, -1)
        ascending, order = self._sorted
        if wanted.max() < ascending[0] or wanted.min() > ascending[-1]:
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
        rows = place if order is None else order[place]
        return np.where(ascending[place] == wanted, rows, -1)

    def is_distinct(self) -> bool:
        """Whether no id comes twice; a damaged file may break that promise."""
        if self._ids is None:
            return True
        if self.strings:
            return len(self._by_name) == len(self)
        ascending, order = self._sorted
        return order is None or bool((ascending[1:] > ascending[:-1]).all())

    def largest(self, alive: np.ndarray | None) -> int:
        """The largest id of the rows in ``alive``, which has at least one; the ids are numbers."""
        if self._ids is None:
            last = len(self) - 1 if alive is None else int(np.flatnonzero(alive)[-1])
            return (self.first or 0) + last
        return int(self._ids.max() if alive is None else self._ids[alive].max())

    def keep(self, alive: np.ndarray | None) -> Column:
        """The column of the rows in ``alive``; None: of all rows."""
        return self if alive is None else Column(self.all()[alive])


def join_columns(columns: list[Column]) -> Column:
    """One column of several; if each continues the one before, only the first id is stored."""
    ends = [(c.first or 0, len(c)) for c in columns]
    counted = all(c.first is not None for c in columns)
    if counted and all(a[0] + a[1] == b[0] for a, b in pairwise(ends)):
        return Column(None, columns[0].first, sum(map(len, columns)))
    return Column(np.concatenate([c.all() for c in columns]))


def encode_ids(column: Column) -> tuple[int, int, list[bytes | memoryview]]:
    """Ids as a file holds them: their kind, the first (if they are counted), and the bytes.

    Whole numbers are little-endian int64. Strings are (rows + 1) little-endian uint64, the start of
    each and the end of the last, then all of them in UTF-8.
    """
    if column.first is not None or not len(column):
        return COUNTED, column.first or 0, []
    if not column.strings:
        return NUMBERS, 0, [column.all().astype("<i8", copy=False).data.cast("B")]
    texts = [text.encode() for text in column.all().tolist()]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u8")
    return STRINGS, 0, [ends.data.cast("B"), b"".join(texts)]


def encoded_size(kind: int, rows: int, text: int) -> int:
    return (0, 8 * rows, 8 * (rows + 1) + text)[kind]


def decode_ids(kind: int, first: int, rows: int, data: memoryview) -> Column:
    """Read what ``encode_ids`` wrote; ValueError for anything else."""
    if max(rows, first + rows - 1) > LARGEST:
        raise ValueError("ids past the largest")
    if kind == COUNTED:
        return Column(None, first, rows)
    if kind == NUMBERS:
        return Column(np.frombuffer(data, "<i8").astype(np.int64, copy=False))
    ends = np.frombuffer(data[: 8 * (rows + 1)], "<u8")
    text = bytes(data[8 * (rows + 1) :])
    sizes = np.diff(ends.astype(np.int64)) if ends.max(initial=0) <= len(text) else np.zeros(1)
    if ends[0] != 0 or ends[-1] != len(text) or (sizes < 1).any() or (sizes > LONGEST).any():
        raise ValueError("strings that do not lie one after another")
    if b"\0" in text:
        raise ValueError("a string with NUL")
    bounds = ends.tolist()
    strings = np.empty(rows, object)
    strings[:] = [text[a:b].decode() for a, b in pairwise(bounds)]
    return Column(strings)
