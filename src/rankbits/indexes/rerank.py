"""Rerank: search the codes for a shortlist, and order it by stored embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes.checks import parse_distinct_ids
from rankbits.indexes.embeddings import CHUNK, Embeddings
from rankbits.indexes.ids import Column
from rankbits.indexes.index import Index
from rankbits.indexes.shortlist import order_by_distance
from rankbits.quantizers import Quantizer
from rankbits.types import Codes, Questions, Results, pack

DISTANCES = ("euclidean", "inner")


class Rerank:
    """Search codes for a shortlist, then order it by the embeddings the codes were made of.

    ``embeddings`` (n, dim) are floats or int8: an array, a .npy file or a file that
    ``quantize_int8`` wrote. Files are mapped, and only the rows of shortlists are read. Row i is
    the embedding of id i, or of ``ids[i]``. ``quantizer`` makes the codes of queries; without one
    they are the signs, unless ``search`` is given codes. ``distance="euclidean"`` is the squared
    distance of rows scaled to length 1, ``"inner"`` the negated inner product of rows as they are.

    >>> from rankbits import HammingIndex
    >>> rows = np.array([[1.0, 0.1], [1.0, 2.0], [-1.0, 1.0]])
    >>> rerank = Rerank(HammingIndex(bits=2).add(pack(rows)), rows)
    >>> results = rerank.search(np.array([[2.0, 2.0]]), k=2)
    >>> results.ids, results.distances.round(3)
    (array([[1, 0]]), array([[0.103, 0.452]], dtype=float32))
    """

    def __init__(
        self,
        index: Index,
        embeddings: Any,
        quantizer: Quantizer | None = None,
        *,
        ids: Any = None,
        distance: str = "euclidean",
    ) -> None:
        if not isinstance(index, Index):
            _check.refuse(f"Rerank takes an index of codes; got {type(index).__name__}.")
        self.index, self.quantizer = index, quantizer
        self.distance = _check.choice("distance", distance, DISTANCES)
        self.embeddings = (
            embeddings if isinstance(embeddings, Embeddings) else Embeddings(embeddings)
        )
        if ids is None:
            self._ids = Column(None, 0, self.embeddings.count)
        else:
            self._ids = Column(parse_distinct_ids(ids, self.embeddings.count, "embeddings").copy())
        if quantizer is not None:
            fitted = getattr(quantizer, "bits_", None)
            _check.same_bits(int(fitted or quantizer.bits or 0), index.bits)

    def search(
        self,
        queries: Any,
        k: int,
        *,
        factor: int = 10,
        shortlist: int | None = None,
        codes: Codes | Questions | None = None,
        ask: str | None = None,
        among: Any = None,
    ) -> Results:
        """The k nearest of a shortlist, (Q, min(k, candidates)): ids, and distances as float32.

        The shortlist holds the ``factor`` x k nearest, or ``shortlist`` of them (at least k), by
        Hamming distance (``ask="codes"``) or by float questions (``"questions"``); by default as
        the quantizer prefers. Equal distances keep the order of the shortlist. ``codes``: the codes
        or questions of the queries, if you have them already.
        """
        k = _check.cutoff(k)
        wide = k * _check.whole("factor", factor, 1)
        if shortlist is not None:
            wide = max(k, _check.whole("shortlist", shortlist, 1))
        rows = _check.finite("queries", _check.matrix("queries", queries))
        if rows.shape[1] != self.embeddings.dim:
            _check.refuse(
                f"queries must have the dimension of the embeddings, {self.embeddings.dim}; "
                f"got {rows.shape[1]}."
            )
        floats = rows.astype(np.float32)
        if codes is None:
            codes = self._encode(floats, ask)
        _check.same_length("codes", len(codes), "queries", len(floats))
        near = self.index.search(codes, wide, among=among)
        return self._order(floats, near.ids, k)

    def _encode(self, queries: np.ndarray, ask: str | None) -> Codes | Questions:
        preferred = "codes" if self.quantizer is None else self.quantizer.asks_with
        by_floats = _check.choice("ask", ask or preferred, ("codes", "questions")) == "questions"
        if self.quantizer is not None:
            return self.quantizer.ask(queries) if by_floats else self.quantizer.encode(queries)
        if queries.shape[1] != self.index.bits:
            _check.refuse(
                f"Queries of dimension {queries.shape[1]} do not make {self.index.bits} bits by "
                "their signs: give Rerank the quantizer that made the codes, or search the codes."
            )
        return Questions(queries) if by_floats else pack(queries)

    def _order(self, queries: np.ndarray, ids: np.ndarray, k: int) -> Results:
        """The k nearest of the shortlists ``ids`` (Q, S) by the stored embeddings."""
        rows = self._ids.rows_of(ids.reshape(-1)).reshape(ids.shape)
        if (rows < 0).any():
            unknown = ids[rows < 0].tolist()[0]
            _check.refuse(f"The index found id {unknown!r}, which has no embedding.")
        if self.distance == "euclidean":
            queries = queries / _measure_lengths(queries)
        step = max(1, CHUNK // max(1, ids.shape[1] * self.embeddings.dim))
        return order_by_distance(ids, k, step, lambda at: self._measure(queries[at], rows[at]))

    def _measure(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(B, S) distances of queries to the embeddings of ``rows``."""
        stored = self.embeddings.floats(rows.reshape(-1))
        inner = np.matmul(stored.reshape(*rows.shape, -1), queries[:, :, None])[:, :, 0]
        if self.distance == "inner":
            far = -inner
        else:
            far = 2 - 2 * inner / _measure_lengths(stored).reshape(rows.shape)
            far = np.maximum(far, 0)
        if not np.isfinite(far).all():
            bad = rows[~np.isfinite(far)][0]
            _check.refuse(f"embeddings must be finite; row {bad} has nan, inf or overflows.")
        return far


def _measure_lengths(rows: np.ndarray) -> np.ndarray:
    """Euclidean lengths (n, 1); a row of zeros, which has no direction, counts as length 1."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    return np.where(lengths > 0, lengths, np.float32(1))
