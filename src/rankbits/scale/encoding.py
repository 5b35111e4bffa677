"""Encode embeddings on many workers."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.arrays import read_array
from rankbits.quantizers import Quantizer
from rankbits.scale.cluster import cut_spans, join_cluster, run_parts
from rankbits.types import Codes

ROWS = 1 << 16


@lru_cache(maxsize=1)
def _read_file(path: str, changed: int) -> np.ndarray:
    """The embeddings of a file, which a worker keeps from one part to the next."""
    return read_array(path)


def _encode_file(quantizer: Quantizer, path: str, part: slice) -> np.ndarray:
    rows = _read_file(path, os.stat(path).st_mtime_ns)
    return quantizer.encode(rows[part]).packed


def _encode_rows(quantizer: Quantizer, rows: np.ndarray) -> np.ndarray:
    return quantizer.encode(np.array(rows)).packed


def encode(
    quantizer: Quantizer, embeddings: Any, address: str = "local", *, rows: int = ROWS
) -> Codes:
    """``quantizer.encode(embeddings)`` by the workers of a Ray cluster -> ``Codes``.

    ``embeddings`` is (n, dim), or one or several paths that every worker can read; the rows of a
    file do not travel. ``rows`` is how many rows one part has.
    """
    paths = [embeddings] if isinstance(embeddings, (str, os.PathLike)) else embeddings
    files = isinstance(paths, (list, tuple)) and all(
        isinstance(p, (str, os.PathLike)) for p in paths
    )
    if files:
        names = [os.path.abspath(p) for p in paths]
        jobs: list[tuple] = [(n, s) for n in names for s in cut_spans(len(read_array(n)), rows)]
    else:
        value = _check.matrix("embeddings", embeddings)
        jobs = [(value[s],) for s in cut_spans(len(value), rows)]
    with join_cluster(address) as ray:
        shared = ray.put(quantizer)
        parts = [(shared, *job) for job in jobs]
        function = _encode_file if files else _encode_rows
        blocks = list(run_parts(ray, function, parts, "encode"))
    width = (quantizer.bits_ + 7) // 8
    packed = np.concatenate(blocks) if blocks else np.zeros((0, width), np.uint8)
    return Codes(packed, quantizer.bits_, quantizer.fingerprint)
