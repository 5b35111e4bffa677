"""GraphIndex: a file of codes with a graph that finds the nearest approximately."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.indexes import scan
from rankbits.indexes.durable import FileIndex
from rankbits.indexes.engines import nodes
from rankbits.indexes.engines.nodes import Nodes
from rankbits.indexes.engines.opening import import_package
from rankbits.indexes.ids import Column
from rankbits.indexes.segments import Snapshot
from rankbits.types import Codes, Results

SHORT = 10_000  # fewer rows than this get no graph and are scanned
SHARE = 8  # the graph is updated when more than one row in so many differs from it
SAMPLE, SAMPLED_K = 200, 10  # queries by which recall is measured, and how many each finds
SPARE = 64  # nodes, and rows of a node, that are fetched beyond k


@dataclass(frozen=True, eq=False)
class GraphView:
    """What a search sees: the rows in the graph (``nodes``) that are not ``gone``, then the rows
    added since, which are the last of ``state``."""

    state: Snapshot
    nodes: Nodes
    ids: Column
    gone: np.ndarray

    @property
    def kept(self) -> int:
        """How many rows of the graph are not removed."""
        return len(self.gone) - int(np.count_nonzero(self.gone))

    @property
    def stale(self) -> int:
        """How many rows are missing in the graph or removed since."""
        return self.state.count + len(self.gone) - 2 * self.kept


class GraphIndex(FileIndex):
    """A ``FileIndex`` with a graph (usearch) that finds the k nearest approximately.

    Equal codes are one node, so that many ties do not break the graph; a node gives its rows in
    order of insertion. ``recall`` is measured whenever the graph is made or updated: 200 of its own
    codes are searched for, with some bits flipped, and it is the share of their ten nearest that
    the graph finds. ``effort`` is how many nodes a search keeps in view; a higher one finds more
    and takes longer. New rows are scanned until they are an eighth of all, and then put into the
    graph. Searches ``among`` ids, ``within`` a radius or by questions are exact, and so are all
    searches of fewer than 10,000 rows. Codes and ids are in the file; the graph is beside it in
    ``….graph``, and is made again if that is missing or damaged.
    """

    recall: float | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int | None = None,
        *,
        mode: str = "w",
        verify: bool = True,
        effort: int = 128,
    ) -> None:
        self._usearch = import_package("usearch.index", "A graph", "graph")
        self.effort = _check.whole("effort", effort, 1)
        self._view: GraphView | None = None
        super().__init__(path, bits, mode=mode, verify=verify)
        self._graph_path = Path(f"{self.path}.graph")
        with self._writing:
            stored = nodes.load_nodes(self._graph_path, self.bits, self._usearch)
            self._refresh(stored or Nodes.empty(self.bits, self._usearch))

    def __repr__(self) -> str:
        recall = "" if self.recall is None else f", recall {self.recall:.3f}"
        return f"{super().__repr__()[:-1]}{recall})"

    def _refresh(self, old: Nodes) -> None:
        """Update the graph to what the index holds now, and measure its recall."""
        state = self._state
        if state.count < SHORT:
            self._view = None
            return
        codes = state.codes()
        fresh = nodes.update_nodes(old, codes, self.effort)
        column, none = Column(state.ids()), np.zeros(state.count, bool)
        self._view = GraphView(state, fresh, column, none)
        self.recall = self._measure(codes)
        if self._mode == "w" and fresh.changed:
            nodes.save_nodes(self._graph_path, fresh)

    def _measure(self, codes: Codes) -> float:
        """The share of the nearest codes that the graph finds for queries near stored codes."""
        rng = np.random.default_rng(0)
        rows = rng.integers(0, len(codes), SAMPLE)
        flips = rng.random((SAMPLE, self.bits)) < 1 / 16
        queries = Codes(codes.packed[rows] ^ np.packbits(flips, axis=1), self.bits)
        true = super()._search_codes(queries, SAMPLED_K, None).distances
        near = self._search_codes(queries, SAMPLED_K, None).distances
        return float((near <= true[:, -1:]).mean())

    def _put(self, state: Snapshot, verb: str, ids: Column, codes: Codes | None) -> None:
        super()._put(state, verb, ids, codes)
        view = self._view
        if view is None:
            if self._state.count >= SHORT:
                self._refresh(Nodes.empty(self.bits, self._usearch))
            return
        rows = view.ids.rows_of(ids.all())
        gone = view.gone.copy()
        gone[rows[rows >= 0]] = True
        self._view = replace(view, state=self._state, gone=gone)
        if SHARE * self._view.stale > max(self._state.count, SHORT):
            self._refresh(view.nodes)

    def _search_codes(self, queries: Codes, k: int, among: Any) -> Results:
        view = self._view
        if view is None or among is not None or not len(queries):
            return super()._search_codes(queries, k, among)
        self.snapshot()  # refuses if the index is closed
        parts = [self._search_graph(view, queries, min(k, view.kept))]
        if view.state.count > view.kept:
            mask = np.arange(view.state.count) >= view.kept
            allowed = scan.list_candidates(view.state, mask, None, len(queries))
            parts.append(scan.topk(view.state, queries, k, allowed))
        return scan.merge_nearest([(part.ids, part.distances) for part in parts], k)

    def _search_graph(self, view: GraphView, queries: Codes, k: int) -> Results:
        """The k nearest of the rows in the graph; by a scan for queries that find too few."""
        rows, distances = view.nodes.find(queries, k, SPARE, view.gone)
        short = np.flatnonzero(rows[:, -1] < 0) if k else rows[:0, 0]
        row_ids = view.ids.at(np.maximum(rows, 0))
        if len(short):
            mask = np.arange(view.state.count) < view.kept
            allowed = scan.list_candidates(view.state, mask, None, len(short))
            exact = scan.topk(view.state, queries[short], k, allowed)
            row_ids[short], distances[short] = exact.ids, exact.distances
        return Results(row_ids, distances)
