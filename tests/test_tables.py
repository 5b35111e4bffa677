"""Tables find what a scan finds: top k and within a radius, whatever was removed or filtered."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, tables
from rankbits.kernels import (
    hamming_topk,
    hamming_within,
    make_tables,
    tables_bytes,
    tables_topk,
    tables_within,
    words,
)
from rankbits.kernels.tables import LONGEST, cut_parts


def draw(bits, rows, flips, seed=0, groups=20):
    """Rows around some codes, and queries around the same: ``flips`` bits of each are changed."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (groups, bits))

    def near(many):
        changed = rng.random((many, bits)) < flips / bits
        return rb.pack(centres[rng.integers(0, groups, many)] ^ changed)

    return near(rows), near(30)


@pytest.fixture
def always(monkeypatch):
    """Tables from the first query on, and no scan that costs less."""
    monkeypatch.setattr(tables, "SMALLEST", 0)
    monkeypatch.setattr(tables, "ASKED", 0)
    monkeypatch.setattr(tables, "make_tables", lambda block: make_tables(block, timed=False))


@pytest.mark.parametrize("bits", [1, 9, 16, 33, 64, 100, 192, 256])
@pytest.mark.parametrize("flips", [0, 2, 8])
def test_tables_find_what_a_scan_finds(bits, flips):
    database, queries = (words(x) for x in draw(bits, 2000, min(flips, bits / 2), bits))
    made = make_tables(database, timed=False)
    mask = np.random.default_rng(bits).random(2000) < 0.3
    for k in (1, 10, 130):
        nearest, left = tables_topk(queries, made, k)
        wanted = hamming_topk(queries, database, k)
        assert not len(left)
        assert nearest.ids.tolist() == wanted.ids.tolist()
        assert nearest.distances.tolist() == wanted.distances.tolist()
        filtered, _ = tables_topk(queries, made, k, mask)
        everything = hamming_topk(queries, database, 2000).ids
        assert filtered.ids.tolist() == [row[mask[row]][:k].tolist() for row in everything]
    for radius in (0, 1, min(5, bits), bits + 3):
        near, wanted = (
            tables_within(queries, made, radius),
            hamming_within(queries, database, radius),
        )
        for name in ("ids", "distances", "offsets"):
            assert getattr(near, name).tolist() == getattr(wanted, name).tolist()


def test_queries_of_other_bits_are_refused():
    made = make_tables(words(draw(64, 100, 2)[0]), timed=False)
    with pytest.raises(rb.Refusal, match="bits"):
        tables_topk(words(draw(32, 100, 2)[1]), made, 3)


