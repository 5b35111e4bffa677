"""How pairs are graded: by labels, or by an affinity matrix; a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rankbits import _check
from rankbits.kernels import SKIP, Pairs

MOST_VALUES = 128


@dataclass(frozen=True, eq=False)
class Relation:
    """Grades of (query, item) pairs as small indices: index g stands for affinity ``values[g]``.

    ``values[0]`` is 0. ``left`` and ``right`` are labels, or ``left`` is the affinity matrix and
    ``right`` None. ``own`` is the item that is the query itself (M,), -1 for none; it is skipped.
    """

    values: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor | None
    own: torch.Tensor | None
    symmetric: bool

    @property
    def levels(self) -> int:
        return len(self.values)

    def grades(self, start: int, stop: int) -> torch.Tensor:
        """uint8 (stop - start, N): index of each pair's affinity, ``SKIP`` for the query itself."""
        left = self.left[start:stop]
        if self.right is None:
            found = left > 0 if self.levels == 2 else torch.searchsorted(self.values, left)
        elif self.right.ndim == 1:
            found = left[:, None] == self.right[None, :]
        else:
            shared = left @ self.right.T
            found = shared > 0 if self.levels == 2 else shared.round()
        found = found.to(torch.uint8)
        if self.own is not None:
            own = self.own[start:stop, None]
            at = own.clamp(min=0)
            kept = found.gather(1, at)
            found.scatter_(1, at, torch.where(own >= 0, SKIP, kept))
        return found

    def pairs(self, start: int, stop: int) -> Pairs:
        """The pairs of these queries with every item, as kernels want them."""
        classes = None
        if self.right is not None and self.right.ndim == 1 and not self.right.is_floating_point():
            own = self.own
            if own is None:
                own = torch.full((len(self.left),), -1, device=self.left.device)
            classes = (self.left[start:stop], self.right, own[start:stop])
        return Pairs(lambda: self.grades(start, stop), classes)


def relate(
    rows: int,
    columns: int,
    device: torch.device,
    *,
    labels: Any,
    database_labels: Any,
    affinity: Any,
    graded: bool,
    same: bool,
    self_rows: Any,
) -> Relation:
    """The relation of ``rows`` queries to ``columns`` items.

    ``same``: the items are the queries, and each skips itself. ``graded``: keep all affinities
    (NDCG); otherwise any above zero is a neighbour (AP).
    """
    own = _own(rows, columns, device, same, self_rows)
    if affinity is not None:
        return _by_affinity(rows, columns, device, labels, affinity, graded, own)
    if labels is None:
        _check.refuse("labels must be given, or an affinity matrix in their place.")
    left = _labels("labels", labels, rows, device)
    if same:
        if database_labels is not None:
            _check.refuse("database_labels without a database: give both or neither.")
        right = left
    elif database_labels is None:
        _check.refuse("database_labels must be given with a database.")
    else:
        right = _labels("database_labels", database_labels, columns, device)
    if left.shape[1:] != right.shape[1:]:
        _check.refuse(
            "labels and database_labels must be of one kind, both (n,) or both (n, C); "
            f"got {tuple(left.shape)} and {tuple(right.shape)}."
        )
    most = 1
    if left.ndim == 2:
        left, right = left.float(), right.float()
        if graded:
            most = max(1, min(int(left.sum(1).max()), int(right.sum(1).max())))
    values = torch.arange(most + 1, dtype=torch.float64, device=device)
    return Relation(values, left, right, own, symmetric=same)


def _own(
    rows: int, columns: int, device: torch.device, same: bool, self_rows: Any
) -> torch.Tensor | None:
    if self_rows is None:
        return torch.arange(rows, device=device) if same else None
    if same:
        _check.refuse("self_rows belongs to a database; without one each row skips itself.")
    own = torch.as_tensor(self_rows, device=device, dtype=torch.long)
    if own.shape != (rows,) or bool((own >= columns).any()):
        _check.refuse(
            f"self_rows must name a row of the database, or -1, for each of {rows} queries."
        )
    return own


def _labels(name: str, labels: Any, rows: int, device: torch.device) -> torch.Tensor:
    found = torch.as_tensor(labels, device=device)
    if found.ndim not in (1, 2):
        _check.refuse(f"{name} must have shape (n,) or (n, C); got {tuple(found.shape)}.")
    _check.same_length(name, len(found), "its embeddings", rows)
    return found


def _by_affinity(
    rows: int,
    columns: int,
    device: torch.device,
    labels: Any,
    affinity: Any,
    graded: bool,
    own: torch.Tensor | None,
) -> Relation:
    if labels is not None:
        _check.refuse("Give either labels or an affinity matrix, not both (labels may be None).")
    found = torch.as_tensor(affinity, device=device)
    if found.shape != (rows, columns):
        _check.refuse(f"affinity must have shape ({rows}, {columns}); got {tuple(found.shape)}.")
    values = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device)
    if graded:
        zero = torch.zeros(1, dtype=found.dtype, device=device)
        present = torch.cat([zero, found.unique()]).unique()
        if bool(present[0] < 0) or not bool(torch.isfinite(present.double()).all()):
            _check.refuse("affinity must be non-negative and finite.")
        if len(present) > MOST_VALUES:
            _check.refuse(
                f"affinity must take few values, at most {MOST_VALUES}; got {len(present)}."
            )
        values = present if len(present) > 1 else torch.cat([present, zero + 1])
        if len(values) == 2:
            return Relation(values.double(), found, None, own, symmetric=False)
    return Relation(values.to(found.dtype) if graded else values, found, None, own, symmetric=False)
