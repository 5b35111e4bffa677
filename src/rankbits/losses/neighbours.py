"""Neighbours without labels: grades from how near the inputs are to one another.

TALR's LabelMe experiment (Sec. 5.3): of all pairs of the training set the 5, 1, 0.2 and 0.1 %
nearest have affinities 1, 2, 5 and 10. So any loss that takes an affinity learns to hash any
embeddings by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses.histogram import rows_of_floats
from rankbits.losses.protocol import OfLoss

SHARES = (0.05, 0.01, 0.002, 0.001)
GRADES = (1, 2, 5, 10)
MOST_ROWS = 5000  # whose pairs set the thresholds: as many as the paper's whole training set
CELLS = 1 << 22


def neighbour_thresholds(
    inputs: Any, shares: Sequence[float] = SHARES, *, rows: int = MOST_ROWS, seed: int = 0
) -> torch.Tensor:
    """Squared Euclidean distances within which the nearest ``shares`` of all pairs lie, (T,).

    ``inputs`` (n, dim); where n is above ``rows``, the pairs are those of so many drawn by
    ``seed``. Of P pairs the round(share P) nearest lie within a threshold, at least one, and
    whatever ties with the last of them.

    >>> neighbour_thresholds([[0.0], [1.0], [3.0], [7.0]], shares=(0.5, 0.2))
    tensor([9., 1.], dtype=torch.float64)
    """
    x = _rows("inputs", inputs)
    if len(x) < 2:
        _check.refuse(f"inputs must have at least 2 rows to be neighbours; got {len(x)}.")
    wanted = tuple(_check.number("A share", share) for share in shares)
    if not wanted or not all(0 < share <= 1 for share in wanted):
        _check.refuse(f"shares must be above 0 and at most 1; got {tuple(shares)}.")
    most = _check.whole("rows", rows, 2)
    if len(x) > most:
        draw = torch.Generator().manual_seed(_check.whole("seed", seed, 0))
        x = x[torch.randperm(len(x), generator=draw)[:most].to(x.device)]
    parts, step = [], max(1, CELLS // len(x))
    for start in range(0, len(x), step):
        near = _squared_distances(x[start : start + step], x)
        mine = torch.arange(start, start + len(near), device=x.device)
        parts.append(near[torch.arange(len(x), device=x.device) > mine[:, None]].cpu())
    every = torch.cat(parts).numpy()
    places = [max(1, round(share * len(every))) - 1 for share in wanted]
    return torch.from_numpy(np.partition(every, places)[places]).to(x.device)


def neighbour_grades(
    queries: Any, database: Any, thresholds: Any, grades: Sequence[int] = GRADES
) -> torch.Tensor:
    """uint8 (M, N): the highest of ``grades`` whose threshold a pair's squared Euclidean distance
    does not pass, 0 where it passes all.

    >>> neighbour_grades([[0.0]], [[0.0], [1.0], [3.0], [9.0]], [9.0, 1.0], grades=(1, 2))
    tensor([[2, 2, 1, 0]], dtype=torch.uint8)
    """
    x = _rows("queries", queries)
    y = rows_of_floats("database", _rows("database", database), x.shape[1]).to(x.device)
    limits = torch.as_tensor(thresholds, device=x.device).reshape(-1)
    values = [_check.whole("A grade", grade, 1) for grade in grades]
    if len(values) != len(limits) or max(values, default=0) > _check.MOST_GRADE:
        _check.refuse(
            f"grades must be one for each of {len(limits)} thresholds and at most "
            f"{_check.MOST_GRADE}; got {tuple(grades)}."
        )
    graded = torch.zeros(len(x), len(y), dtype=torch.uint8, device=x.device)
    step = max(1, CELLS // max(1, len(y)))
    for start in range(0, len(x), step):
        near, part = _squared_distances(x[start : start + step], y), graded[start : start + step]
        for grade, limit in sorted(zip(values, limits.tolist(), strict=True)):
            part[near <= limit] = grade
    return graded


class Neighbours(OfLoss):
    """``loss`` without labels: ``Neighbours(loss, inputs)(embeddings, rows)``, where ``rows`` (M,)
    say which of ``inputs`` (n, dim) each embedding is of.

    ``loss`` is any that takes an affinity: those of TALR, MIHash, FastAP and of pairs; NDCG alone
    tells grades apart. The grades of a batch are ``neighbour_grades`` of its inputs at the
    ``neighbour_thresholds`` of all of them. To train on it, let the row numbers be the labels:
    ``rb.train(examples=Examples(inputs, np.arange(n)), loss=Neighbours(loss, inputs))``.
    For neighbours by cosine give ``inputs`` of length 1.

    >>> from rankbits.losses import TieAwareNDCG
    >>> inputs = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> loss = Neighbours(TieAwareNDCG(form="exact"), inputs, shares=(0.5,), grades=(1,))
    >>> near, far = torch.tensor([[9.0], [9.0], [-9.0]]), torch.tensor([[9.0], [-9.0], [9.0]])
    >>> bool(loss(near, torch.tensor([0, 1, 2])) < loss(far, torch.tensor([0, 1, 2])))
    True
    """

    inputs: torch.Tensor
    thresholds: torch.Tensor

    def __init__(
        self,
        loss: torch.nn.Module,
        inputs: Any,
        shares: Sequence[float] = SHARES,
        grades: Sequence[int] = GRADES,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        held = _rows("inputs", inputs)
        if len(shares) != len(grades):
            _check.refuse(
                f"shares and grades must be as many; got {len(shares)} and {len(grades)}."
            )
        self.loss, self.grades = loss, tuple(grades)
        # data, not parameters: no checkpoint needs another copy
        self.register_buffer("inputs", held, persistent=False)
        limits = neighbour_thresholds(held, shares, seed=seed)
        self.register_buffer("thresholds", limits, persistent=False)

    def forward(
        self, embeddings: torch.Tensor, rows: Any, *, database_labels: Any = None, **options: Any
    ) -> torch.Tensor:
        """``database_labels`` with a ``database`` are the rows of its embeddings."""
        ours = self._inputs("rows", rows, len(embeddings))
        theirs = ours
        if "database" in options:
            theirs = self._inputs("database_labels", database_labels, len(options["database"]))
        affinity = neighbour_grades(ours, theirs, self.thresholds, self.grades)
        return self.loss(embeddings, None, affinity=affinity.to(embeddings.device), **options)

    def _inputs(self, name: str, rows: Any, wanted: int) -> torch.Tensor:
        numbers = torch.as_tensor(rows if rows is not None else [], device=self.inputs.device)
        whole = numbers.dtype != torch.bool and not numbers.is_floating_point()
        if numbers.shape != (wanted,) or (wanted and not whole):
            _check.refuse(f"{name} must be the row number of each of {wanted:,} embeddings.")
        if wanted and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self.inputs):
            _check.refuse(f"{name} must lie in 0 to {len(self.inputs) - 1:,}.")
        return self.inputs[numbers.long()]


def _squared_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(M, N) in float64: rows far from the origin lose nothing to the difference of lengths."""
    x, y = x.double(), y.double()
    lengths = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return (lengths - 2 * (x @ y.T)).clamp_(min=0)


def _rows(name: str, value: Any) -> torch.Tensor:
    """Rows of finite floats, without a graph; what is no tensor is copied as float32."""
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(_check.matrix(name, value), dtype=torch.float32)
    rows = rows_of_floats(name, value.detach())
    _check.finite(name, rows.cpu().numpy())
    return rows