@pytest.mark.parametrize("bits", [1, 24, 64, 65, 200, 4096])
@pytest.mark.parametrize("rows", [1, 1000, 10**6, 10**9])
def test_parts_cover_every_bit_once(bits, rows):
    parts = cut_parts(bits, rows).astype(int)
    seen = [64 * word + low + i for word, low, length, _ in parts for i in range(length)]
    assert seen == list(range(8 * -(-bits // 8)))
    assert parts[:, 2].min() >= 1 and parts[:, 2].max() <= LONGEST
    assert parts[1:, 3].tolist() == np.cumsum(2 ** parts[:-1, 2] + 1).tolist()


def test_a_search_gives_up_what_a_scan_does_cheaper(always, monkeypatch):
    """The price of a scan decides for each query, and never what is found."""
    database, queries = draw(64, 3000, 3)
    far = rb.pack(np.random.default_rng(1).integers(0, 2, (30, 64)))
    both = rb.Codes(np.concatenate([queries.packed, far.packed]), 64)
    made, block = make_tables(words(database), timed=False), words(database)
    left = []
    for scan in (0, 1, 2, 2.5, 3, 4, 6, 10, 30, 100, math.inf):
        priced = replace(made, probe=1.0, scan=scan, scan_batch=scan)
        monkeypatch.setattr(tables, "make_tables", lambda _, priced=priced: priced)
        left.append([len(tables_topk(words(q), priced, 5)[1]) for q in (queries[:1], both)])
        index = HammingIndex(64).add(database)
        wanted = hamming_topk(both, block, 5)
        assert index.search(both, 5).ids.tolist() == wanted.ids.tolist()
        wanted, near = hamming_within(both, block, 6), index.within(both, 6)
        assert near.ids.tolist() == wanted.ids.tolist()
        assert near.offsets.tolist() == wanted.offsets.tolist()
    assert left[0] == [1, 60] and left[-1] == [0, 0]
    assert any(0 < many < 60 for _, many in left), left


@pytest.mark.parametrize("bits", [64, 130])
def test_an_index_with_tables_equals_one_without(always, tmp_path, bits, monkeypatch):
    """Adds, replacements, removals, filters and a file that is opened again."""
    database, queries = draw(bits, 5000, 4)
    rng = np.random.default_rng(0)
    path = tmp_path / "codes.index"
    plain = HammingIndex(bits)
    with FileIndex(path, bits=bits) as index:
        for step in range(6):
            part = database[800 * step : 800 * step + 800]
            ids = rng.integers(0, 2000, 800) if step % 2 else np.arange(3000, 3800) + 800 * step
            _, first = np.unique(ids, return_index=True)
            gone = rng.integers(0, 8000, 200)
            for each in (index, plain):
                each.add(rb.Codes(part.packed[first], bits), ids[first])
                each.remove(gone)
            index.build_tables()
            with monkeypatch.context() as without:
                without.setattr(tables, "SMALLEST", math.inf)
                kept = rng.random(len(plain)) < 0.5
                wanted = [plain.search(queries, 7), plain.search(queries, 7, among=kept)]
                wanted += [plain.within(queries, 9), plain.within(queries, 9, among=kept)]
            found = [index.search(queries, 7), index.search(queries, 7, among=kept)]
            found += [index.within(queries, 9), index.within(queries, 9, among=kept)]
            for one, other in zip(found, wanted, strict=True):
                assert one.ids.tolist() == other.ids.tolist()
                assert one.distances.tolist() == other.distances.tolist()
    with FileIndex(path, mode="r") as again:
        assert again.build_tables() > 0
        assert again.search(queries, 7).ids.tolist() == wanted[0].ids.tolist()


def test_tables_are_made_when_they_pay(monkeypatch):
    monkeypatch.setattr(tables, "SMALLEST", 1000)
    monkeypatch.setattr(tables, "ASKED", 20)
    database, queries = draw(64, 3000, 2)
    index = HammingIndex(64).add(database)
    lazy = index.snapshot().segments[0].tables
    index.search(queries, 3)  # a batch of 30 counts as 8
    index.within(queries, 2)
    assert lazy._tables is None
    monkeypatch.setattr(tables, "LARGEST", 1000)
    index.search(queries, 3)
    assert lazy._tables is None  # they would be too large to be made unasked
    monkeypatch.setattr(tables, "LARGEST", 1 << 20)
    index.search(queries, 3, among=index.ids[:10])
    assert lazy._tables is None  # gathered rows are scanned
    index.search(queries, 3)
    assert lazy._tables is not None and 0 < lazy._tables.probe < lazy._tables.scan * 1e6
    index.remove([0])
    assert index.snapshot().segments[0].tables is lazy
    monkeypatch.setenv("RANKBITS_BACKEND", "reference")
    assert lazy.ask(1) is None


def test_the_quicker_way_is_taken_and_the_other_tried_again():
    def ask(pace, times, tables_seconds, scan_seconds):
        ways = []
        for _ in range(times):
            ways.append(pace.prefers_tables())
            pace.learn(ways[-1], tables_seconds if ways[-1] else scan_seconds)
        return ways

    pace = tables.Pace(scan=0.5)
    ways = ask(pace, 300, 2.0, 1.0)
    assert ways[0] and not all(ways[:4])  # both are tried at once,
    assert 3 <= sum(ways) <= 4 + 300 / tables.EXPLORE  # and then 2 seconds after 64 of scanning
    seconds = 2.0 * sum(ways) + 1.0 * (300 - sum(ways))
    assert seconds < 1.1 * 300
    ask(pace, 300, 0.1, 1.0)
    assert pace.tables < pace.scan and pace.prefers_tables()
    pace.since = 0.0
    pace.learn(True, 1000.0)  # held up once
    assert pace.prefers_tables()


@pytest.mark.parametrize("held_up", [0, 1])
def test_what_was_timed_when_tables_were_made_is_not_believed(held_up):
    """A scan that takes half of what was timed is found out, and so are tables whose first answer
    others held up a little."""
    pace = tables.Pace(scan=1.0 / 2)
    seconds = []
    for i in range(200):
        by_tables = pace.prefers_tables()
        seconds.append((0.8 if by_tables else 0.6) + (0.3 if held_up and i == 0 else 0))
        pace.learn(by_tables, seconds[-1])
    assert sum(seconds) < 1.1 * 200 * 0.6


def test_tables_asked_for_are_made_whatever_their_size(monkeypatch):
    monkeypatch.setattr(tables, "SMALLEST", 0)
    monkeypatch.setattr(tables, "LARGEST", 0)
    index = HammingIndex(64).add(draw(64, 3000, 2)[0])
    held = index.build_tables()
    made = index.snapshot().segments[0].tables.ask(1)
    assert held == sum(x.nbytes for x in made.arrays[1:]) == tables_bytes(64, 3000)
    assert HammingIndex(64).build_tables() == 0


def test_threads_search_while_one_makes_tables(always):
    database, queries = draw(64, 3000, 3)
    index, wanted = HammingIndex(64).add(database), hamming_topk(queries, database, 5).ids.tolist()
    results = []

    def search():
        results.append(index.search(queries, 5).ids.tolist())

    workers = [threading.Thread(target=search) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert results == [wanted] * 8


def test_tables_of_a_file_are_kept_beside_it(monkeypatch, tmp_path):
    """They are read again unless they are damaged or the codes are others, and never wrong."""
    monkeypatch.setattr(tables, "SMALLEST", 0)
    monkeypatch.setattr(tables, "READ", 0)
    database, queries = draw(130, 3000, 3)
    path, beside = tmp_path / "codes.index", tmp_path / "codes.index.tables"
    with FileIndex(path, bits=130) as index:
        index.add(database)
        index.compact()
        index.build_tables()
    good = beside.read_bytes()
    monkeypatch.setattr(tables, "make_tables", None)  # whoever makes tables now fails

    def read_tables():
        with FileIndex(path, mode="r") as index:
            ids = index.search(queries, 5).ids.tolist()
            rows = hamming_topk(queries, index.codes(), 5).ids
            assert ids == index.ids[rows].tolist()
            return index.snapshot().segments[0].tables.ask(1)

    assert read_tables() is not None
    for damage in (good[:-1], good + b"0", b"", good[:100], good[:-1] + bytes([good[-1] ^ 1])):
        beside.write_bytes(damage)
        assert read_tables() is None
    beside.write_bytes(good)
    with FileIndex(path) as index:
        index.remove([5])
        assert index.snapshot().segments[0].tables.ask(1) is not None  # struck out of what was read
        index.compact()
    assert read_tables() is None
    beside.unlink()
    assert read_tables() is None


def test_a_reader_writes_no_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "SMALLEST", 0)
    with FileIndex(tmp_path / "codes.index", bits=64) as index:
        index.add(draw(64, 1000, 3)[0])
        index.compact()
    with FileIndex(tmp_path / "codes.index", mode="r") as index:
        assert index.build_tables() > 0
    assert not (tmp_path / "codes.index.tables").exists()


def test_a_shortlist_for_questions_is_found_by_tables(always, monkeypatch):
    rng = np.random.default_rng(0)
    quantizer = rb.ITQ(32).fit(rng.normal(size=(500, 40)).astype(np.float32))
    floats = rng.normal(size=(3000, 40)).astype(np.float32)
    index = HammingIndex(32).add(quantizer.encode(floats))
    questions = quantizer.ask(floats[:9])
    with monkeypatch.context() as without:
        without.setattr(tables, "SMALLEST", math.inf)
        plain = HammingIndex(32).add(quantizer.encode(floats)).search(questions, 5, shortlist=50)
    nearest = index.search(questions, 5, shortlist=50)
    assert nearest.ids.tolist() == plain.ids.tolist()
    assert index.snapshot().segments[0].tables._tables is not None
