"""Export codes and their ids: to faiss, Arrow or plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.hamming import HammingIndex
from rankbits.types import Codes

KINDS = ("flat", "ivf", "hnsw")


def _read_all(source: HammingIndex | Codes) -> tuple[np.ndarray, Codes]:
    """All ids and codes; rows of plain ``Codes`` are numbered from 0."""
    if isinstance(source, Codes):
        return np.arange(len(source)), source
    if not isinstance(source, HammingIndex):
        _check.refuse(f"A HammingIndex or Codes are wanted here; got {type(source).__name__}.")
    state = source.snapshot()
    return state.ids(), state.codes()


def to_numpy(source: HammingIndex | Codes) -> tuple[np.ndarray, np.ndarray]:
    """``(ids, packed)``: ids (n,) in order of insertion, codes uint8 (n, ceil(bits/8)).

    >>> from rankbits import pack
    >>> to_numpy(HammingIndex(4).add(pack([[1, 1, -1, 1]]), ids=["a"]))
    (array(['a'], dtype=object), array([[208]], dtype=uint8))
    """
    ids, codes = _read_all(source)
    return ids, codes.packed


def to_arrow(source: HammingIndex | Codes) -> Any:
    """A ``pyarrow.Table`` of ``id`` (int64 or string) and ``code`` (fixed-size binary).

    The table's metadata has the number of bits under ``bits``. Needs the package pyarrow.
    """
    try:
        import pyarrow
    except ImportError:
        _check.refuse("to_arrow needs pyarrow: pip install 'rankbits[parquet]'.")
    ids, codes = _read_all(source)
    width = codes.packed.shape[1]
    data = pyarrow.py_buffer(np.ascontiguousarray(codes.packed))
    column = pyarrow.Array.from_buffers(pyarrow.binary(width), len(codes), [None, data])
    kind = pyarrow.string() if ids.dtype == object else pyarrow.int64()
    table = pyarrow.table({"id": pyarrow.array(ids, kind), "code": column})
    return table.replace_schema_metadata({"bits": str(codes.bits)})


def to_faiss(source: HammingIndex | Codes, kind: str = "flat", **options: int) -> Any:
    """A faiss binary index with the same codes and the same ids, which must be whole numbers.

    ``"flat"`` is exact; ``"ivf"`` (options ``nlist``, ``nprobe``) and ``"hnsw"`` (``m``, ``ef``)
    are approximate. Bits are padded with zeros to a multiple of 8, which changes no distance:
    search with ``codes.packed``. faiss differs from our indexes in three ways: ``range_search``
    finds what is nearer than the radius, not what is at the radius; where fewer than k are found it
    pads with id -1; equal distances come in any order. Needs the package faiss-cpu.
    """
    kind = _check.choice("kind", kind, KINDS)
    try:
        import faiss
    except ImportError:
        _check.refuse("to_faiss needs the package faiss-cpu: pip install faiss-cpu.")
    allowed = {"flat": (), "ivf": ("nlist", "nprobe"), "hnsw": ("m", "ef")}[kind]
    for name, value in options.items():
        if name not in allowed:
            near = _check.suggest(name, allowed)
            _check.refuse(f"A faiss index of kind '{kind}' has no option '{name}'{near}.")
        _check.whole(name, value, 1)
    ids, codes = _read_all(source)
    if ids.dtype == object:
        _check.refuse("faiss takes whole numbers as ids; this index holds strings.")
    bits = 8 * codes.packed.shape[1]
    index = _make_empty(faiss, kind, bits, len(codes), options)
    packed = np.ascontiguousarray(codes.packed)
    if not index.is_trained:
        index.train(packed)
    if kind == "ivf":  # it keeps ids itself, and range_search fails where a map wraps it
        index.add_with_ids(packed, ids)
        return index
    with_ids = faiss.IndexBinaryIDMap(index)
    with_ids.add_with_ids(packed, ids)
    index.this.disown()
    with_ids.own_fields = True
    return with_ids


def _make_empty(faiss: Any, kind: str, bits: int, rows: int, options: dict[str, int]) -> Any:
    if kind == "flat":
        return faiss.IndexBinaryFlat(bits)
    if kind == "hnsw":
        index = faiss.IndexBinaryHNSW(bits, options.get("m", 32))
        index.hnsw.efSearch = options.get("ef", 64)
        return index
    _check.not_empty("index", rows)
    nlist = min(options.get("nlist", max(1, int(4 * rows**0.5))), rows)
    coarse = faiss.IndexBinaryFlat(bits)
    index = faiss.IndexBinaryIVF(coarse, bits, nlist)
    index.nprobe = min(options.get("nprobe", max(1, nlist // 16)), nlist)
    coarse.this.disown()
    index.own_fields = True
    index.cp.min_points_per_centroid = 1
    return index
