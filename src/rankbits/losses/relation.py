"""Grade the pairs of queries and items by labels or by an affinity matrix, a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rankbits import _check
from rankbits.kernels import SKIP, Pairs

MOST_VALUES = 128  # of an affinity matrix


@dataclass(frozen=True, eq=False)
class Relation:
    """Grades of (query, item) pairs as small indices: index g means the affinity ``values[g]``.

    ``values[0]`` is 0; ``values`` is None where there are two grades and the value of the second
    does not matter. ``left`` and ``right`` are labels, or ``left`` is the affinity matrix and
    ``right`` None. ``own`` is the item that is the query itself, which is skipped: a tensor (M,)
    with -1 for none; None where no query has one; 0 where query i is item i.
    """

    values: torch.Tensor | None
    left: torch.Tensor
    right: torch.Tensor | None
    own: torch.Tensor | int | None
    symmetric: bool

    @property
    def levels(self) -> int:
        return 2 if self.values is None else len(self.values)

    def grades(self, start: int, stop: int) -> torch.Tensor:
        """Return uint8 (stop - start, N): the index of each pair's affinity, ``SKIP`` for the query
        itself."""
        left = self.left[start:stop]
        if self.right is None:
            grades = left > 0 if self.values is None else torch.searchsorted(self.values, left)
        elif self.right.ndim == 1:
            grades = left[:, None] == self.right[None, :]
        else:
            shared = left @ self.right.T
            grades = shared > 0 if self.values is None else shared.round()
        grades = grades.to(torch.uint8)
        if isinstance(self.own, int):
            grades.diagonal(start).fill_(SKIP)
        elif self.own is not None:
            own = self.own[start:stop, None]
            at = own.clamp(0, grades.shape[1] - 1)
            grades.scatter_(1, at, torch.where(own == at, SKIP, grades.gather(1, at)))
        return grades

    def pairs(self, start: int, stop: int) -> Pairs:
        """Return the pairs of these queries with every item, in the form that kernels read."""
        left, right, own = self.left, self.right, self.own
        if right is None or right.ndim == 2 or right.is_floating_point():
            return Pairs(lambda: self.grades(start, stop))
        if stop - start < left.shape[0]:
            left = left[start:stop]
            own = own[start:stop] if isinstance(own, torch.Tensor) else own
        own = start if isinstance(own, int) else own
        return Pairs(lambda: self.grades(start, stop), (left, right), own)


def relate(
    rows: int,
    columns: int,
    device: torch.device,
    *,
    labels: Any,
    database_labels: Any = None,
    affinity: Any = None,
    graded: bool = False,
    same: bool = False,
    self_rows: Any = None,
) -> Relation:
    """Make the relation of ``rows`` queries to ``columns`` items.

    ``same``: the items are the queries, and each skips itself. ``graded``: keep all affinities
    (NDCG); otherwise any above zero is a neighbour (AP).
    """
    own = _check_self_rows(rows, columns, device, same, self_rows)
    if affinity is not None:
        return _relate_by_affinity(rows, columns, device, labels, affinity, graded, own)
    if labels is None:
        _check.refuse("labels must be given, or an affinity matrix in their place.")
    left = _check_labels("labels", labels, rows, device)
    if same:
        if database_labels is not None:
            _check.refuse("database_labels without a database: give both or neither.")
        right = left
    elif database_labels is None:
        _check.refuse("database_labels must be given with a database.")
    else:
        right = _check_labels("database_labels", database_labels, columns, device)
    if left.shape[1:] != right.shape[1:]:
        _check.refuse(
            "labels and database_labels must be of one kind, both (n,) or both (n, C); "
            f"got {tuple(left.shape)} and {tuple(right.shape)}."
        )
    values = None
    if left.ndim == 2:
        left, right = left.float(), right.float()
        most = _bound_shared(left, right) if graded else 1
        values = torch.arange(most + 1, dtype=torch.float64, device=device) if most > 1 else None
    return Relation(values, left, right, own, symmetric=same)


def _bound_shared(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the most labels that two items may share; on a GPU without waiting for the data."""
    if left.is_cuda:
        return min(left.shape[1], SKIP - 1)
    return max(1, min(int(left.sum(1).max()), int(right.sum(1).max()))) if len(left) else 1


def _check_self_rows(
    rows: int, columns: int, device: torch.device, same: bool, self_rows: Any
) -> torch.Tensor | int | None:
    if self_rows is None:
        return 0 if same else None
    if same:
        _check.refuse("self_rows belongs to a database; without one each row skips itself.")
    own = torch.as_tensor(self_rows, dtype=torch.long)
    # on a GPU the second check would wait for the data; there a row past the database skips nothing
    if own.shape != (rows,) or (not own.is_cuda and bool((own >= columns).any())):
        _check.refuse(
            f"self_rows must name a row of the database, or -1, for each of {rows} queries."
        )
    return own.to(device)


def _check_labels(name: str, labels: Any, rows: int, device: torch.device) -> torch.Tensor:
    labels = torch.as_tensor(labels, device=device)
    if labels.ndim not in (1, 2):
        _check.refuse(f"{name} must have shape (n,) or (n, C); got {tuple(labels.shape)}.")
    _check.same_length(name, len(labels), "its embeddings", rows)
    return labels


def _relate_by_affinity(
    rows: int,
    columns: int,
    device: torch.device,
    labels: Any,
    affinity: Any,
    graded: bool,
    own: torch.Tensor | int | None,
) -> Relation:
    if labels is not None:
        _check.refuse("Give either labels or an affinity matrix, not both (labels may be None).")
    affinity = torch.as_tensor(affinity, device=device)
    if affinity.shape != (rows, columns):
        _check.refuse(f"affinity must have shape ({rows}, {columns}); got {tuple(affinity.shape)}.")
    values = None
    if graded:
        zero = torch.zeros(1, dtype=affinity.dtype, device=device)
        present = torch.cat([zero, affinity.unique()]).unique()
        if bool(present[0] < 0) or not bool(torch.isfinite(present.double()).all()):
            _check.refuse("affinity must be non-negative and finite.")
        if len(present) > MOST_VALUES:
            _check.refuse(
                f"affinity must take few values, at most {MOST_VALUES}; got {len(present)}."
            )
        values = present if len(present) > 2 else None
    return Relation(values, affinity, None, own, symmetric=False)
