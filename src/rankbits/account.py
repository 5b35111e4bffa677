"""What the bits lose: embeddings compared with their codes, without labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rankbits import metrics
from rankbits.kernels import order_rows, question_topk
from rankbits.quantizers import Quantizer, Reconstruction, rows
from rankbits.types import Codes, Questions, pack

QUERIES, DATABASE = 500, 50_000
PLACES = (1, 10, 100)
LISTED = 20  # codes decoded for each neighbour wanted
RESCORED = 10  # candidates fetched for each neighbour wanted, when floats re-score them


@dataclass(frozen=True)
class Account:
    """What was lost between embeddings and codes.

    ``dtype`` and ``itemsize``: of the embeddings' numbers, and their bytes.
    ``error``: mean of (y - sgn y)^2, outputs scaled to the sphere of the codes; of a
    ``Reconstruction`` the squared distance from what its codes stand for. ``balance``: mean
    distance of a bit's share of ones from a half (0 is best). ``constant``: bits that never change.
    ``distinct``: distinct codes as a share of the rows. ``recall[k]``: share of the k nearest by
    cosine among the k nearest by Hamming distance, ties averaged; ``rescored[k]``: the same when
    10 k are fetched and re-scored by the floats; ``signs[k]``: of the embeddings' own signs;
    ``asked[k]``: of the codes, by queries that keep their floats (``quantizer.ask``).

    >>> print(Account(9, 8, 32, 3, 0.2, 0.1, 0, 1.0, {}, {}, {}, {}))  # doctest: +ELLIPSIS
    32 floats to 8 bits: 128 times smaller
    quantization error  0.2000...
    """

    rows: int
    bits: int
    dim: int
    queries: int
    error: float
    balance: float
    constant: int
    distinct: float
    recall: dict[int, float]
    rescored: dict[int, float]
    signs: dict[int, float]
    asked: dict[int, float]
    dtype: str = "float32"
    itemsize: int = 4

    def __str__(self) -> str:
        numbers = "floats" if self.dtype == "float32" else f"{self.dtype} numbers"
        smaller = 8 * self.itemsize * self.dim / self.bits
        lines = [
            f"{self.dim} {numbers} to {self.bits} bits: {smaller:.0f} times smaller",
            f"quantization error  {self.error:.4f}",
            f"bit balance         {self.balance:.4f} from a half on average"
            + (f", {self.constant} bits never change" if self.constant else ""),
            f"distinct codes      {self.distinct:.1%} of {self.rows:,} rows",
            f"neighbours kept ({self.queries:,} queries among {self.rows - self.queries:,} rows)",
            f"          {self.bits:4d} bits    by float questions    signs of {self.dim} floats"
            "    re-scored by floats",
        ]
        for k, kept in self.recall.items():
            lines.append(
                f"  top {k:<4} {kept:8.1%}    {self.asked[k]:8.1%}"
                f"              {self.signs[k]:8.1%}"
                f"                {self.rescored[k]:8.1%} (of {RESCORED * k:,} fetched)"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def account(quantizer: Quantizer, embeddings: Any, *, seed: int = 0) -> Account:
    """Measure on a sample of the embeddings what ``quantizer`` loses of them -> ``Account``.

    >>> from rankbits.quantizers import Projection
    >>> x = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    >>> account(Projection(64).fit(x), x).recall[10] > account(Projection(8).fit(x), x).recall[10]
    True
    """
    value = rows.embeddings("embeddings", embeddings)
    drawn = rows.sample(value, QUERIES + DATABASE, seed)[0].float().cpu()
    order = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed))
    asked = min(QUERIES, max(1, len(drawn) // 4))
    query, items = order[:asked].numpy(), order[asked:].numpy()
    outputs = quantizer.transform(drawn)
    scaled = outputs * (
        outputs.shape[1] ** 0.5 / outputs.norm(dim=1, keepdim=True).clamp(min=1e-30)
    )
    codes = pack(outputs)
    error = float(((scaled.abs() - 1) ** 2).mean())
    if isinstance(quantizer, Reconstruction):
        away = torch.nn.functional.normalize(drawn, dim=1) - torch.from_numpy(
            quantizer.decode(codes)
        )
        error = float(away.square().sum(1).mean())
    ones = (outputs > 0).float().mean(dim=0)
    nearest = _find_nearest(drawn[query], drawn[items], max(PLACES))
    plain = pack(drawn)
    by_floats = _ask_nearest(quantizer.ask(drawn[query]), codes[items], max(PLACES))
    kept: list[dict[int, float]] = [{}, {}, {}, {}]
    for k in PLACES:
        if k > len(items):
            continue
        relevance = np.zeros((len(query), len(items)), np.uint8)
        np.put_along_axis(relevance, nearest[:, :k], 1, axis=1)
        ranking = metrics.rank_codes(codes[query], codes[items], relevance=relevance)
        by_signs = metrics.rank_codes(plain[query], plain[items], relevance=relevance)
        kept[0][k] = float(metrics.recall_at(ranking, k).mean())
        kept[1][k] = float(metrics.recall_at(ranking, RESCORED * k).mean())
        kept[2][k] = float(metrics.recall_at(by_signs, k).mean())
        kept[3][k] = float(
            np.take_along_axis(relevance, by_floats[:, :k], 1).sum() / k / len(query)
        )
    return Account(
        rows=len(drawn), bits=codes.bits, dim=drawn.shape[1], queries=len(query),
        error=error,
        balance=float((ones - 0.5).abs().mean()),
        constant=int(((ones == 0) | (ones == 1)).sum()),
        distinct=len(np.unique(codes.packed, axis=0)) / max(1, len(codes)),
        recall=kept[0], rescored=kept[1], signs=kept[2], asked=kept[3],
        dtype=str(value.dtype).removeprefix("torch."), itemsize=value.dtype.itemsize,
    )  # fmt: skip


def _ask_nearest(questions: Questions, codes: Codes, most: int) -> np.ndarray:
    """(Q, most) rows of the nearest codes by questions, nearest first."""
    if questions.decoder is None:
        return question_topk(questions, codes, most).ids
    listed = question_topk(questions, codes, LISTED * most).ids
    order = np.argsort(order_rows(questions, codes, listed), axis=1, kind="stable")
    return np.take_along_axis(listed, order[:, :most], 1)


def _find_nearest(queries: torch.Tensor, items: torch.Tensor, most: int) -> np.ndarray:
    """(Q, most) rows of the nearest items by cosine, nearest first."""
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (queries, items)]
    parts = [
        (part @ unit[1].T).topk(min(most, len(items)), dim=1).indices for part in unit[0].split(64)
    ]
    return torch.cat(parts).numpy()
