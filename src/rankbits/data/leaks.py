"""Leaks: one image in two splits that must not meet, found by its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbits.data.examples import fingerprints

if TYPE_CHECKING:
    from rankbits.data.protocols import Protocol

WORDS = {
    "train": "a training image",
    "queries": "one of the queries",
    "database": "an image of the database",
}


def check(protocol: Protocol) -> list[str]:
    """Sentences about leaks: images of one split whose bytes are also in another.

    No row is in two splits that must not meet (``Protocol`` refuses that), but a publisher may have
    one image twice; then it is counted here, and is no error.

    >>> from rankbits.data.examples import Examples
    >>> from rankbits.data.protocols import Protocol
    >>> examples = Examples(np.array([[1.0], [1.0], [2.0]]), [0, 0, 1])
    >>> check(Protocol("mine", examples, [2], [0], [1, 2]))
    ['1 of 1 queries has the same bytes as an image of the database.']
    """
    prints = fingerprints(protocol.examples.inputs)
    pairs = [("queries", "train")]
    if not protocol.exclude_self:
        pairs.insert(0, ("queries", "database"))
    if protocol.validation is not None:
        pairs += [("validation", "train"), ("validation", "queries")]
    found = []
    if protocol.exclude_self:
        _, times = np.unique(prints[protocol.queries], return_counts=True)
        copies = int(times[times > 1].sum())
        found += _sentence(copies, len(protocol.queries), "queries", "another of them")
    for one, other in pairs:
        asked = prints[getattr(protocol, one)]
        copies = int(np.isin(asked, prints[getattr(protocol, other)]).sum())
        found += _sentence(copies, len(asked), one, WORDS[other])
    return found


def _sentence(copies: int, rows: int, split: str, where: str) -> list[str]:
    if not copies:
        return []
    have = "has" if copies == 1 else "have"
    return [f"{copies:,} of {rows:,} {split} {have} the same bytes as {where}."]
