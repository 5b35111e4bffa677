"""GraphIndex: what a graph finds is held against an exact search, and everything else is exact."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes import HammingIndex
from rankbits.indexes.addresses import open_index

pytest.importorskip("usearch", reason="needs usearch")
from rankbits.indexes.engines import graph


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(graph, "SHORT", 300)


def draw(rng, rows, bits=64, groups=40):
    """Rows around a few codes: many are equal, more tie."""
    centres = np.random.default_rng(7).integers(0, 2, (groups, bits))
    return rb.pack(centres[rng.integers(0, groups, rows)] ^ (rng.random((rows, bits)) < 2 / bits))


def hold_against_exact(index, queries, k=10, least=0.97):
    """Distances are true, no id comes twice, and recall is high."""
    exact = HammingIndex(index.bits).add(index.codes(), index.ids)
    found, true = index.search(queries, k), exact.search(queries, k)
    assert found.ids.shape == true.ids.shape == (len(queries), min(k, len(index)))
    for query, ids, distances in zip(queries.packed, found.ids, found.distances, strict=True):
        codes = exact.codes(ids)
        assert np.bitwise_count(codes.packed ^ query).sum(axis=1).tolist() == distances.tolist()
        assert len(set(ids.tolist())) == len(ids) and (np.diff(distances) >= 0).all()
    assert (found.distances <= true.distances[:, -1:]).mean() >= least
    return found, true


@pytest.mark.parametrize(("bits", "strings"), [(64, False), (13, True), (200, False)])
def test_a_graph_lives_as_a_file_does(tmp_path, bits, strings):
    rng = np.random.default_rng(bits)
    queries, place = draw(rng, 30, bits), f"graph:{tmp_path / 'codes.index'}"

    def name(numbers):
        return [f"n{i}" for i in numbers] if strings else list(numbers)

    with open_index(place, bits) as index:
        assert index.recall is None and index.search(queries, 3).ids.shape == (30, 0)
        index.add(draw(rng, 200, bits), name(range(200)))
        assert index.recall is None  # few rows are scanned
        index.add(draw(rng, 800, bits), name(range(200, 1000)))
        assert index.recall > 0.97 and f"recall {index.recall:.3f}" in repr(index)
        hold_against_exact(index, queries)
        for step in range(6):  # replaced, removed, new
            index.add(draw(rng, 60, bits), name(range(950 + 50 * step, 1010 + 50 * step)))
            assert index.remove(name(range(40 * step, 40 * step + 40))) == 40
            hold_against_exact(index, queries)
        assert 0 < index._view.stale < len(index)
        kept = name(range(500, 520))
        exact = HammingIndex(bits).add(index.codes(), index.ids)
        for how in ({"among": kept}, {"among": rng.random(len(index)) < 0.2}):
            assert (
                index.search(queries, 5, **how).ids.tolist()
                == exact.search(queries, 5, **how).ids.tolist()
            )
        assert index.within(queries, 3).ids.tolist() == exact.within(queries, 3).ids.tolist()
    with open_index(place, mode="r") as index:
        assert index._view.stale == 0 and index.recall > 0.97
        hold_against_exact(index, queries)
    (tmp_path / "codes.index.graph").write_bytes(b"damaged")
    with open_index(place) as index:
        hold_against_exact(index, queries)
        index.remove(index.ids)
        assert index.search(queries, 3).ids.shape == (30, 0)


def test_equal_codes_are_one_node_and_come_in_order(tmp_path):
    """Two thousand rows of four codes: a graph with a node for each row would not find across."""
    rng = np.random.default_rng(0)
    four = rng.integers(0, 2, (4, 64))
    which = rng.integers(0, 4, 2000)
    with open_index(f"graph:{tmp_path / 'codes.index'}", 64) as index:
        index.add(rb.pack(four[which]))
        assert len(index._view.nodes.keys) == 4 and index.recall == 1.0
        found = index.search(rb.pack(four), 500)
        for i in range(4):
            own = np.flatnonzero(which == i)[:500]
            assert found.ids[i, : len(own)].tolist() == own.tolist()
        index.remove(np.flatnonzero(which == 2))
        hold_against_exact(index, rb.pack(four), 700, 1.0)


def test_searches_run_beside_a_writer(tmp_path):
    rng = np.random.default_rng(0)
    queries, failed = draw(rng, 5), []
    with open_index(f"graph:{tmp_path / 'codes.index'}", 64) as index:
        index.add(draw(rng, 1000))
        ended = threading.Event()

        def ask():
            try:
                while not ended.is_set():
                    assert index.search(queries, 5).ids.shape == (5, 5)
            except BaseException as error:
                failed.append(error)

        readers = [threading.Thread(target=ask) for _ in range(2)]
        for reader in readers:
            reader.start()
        for _ in range(5):
            index.add(draw(rng, 100))
            index.remove(index.ids[:50])
        ended.set()
        for reader in readers:
            reader.join(60)
        assert not failed and len(index) == 1250


def test_one_sentence(tmp_path):
    with pytest.raises(rb.Refusal, match="effort must be"):
        open_index(f"graph:{tmp_path / 'codes.index'}", 64, effort=0)
