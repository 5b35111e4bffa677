"""Nodes of a graph: each different code once, with the rows that have it; and their file."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankbits._files import write_whole
from rankbits.kernels import words
from rankbits.kernels.backend import count_threads
from rankbits.types import Codes


@dataclass(frozen=True, eq=False)
class Nodes:
    """Each different code once: node i has ``words[i]`` (N, W), ascending, the key ``keys[i]`` in
    ``graph``, and the rows ``rows[begin[i] : begin[i + 1]]`` in order of insertion. ``slots[key]``
    is the i of a key."""

    graph: Any
    usearch: Any
    bits: int
    words: np.ndarray
    keys: np.ndarray
    begin: np.ndarray
    rows: np.ndarray
    slots: np.ndarray
    lock: threading.Lock
    changed: bool = False

    @staticmethod
    def empty(bits: int, usearch: Any) -> Nodes:
        width = -(-bits // 8) * 8
        graph = usearch.Index(ndim=width, metric=usearch.MetricKind.Hamming, dtype="b1")
        none = np.empty(0, np.int64)
        blank = np.empty((0, -(-bits // 64)), np.uint64)
        return Nodes(
            graph, usearch, bits, blank, none, np.zeros(1, np.int64), none, none, threading.Lock()
        )

    def find(
        self, queries: Codes, k: int, spare: int, gone: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest rows (Q, k) that are not ``gone``, by distance, then by row, and their
        distances; a row is -1 where the graph finds too few. ``spare`` nodes, and rows of a node,
        are fetched beyond k, since some may be gone and others tie."""
        out = np.full((len(queries), k), -1, np.int64)
        far = np.zeros((len(queries), k), np.int32)
        if not k:
            return out, far
        with self.lock:
            wanted = min(len(self.keys), k + spare)
            matches = self.graph.search(queries.packed, wanted, threads=count_threads())
        keys = np.asarray(matches.keys).reshape(len(queries), -1)
        distances = np.asarray(matches.distances).reshape(keys.shape)
        counts = np.atleast_1d(getattr(matches, "counts", keys.shape[1]))
        seen = np.arange(keys.shape[1]) < np.broadcast_to(counts, len(queries))[:, None]
        seen &= keys < len(self.slots)  # a writer may just be adding a node
        owner = np.nonzero(seen)[0]
        slots = self.slots[keys[seen].astype(np.int64)]
        sizes = np.minimum(self.begin[slots + 1] - self.begin[slots], k + spare)
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(self.begin[slots] - ends + sizes, sizes)
        rows, owner = self.rows[places], np.repeat(owner, sizes)
        near = np.repeat(distances[seen].astype(np.int32), sizes)
        good = ~gone[rows]
        rows, owner, near = rows[good], owner[good], near[good]
        order = np.lexsort((rows, near, owner))
        rows, owner, near = rows[order], owner[order], near[order]
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
        first = rank < k
        out[owner[first], rank[first]] = rows[first]
        far[owner[first], rank[first]] = near[first]
        return out, far


def update_nodes(old: Nodes, codes: Codes, effort: int) -> Nodes:
    """The nodes of ``codes``; the graph of ``old`` is changed in place and keeps what stays."""
    laid_out = np.ascontiguousarray(words(codes).words.T)
    everything = np.concatenate([old.words, laid_out])
    order = np.lexsort(everything.T[::-1])  # stable: of equal codes an old node comes first
    new = np.ones(len(order), bool)
    new[1:] = (everything[order[1:]] != everything[order[:-1]]).any(axis=1)
    group = np.cumsum(new) - 1
    is_old = order < len(old.words)
    keys = np.full(group[-1] + 1, -1, np.int64)
    keys[group[is_old]] = old.keys[order[is_old]]
    sizes = np.bincount(group[~is_old], minlength=len(keys))
    first = order[new]
    dropped, added = keys[(keys >= 0) & (sizes == 0)], (keys < 0) & (sizes > 0)
    following = int(old.keys.max(initial=-1)) + 1
    keys[added] = np.arange(following, following + np.count_nonzero(added))
    packed = everything[first[added]].view(np.uint8)[:, : codes.packed.shape[1]]
    with old.lock:
        old.graph.expansion_search = effort
        for key in dropped.tolist():
            old.graph.remove(key)
        if len(packed):
            old.graph.add(keys[added], np.ascontiguousarray(packed), threads=count_threads())
    kept = sizes > 0
    keys, sizes = keys[kept], sizes[kept]
    slots = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    slots[keys] = np.arange(len(keys))
    begin = np.concatenate([[0], np.cumsum(sizes)])
    rows = order[~is_old] - len(old.words)
    changed = bool(len(dropped) or added.any())
    rest = (keys, begin, rows, slots, old.lock, changed)
    return Nodes(old.graph, old.usearch, codes.bits, everything[first[kept]], *rest)


def save_nodes(path: Path, nodes: Nodes) -> None:
    """Write the graph and its codes to ``path``."""
    from safetensors.numpy import save

    tensors = {
        "graph": np.frombuffer(nodes.graph.save(), np.uint8),
        "keys": nodes.keys,
        "words": nodes.words,
    }
    facts = {name: f"{zlib.crc32(tensor.data):08x}" for name, tensor in tensors.items()}
    data = save(tensors, {"bits": str(nodes.bits), **facts})
    write_whole(path, lambda file: file.write(data))


def load_nodes(path: Path, bits: int, usearch: Any) -> Nodes | None:
    """Read what ``save_nodes`` wrote; None where it is missing, damaged or of other codes. The file
    has no rows: ``update_nodes`` finds them."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in ("graph", "keys", "words")}
    except (SafetensorError, OSError):
        return None
    sums = {name: f"{zlib.crc32(tensor.data):08x}" for name, tensor in tensors.items()}
    if {"bits": str(bits), **sums} != facts:
        return None
    empty = Nodes.empty(bits, usearch)
    empty.graph.load(tensors["graph"].tobytes())
    rest = (tensors["words"], tensors["keys"], empty.begin, empty.rows, empty.slots, empty.lock)
    return Nodes(empty.graph, usearch, bits, *rest)
