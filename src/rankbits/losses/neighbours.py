"""Learn without labels: pairs are graded by the distance of their inputs.

TALR's LabelMe experiment (Sec. 5.3): of all pairs of the training set the 5, 1, 0.2 and 0.1 %
nearest have affinities 1, 2, 5 and 10. So any loss that takes an affinity can learn to hash
embeddings without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses.histogram import check_rows
from rankbits.losses.protocol import LossWrapper

SHARES = (0.05, 0.01, 0.002, 0.001)
GRADES = (1, 2, 5, 10)
MOST_ROWS = 5000  # rows whose pairs set the thresholds: the size of the paper's training set
CELLS = 1 << 22  # distances in memory at a time


def neighbour_thresholds(
    inputs: Any, shares: Sequence[float] = SHARES, *, rows: int = MOST_ROWS, seed: int = 0
) -> torch.Tensor:
    """Find the squared Euclidean distances within which the nearest ``shares`` of all pairs lie,
    (T,).

    ``inputs`` are (n, dim); of more than ``rows`` of them, only ``rows`` drawn by ``seed`` are
    paired. Of P pairs the round(share P) nearest, at least one, lie within a threshold, with all
    that tie with the last of them.

    >>> neighbour_thresholds([[0.0], [1.0], [3.0], [7.0]], shares=(0.5, 0.2))
    tensor([9., 1.], dtype=torch.float64)
    """
    x = _check_inputs("inputs", inputs)
    if len(x) < 2:
        _check.refuse(f"inputs must have at least 2 rows to be neighbours; got {len(x)}.")
    shares = tuple(_check.number("A share", share) for share in shares)
    if not shares or not all(0 < share <= 1 for share in shares):
        _check.refuse(f"shares must be above 0 and at most 1; got {shares}.")
    most = _check.whole("rows", rows, 2)
    if len(x) > most:
        draw = torch.Generator().manual_seed(_check.whole("seed", seed, 0))
        x = x[torch.randperm(len(x), generator=draw)[:most].to(x.device)]
    parts, step = [], max(1, CELLS // len(x))
    for start in range(0, len(x), step):
        distances = _squared_distances(x[start : start + step], x)
        part_rows = torch.arange(start, start + len(distances), device=x.device)
        later = torch.arange(len(x), device=x.device) > part_rows[:, None]  # each pair once
        parts.append(distances[later].cpu())
    pairs = torch.cat(parts).numpy()
    places = [max(1, round(share * len(pairs))) - 1 for share in shares]
    return torch.from_numpy(np.partition(pairs, places)[places]).to(x.device)


def neighbour_grades(
    queries: Any, database: Any, thresholds: Any, grades: Sequence[int] = GRADES
) -> torch.Tensor:
    """Grade each pair, uint8 (M, N): the highest of ``grades`` whose threshold is not below the
    pair's squared Euclidean distance, 0 where all thresholds are below it.

    >>> neighbour_grades([[0.0]], [[0.0], [1.0], [3.0], [9.0]], [9.0, 1.0], grades=(1, 2))
    tensor([[2, 2, 1, 0]], dtype=torch.uint8)
    """
    x = _check_inputs("queries", queries)
    y = check_rows("database", _check_inputs("database", database), x.shape[1]).to(x.device)
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
        distances = _squared_distances(x[start : start + step], y)
        for grade, limit in sorted(zip(values, limits.tolist(), strict=True)):
            graded[start : start + step][distances <= limit] = grade
    return graded


class Neighbours(LossWrapper):
    """``loss`` without labels: ``Neighbours(loss, inputs)(embeddings, rows)``, where ``rows`` (M,)
    are the rows of ``inputs`` (n, dim) that were embedded.

    ``loss`` is any that takes an affinity: those of TALR, MIHash, FastAP and of pairs; only NDCG
    tells grades apart. The grades of a batch are ``neighbour_grades`` of its inputs at the
    ``neighbour_thresholds`` of all inputs. To train with it, let the row numbers be the labels:
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
        inputs = _check_inputs("inputs", inputs)
        if len(shares) != len(grades):
            _check.refuse(
                f"shares and grades must be as many; got {len(shares)} and {len(grades)}."
            )
        self.loss, self.grades = loss, tuple(grades)
        # a checkpoint needs no copy of the data
        self.register_buffer("inputs", inputs, persistent=False)
        thresholds = neighbour_thresholds(inputs, shares, seed=seed)
        self.register_buffer("thresholds", thresholds, persistent=False)

    def forward(
        self, embeddings: torch.Tensor, rows: Any, *, database_labels: Any = None, **options: Any
    ) -> torch.Tensor:
        """Compute the loss. With a ``database``, ``database_labels`` are the rows of ``inputs``
        that its embeddings come from."""
        queries = database = self._select_inputs("rows", rows, len(embeddings))
        if "database" in options:
            count = len(options["database"])
            database = self._select_inputs("database_labels", database_labels, count)
        affinity = neighbour_grades(queries, database, self.thresholds, self.grades)
        return self.loss(embeddings, None, affinity=affinity.to(embeddings.device), **options)

    def _select_inputs(self, name: str, rows: Any, count: int) -> torch.Tensor:
        numbers = torch.as_tensor(rows if rows is not None else [], device=self.inputs.device)
        whole = numbers.dtype != torch.bool and not numbers.is_floating_point()
        if numbers.shape != (count,) or (count and not whole):
            _check.refuse(f"{name} must be the row number of each of {count:,} embeddings.")
        if count and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self.inputs):
            _check.refuse(f"{name} must lie in 0 to {len(self.inputs) - 1:,}.")
        return self.inputs[numbers.long()]


def _squared_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return (M, N) in float64, because the formula loses digits for rows far from the origin."""
    x, y = x.double(), y.double()
    lengths = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return (lengths - 2 * (x @ y.T)).clamp_(min=0)


def _check_inputs(name: str, value: Any) -> torch.Tensor:
    """Return rows of finite floats, without a graph; anything but a tensor is copied as float32."""
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(_check.matrix(name, value), dtype=torch.float32)
    rows = check_rows(name, value.detach())
    _check.finite(name, rows.cpu().numpy())
    return rows
