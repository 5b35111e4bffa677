"""The same verbs on many machines, by Ray: shards go out, counts and nearest rows come back.

Rankings are counts, so shards of a database are merged by adding, and top-k lists by a stable sort:
the answers are those of one machine, to the last bit. Workers need rankbits installed.
"""

from rankbits.scale.encoding import encode
from rankbits.scale.judging import evaluate
from rankbits.scale.searching import search

__all__ = ["encode", "evaluate", "search"]
