"""Encode, search and evaluate on many machines, by Ray.

Each worker handles shards of the database. Rankings are counts, which are added, and lists of
nearest rows are merged by a stable sort, so results are those of one machine to the last bit.
Workers need rankbits installed.
"""

from rankbits.scale.encoding import encode
from rankbits.scale.judging import evaluate
from rankbits.scale.searching import search

__all__ = ["encode", "evaluate", "search"]
