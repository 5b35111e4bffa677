"""Codes and their ids for other libraries: faiss, Arrow, plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.hamming import HammingIndex
from rankbits.types import Codes

KINDS = ("flat", "ivf", "hnsw")


def _held(source: HammingIndex | Codes) -> tuple[np.ndarray, Codes]:
    if isinstance(source, Codes):
        return np.arange(len(source)), source
    if not isinstance(source, HammingIndex):
        _check.refuse(f"A HammingIndex or Codes are wanted here; got {type(source).__name__}.")
    state = source._now()
    return state.ids(), state.codes()


def to_numpy(source: HammingIndex | Codes) -> tuple[np.ndarray, np.ndarray]:
    """``(ids, packed)``: ids (n,) in order of insertion, codes uint8 (n, ceil(bits/8)).

    >>> from rankbits import pack
    >>> to_numpy(HammingIndex(4).add(pack([[1, 1, -1, 1]]), ids=["a"]))
    (array(['a'], dtype=object), array([[208]], dtype=uint8))
    """
    ids, codes = _held(source)
    return ids, codes.packed


def to_arrow(source: HammingIndex | Codes) -> Any:
    """A ``pyarrow.Table`` of ``id`` (int64 or string) and ``code`` (fixed-size binary).

    The number of bits stands in the table's metadata under ``bits``. Needs the package pyarrow.
    """
    try:
        import pyarrow
    except ImportError:
        _check.refuse("to_arrow needs pyarrow: pip install 'rankbits[parquet]'.")
    ids, codes = _held(source)
    width = codes.packed.shape[1]
    data = pyarrow.py_buffer(np.ascontiguousarray(codes.packed))
    column = pyarrow.Array.from_buffers(pyarrow.binary(width), len(codes), [None, data])
    kind = pyarrow.string() if ids.dtype == object else pyarrow.int64()
    table = pyarrow.table({"id": pyarrow.array(ids, kind), "code": column})
    return table.replace_schema_metadata({"bits": str(codes.bits)})


def to_faiss(source: HammingIndex | Codes, kind: str = "flat", **options: int) -> Any:
    """A faiss binary index with the same codes, found under the same (whole-number) ids.

    ``"flat"`` is exact; ``"ivf"`` (options ``nlist``, ``nprobe``) and ``"hnsw"`` (``m``, ``ef``)
    are approximate. Bits are filled up to a multiple of 8 with zeros, which changes no distance:
    search with ``codes.packed``. Three habits of faiss to know: ``range_search`` means nearer than
    the radius, not at most; where it finds fewer than k it pads with id -1; equal distances come in
    any order. Needs the package faiss-cpu.
    """
    kind = _check.choice("kind", kind, KINDS)
    try:
        import faiss
    except ImportError:
        _check.refuse("to_faiss needs the package faiss-cpu: pip install faiss-cpu.")
    known = {"flat": (), "ivf": ("nlist", "nprobe"), "hnsw": ("m", "ef")}[kind]
    for name, value in options.items():
        if name not in known:
            near = _check.nearest(name, known)
            _check.refuse(f"A faiss index of kind '{kind}' has no option '{name}'{near}.")
        _check.whole(name, value, 1)
    ids, codes = _held(source)
    if ids.dtype == object:
        _check.refuse("faiss knows ids that are whole numbers only; this index holds strings.")
    bits = 8 * codes.packed.shape[1]
    made = _empty(faiss, kind, bits, len(codes), options)
    packed = np.ascontiguousarray(codes.packed)
    if not made.is_trained:
        made.train(packed)
    if kind == "ivf":  # faiss's own ids: its range search answers only without a map around it
        made.add_with_ids(packed, ids)
        return made
    mapped = faiss.IndexBinaryIDMap(made)
    mapped.add_with_ids(packed, ids)
    made.this.disown()
    mapped.own_fields = True
    return mapped


def _empty(faiss: Any, kind: str, bits: int, rows: int, options: dict[str, int]) -> Any:
    if kind == "flat":
        return faiss.IndexBinaryFlat(bits)
    if kind == "hnsw":
        made = faiss.IndexBinaryHNSW(bits, options.get("m", 32))
        made.hnsw.efSearch = options.get("ef", 64)
        return made
    _check.not_empty("index", rows)
    nlist = min(options.get("nlist", max(1, int(4 * rows**0.5))), rows)
    coarse = faiss.IndexBinaryFlat(bits)
    made = faiss.IndexBinaryIVF(coarse, bits, nlist)
    made.nprobe = min(options.get("nprobe", max(1, nlist // 16)), nlist)
    coarse.this.disown()
    made.own_fields = True
    made.cp.min_points_per_centroid = 1
    return made
