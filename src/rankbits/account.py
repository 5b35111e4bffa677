"""Measure without labels what codes lose of their embeddings, and what other sizes would keep."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rankbits import _check, metrics
from rankbits.kernels import order_rows, question_topk
from rankbits.quantizers import Projection, Quantizer, Reconstruction, rows
from rankbits.types import Codes, Questions, pack

QUERIES, DATABASE = 500, 50_000
PLACES = (1, 10, 100)
LISTED = 20  # codes that are decoded for each neighbour
RESCORED = 10  # candidates that are fetched for each neighbour, when floats re-score them
NEAREST = 10  # neighbours that a curve searches for
CURVE_QUERIES, FITTED = 200, 2000  # queries and fitted rows of a curve
LEAST_ROWS = 400  # of which a curve can be measured
LINES = {
    "bits": "by bits (--method pca)",
    "floats": "by float questions (--method reconstruct)",
    "bits_rescored": "by bits, then re-scored by floats",
    "floats_rescored": "by float questions, then re-scored",
}


@dataclass(frozen=True)
class Account:
    """What codes lose of their embeddings.

    ``dtype`` and ``itemsize``: of the embeddings' numbers, and their bytes.
    ``error``: mean of (y - sgn y)^2, outputs scaled to the sphere of the codes; for a
    ``Reconstruction`` the squared distance from the decoded codes. ``balance``: mean distance of a
    bit's share of ones from a half (0 is best). ``constant``: bits that never change.
    ``distinct``: distinct codes as a share of the rows. ``recall[k]``: share of the k nearest by
    cosine among the k nearest by Hamming distance, ties averaged; ``rescored[k]``: the same when
    10 k are fetched and re-scored by the floats; ``signs[k]``: the same for the embeddings' own
    signs; ``asked[k]``: for queries that keep their floats (``quantizer.ask``).

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
        for k, recall in self.recall.items():
            lines.append(
                f"  top {k:<4} {recall:8.1%}    {self.asked[k]:8.1%}"
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
    value = rows.check_embeddings("embeddings", embeddings)
    drawn = rows.sample(value, QUERIES + DATABASE, seed)[0].float().cpu()
    order = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed))
    count = min(QUERIES, max(1, len(drawn) // 4))
    query, items = order[:count].numpy(), order[count:].numpy()
    outputs = quantizer.transform(drawn)
    scaled = outputs * (
        outputs.shape[1] ** 0.5 / outputs.norm(dim=1, keepdim=True).clamp(min=1e-30)
    )
    codes = pack(outputs)
    error = float(((scaled.abs() - 1) ** 2).mean())
    if isinstance(quantizer, Reconstruction):
        decoded = torch.from_numpy(quantizer.decode(codes))
        error = float(
            (torch.nn.functional.normalize(drawn, dim=1) - decoded).square().sum(1).mean()
        )
    ones = (outputs > 0).float().mean(dim=0)
    nearest = _find_nearest(drawn[query], drawn[items], max(PLACES))
    plain = pack(drawn)
    by_floats = _ask_nearest(quantizer.ask(drawn[query]), codes[items], max(PLACES))
    shares: tuple[dict[int, float], ...] = ({}, {}, {}, {})
    recall, rescored, signs, asked = shares
    for k in PLACES:
        if k > len(items):
            continue
        relevance = np.zeros((len(query), len(items)), np.uint8)
        np.put_along_axis(relevance, nearest[:, :k], 1, axis=1)
        ranking = metrics.rank_codes(codes[query], codes[items], relevance=relevance)
        by_signs = metrics.rank_codes(plain[query], plain[items], relevance=relevance)
        recall[k] = float(metrics.recall_at(ranking, k).mean())
        rescored[k] = float(metrics.recall_at(ranking, RESCORED * k).mean())
        signs[k] = float(metrics.recall_at(by_signs, k).mean())
        asked[k] = float(np.take_along_axis(relevance, by_floats[:, :k], 1).sum() / k / len(query))
    return Account(
        rows=len(drawn), bits=codes.bits, dim=drawn.shape[1], queries=len(query),
        error=error,
        balance=float((ones - 0.5).abs().mean()),
        constant=int(((ones == 0) | (ones == 1)).sum()),
        distinct=len(np.unique(codes.packed, axis=0)) / max(1, len(codes)),
        recall=recall, rescored=rescored, signs=signs, asked=asked,
        dtype=str(value.dtype).removeprefix("torch."), itemsize=value.dtype.itemsize,
    )  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Shares of the 10 nearest items by cosine that are among the 10 nearest by codes.

    ``kept[bytes]`` has "bits": by Hamming distance of a ``Projection``; "floats": by float
    questions to a ``Reconstruction``; and each with "_rescored": where 100 are fetched and put in
    order by stored floats. Both are fitted to ``fitted`` rows; ``queries`` other rows search among
    ``items`` others.

    >>> shares = {"bits": 0.5, "floats": 0.75, "bits_rescored": 0.9, "floats_rescored": 1.0}
    >>> print(Curve(2000, 2000, 200, {8: shares}))  # doctest: +ELLIPSIS
    what bytes keep of the 10 nearest (fitted to 2,000 rows; 200 queries among 2,000 others)
      bytes                                           8
      by bits (--method pca)                      50.0%
    ...
    """

    fitted: int
    items: int
    queries: int
    kept: dict[int, dict[str, float]]

    def __str__(self) -> str:
        width = max(map(len, LINES.values()))
        lines = [
            f"what bytes keep of the {NEAREST} nearest (fitted to {self.fitted:,} rows; "
            f"{self.queries:,} queries among {self.items:,} others)",
            f"  {'bytes':{width}}" + "".join(f"{size:8}" for size in self.kept),
        ]
        for name, title in LINES.items():
            shares = "".join(f"{share[name]:8.1%}" for share in self.kept.values())
            lines.append(f"  {title:{width}}{shares}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_sizes(dim: int) -> list[int]:
    """Choose sizes in bytes: powers of two, from 1 bit for every 6 dimensions to 1 for each.

    >>> choose_sizes(384), choose_sizes(64)
    ([8, 16, 32], [2, 4, 8])
    """
    powers = (1 << power for power in range(16))
    return [size for size in powers if dim <= 48 * size and 8 * size <= dim] or [1]


def measure_bytes(embeddings: Any, sizes: Sequence[int] | None = None, *, seed: int = 0) -> Curve:
    """Measure on a sample of the embeddings which share codes of each size keep -> ``Curve``.

    At most 2,000 rows are fitted, and 200 queries search among 2,000 others: larger databases keep
    less, and codes fitted to more rows somewhat more.

    >>> x = torch.randn(800, 16, generator=torch.Generator().manual_seed(0))
    >>> curve = measure_bytes(x, [1, 4])
    >>> curve.fitted, curve.items, curve.kept[4]["floats"] > curve.kept[1]["floats"]
    (350, 350, True)
    """
    value = rows.check_embeddings("embeddings", embeddings)
    if len(value) < LEAST_ROWS:
        _check.refuse(f"A curve needs at least {LEAST_ROWS} rows; got {len(value):,}.")
    drawn = rows.sample(value, CURVE_QUERIES + 2 * FITTED, seed)[0].float().cpu()
    drawn = drawn[torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed))]
    count = min(CURVE_QUERIES, len(drawn) // 8)
    half = (len(drawn) - count) // 2
    queries, fitted, items = drawn[:count], drawn[count : count + half], drawn[count + half :]
    nearest = _find_nearest(queries, items, NEAREST)
    kept = {}
    for size in sizes or choose_sizes(value.shape[1]):
        bits = 8 * _check.whole("sizes", size, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit before this has warned about these rows
            projection = Projection(bits, seed=seed).fit(fitted)
            rebuilt = Reconstruction(bits, rounds=6, tries=1, seed=seed).fit(fitted)
        kept[size] = _measure_bits(projection, queries, items, nearest)
        kept[size] |= _measure_floats(rebuilt, queries, items, nearest)
    return Curve(half, len(items), count, kept)


def _measure_bits(
    quantizer: Quantizer, queries: torch.Tensor, items: torch.Tensor, nearest: np.ndarray
) -> dict[str, float]:
    relevance = np.zeros((len(queries), len(items)), np.uint8)
    np.put_along_axis(relevance, nearest, 1, axis=1)
    codes = quantizer.encode(queries), quantizer.encode(items)
    ranking = metrics.rank_codes(*codes, relevance=relevance)
    return {
        "bits": float(metrics.recall_at(ranking, NEAREST).mean()),
        "bits_rescored": float(metrics.recall_at(ranking, RESCORED * NEAREST).mean()),
    }


def _measure_floats(
    quantizer: Quantizer, queries: torch.Tensor, items: torch.Tensor, nearest: np.ndarray
) -> dict[str, float]:
    results = _ask_nearest(quantizer.ask(queries), quantizer.encode(items), RESCORED * NEAREST)
    hits = (nearest[:, :, None] == results[:, None]).cumsum(axis=2)
    return {
        "floats": float(hits[:, :, NEAREST - 1].mean()),
        "floats_rescored": float(hits[:, :, -1].mean()),
    }


def _ask_nearest(questions: Questions, codes: Codes, most: int) -> np.ndarray:
    """Find the rows (Q, most) of the codes nearest by questions, nearest first."""
    if questions.decoder is None:
        return question_topk(questions, codes, most).ids
    listed = question_topk(questions, codes, LISTED * most).ids
    order = np.argsort(order_rows(questions, codes, listed), axis=1, kind="stable")
    return np.take_along_axis(listed, order[:, :most], 1)


def _find_nearest(queries: torch.Tensor, items: torch.Tensor, most: int) -> np.ndarray:
    """Find the rows (Q, most) of the items nearest by cosine, nearest first."""
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (queries, items)]
    parts = [
        (part @ unit[1].T).topk(min(most, len(items)), dim=1).indices for part in unit[0].split(64)
    ]
    return torch.cat(parts).numpy()
