"""What a method costs: bytes an item, milliseconds a query, seconds of training."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from rankbits.kernels import hamming_topk, words
from rankbits.report.groups import Group
from rankbits.types import Codes

NEAREST, ROUNDS, MOST_QUERIES = 10, 5, 1000


@dataclass(frozen=True)
class Cost:
    """What a method costs; None where a cost is not known.

    ``bytes``: of an item. ``floats``: numbers an item had before. ``milliseconds`` a query:
    the exact nearest ten, the median of five rounds on ``threads`` threads of this machine.
    """

    bytes: int | None
    floats: int | None
    milliseconds: float | None
    threads: int
    seconds: float | None
    steps: int | None


def cost(group: Group, *, measure: bool = True) -> Cost:
    """The cost of a group: the means over its seeds of what is known.

    >>> from rankbits.report import Entry
    >>> from rankbits.types import Report
    >>> cost(Group("a", (Entry("a", "a.json", Report({}, "By hand.", 3, 9, bits=12)),))).bytes
    2
    """
    evidence, known = group.seen, [e.seconds for e in group.entries if e.seconds]
    steps = [
        max((r["step"] for r in e.log if _whole(r.get("step"))), default=0) for e in group.entries
    ]
    searched = evidence.codes if evidence else None
    return Cost(
        bytes=None if group.bits is None else (group.bits + 7) // 8,
        floats=group.first.floats,
        milliseconds=milliseconds(*searched) if measure and searched and all(searched) else None,
        threads=torch.get_num_threads(),
        seconds=float(np.mean(known)) if len(known) == len(group.entries) else None,
        steps=round(float(np.mean(steps))) if all(steps) else None,
    )


def milliseconds(queries: Codes, database: Codes) -> float:
    """Measure an exact search of the nearest ten, milliseconds a query.

    >>> import rankbits as rb
    >>> codes = rb.pack(np.random.default_rng(0).normal(size=(50, 16)))
    >>> 0 < milliseconds(codes, codes) < 1000
    True
    """
    asked, held = queries[:MOST_QUERIES], words(database)
    k = min(NEAREST, len(database))
    hamming_topk(asked, held, k)
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        hamming_topk(asked, held, k)
        rounds.append(time.perf_counter() - begun)
    return 1000 * float(np.median(rounds)) / len(asked)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
