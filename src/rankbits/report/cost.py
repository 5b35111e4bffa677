"""Measure what a method costs: bytes per item, milliseconds per query, seconds of training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rankbits.kernels import hamming_topk, words
from rankbits.report.groups import Group
from rankbits.types import Codes

NEAREST, ROUNDS, MOST_QUERIES = 10, 5, 1000


@dataclass(frozen=True)
class Cost:
    """What a method costs; None where a cost is not known.

    ``bytes``: of an item. ``floats``: the numbers that an item had before. ``milliseconds``: of an
    exact search for the nearest ten, per query, the median of five rounds on ``threads`` threads of
    this machine. ``seconds`` and ``steps``: of training.
    """

    bytes: int | None
    floats: int | None
    milliseconds: float | None
    threads: int
    seconds: float | None
    steps: int | None


def measure_cost(group: Group, *, measure: bool = True) -> Cost:
    """Measure what a group costs, as means over its seeds; ``measure``: time a search.

    >>> from rankbits.report import Entry
    >>> from rankbits.types import Report
    >>> entry = Entry("a", "a.json", Report({}, "By hand.", 3, 9, bits=12))
    >>> measure_cost(Group("a", (entry,))).bytes
    2
    """
    seconds = [e.seconds for e in group.entries if e.seconds]
    steps = [max((r["step"] for r in e.log if _has_step(r)), default=0) for e in group.entries]
    codes = group.evidence.codes if group.evidence else None
    return Cost(
        bytes=None if group.bits is None else (group.bits + 7) // 8,
        floats=group.first.floats,
        milliseconds=time_search(*codes) if measure and codes and all(codes) else None,
        threads=torch.get_num_threads(),
        seconds=float(np.mean(seconds)) if len(seconds) == len(group.entries) else None,
        steps=round(float(np.mean(steps))) if all(steps) else None,
    )


def time_search(queries: Codes, database: Codes) -> float:
    """Time an exact search for the nearest ten -> milliseconds per query.

    >>> import rankbits as rb
    >>> codes = rb.pack(np.random.default_rng(0).normal(size=(50, 16)))
    >>> 0 < time_search(codes, codes) < 1000
    True
    """
    queries, stored = queries[:MOST_QUERIES], words(database)
    k = min(NEAREST, len(database))
    hamming_topk(queries, stored, k)  # the first call compiles
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        hamming_topk(queries, stored, k)
        rounds.append(time.perf_counter() - begin)
    return 1000 * float(np.median(rounds)) / len(queries)


def _has_step(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("step"), int) and not isinstance(row["step"], bool)
