"""Indexes: the five verbs against a plain list, filters, threads, refusals."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits.indexes import FileIndex, HammingIndex, Index, segments
from rankbits.indexes.checks import parse_ids


class Plain:
    """The definition: a list of (id, bits) in order of insertion, sorted by distance, stably."""

    def __init__(self):
        self.rows = []

    def add(self, codes, ids=None):
        if ids is None:
            start = max((name for name, _ in self.rows), default=-1) + 1
            ids = range(start, start + len(codes))
        names = list(ids)
        self.rows = [row for row in self.rows if row[0] not in names]
        self.rows += list(zip(names, codes.signs() > 0, strict=True))

    def remove(self, ids):
        before = len(self.rows)
        self.rows = [row for row in self.rows if row[0] not in set(ids)]
        return before - len(self.rows)

    def near(self, query, among=None):
        kept = [row for row in self.rows if among is None or row[0] in among]
        near = [(int((code != (query > 0)).sum()), name) for name, code in kept]
        return sorted(near, key=lambda pair: pair[0])


def to_pairs(ids, distances):
    return list(zip(distances.tolist(), ids.tolist(), strict=True))


def check(index, plain, queries, k, radius, among=None, filtered=None):
    """``filtered``: what ``among`` means, as a set of ids."""
    found = index.search(queries, k, among=among)
    close = index.within(queries, radius, among=among)
    assert len(found) == len(close) == len(queries)
    for i, query in enumerate(queries.signs()):
        near = plain.near(query, filtered)
        assert to_pairs(*found[i]) == near[:k]
        assert to_pairs(*close[i]) == [pair for pair in near if pair[0] <= radius]


@pytest.fixture
def many_segments(monkeypatch):
    """Small numbers, so that a few rows already make many segments and every way of filtering."""
    monkeypatch.setattr(segments, "SHORT", 2)
    monkeypatch.setattr(segments, "STEP", 1)


def draw(rng, rows, bits):
    return rb.pack(rng.integers(0, 2, (rows, bits)))


def make_names(kind, numbers):
    return [int(x) if kind == "numbers" else f"n°{x}" for x in numbers]


@pytest.mark.parametrize("kind", ["numbers", "strings"])
@pytest.mark.parametrize(
    ("bits", "durable"), [(1, False), (12, True), (64, False), (65, False), (130, True)]
)
def test_any_history_equals_a_plain_list(kind, bits, durable, many_segments, monkeypatch, tmp_path):
    monkeypatch.setattr("rankbits.indexes.durable.LEAST", 2000)
    rng = np.random.default_rng(bits)
    path = tmp_path / "codes.index"
    index = FileIndex(path, bits) if durable else HammingIndex(bits)
    plain, most = Plain(), 0
    for turn in range(40):
        rows = int(rng.integers(0, 30))
        if rng.random() < 0.6:
            codes = draw(rng, rows, bits)
            if kind == "numbers" and rng.random() < 0.4:
                index.add(codes)
                plain.add(codes)
            else:
                ids = make_names(kind, rng.permutation(200)[:rows])
                index.add(codes, ids)
                plain.add(codes, ids)
        else:
            ids = make_names(kind, rng.integers(0, 200, rows))
            assert index.remove(ids) == plain.remove(ids)
        most = max(most, len(index.snapshot().segments))
        assert index.count() == len(index) == len(plain.rows)
        assert index.ids.tolist() == [name for name, _ in plain.rows]
        queries, k, radius = draw(rng, 3, bits), int(rng.integers(1, 40)), int(rng.integers(bits))
        check(index, plain, queries, k, radius)
        share = rng.choice([0.02, 0.3, 0.9])
        mask = rng.random(len(index)) < share
        chosen = index.ids[mask].tolist()
        check(index, plain, queries, k, radius, mask, set(chosen))
        check(index, plain, queries, k, radius, [*chosen, *make_names(kind, [999])], set(chosen))
        if durable and turn % 6 == 0:
            index.close()
            index = FileIndex(path, mode="w")
    assert most > 2
    assert index.codes() == rb.pack([row for _, row in plain.rows])
    index.close()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 140), st.integers(1, 400), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_filters_and_removals_equal_the_search_of_what_is_left(bits, rows, share, seed):
    rng = np.random.default_rng(seed)
    codes, queries = draw(rng, rows, bits), draw(rng, 4, bits)
    kept = rng.random(rows) < share
    index = HammingIndex(bits).add(codes)
    thinned = HammingIndex(bits).add(codes)
    thinned.remove(np.flatnonzero(~kept))
    if not kept.any():
        assert index.search(queries, 5, among=kept).ids.shape == (4, 0)
        assert thinned.search(queries, 5).ids.shape == (4, 0)
        assert index.within(queries, bits, among=kept).offsets.tolist() == [0] * 5
        return
    for k in (1, 7, rows + 3):
        wanted = rb.hamming_topk(queries, codes[kept], k)
        for found in (
            index.search(queries, k, among=kept),
            index.search(queries, k, among=set(np.flatnonzero(kept).tolist())),
            thinned.search(queries, k),
        ):
            np.testing.assert_array_equal(found.ids, np.flatnonzero(kept)[wanted.ids])
            np.testing.assert_array_equal(found.distances, wanted.distances)
    wanted = rb.hamming_within(queries, codes[kept], bits // 2)
    for found in (index.within(queries, bits // 2, among=kept), thinned.within(queries, bits // 2)):
        np.testing.assert_array_equal(found.ids, np.flatnonzero(kept)[wanted.ids])
        np.testing.assert_array_equal(found.offsets, wanted.offsets)


def test_what_is_left_out_may_be_all_that_is_near():
    """Where the nearest are left out, a search for somewhat more than k does not do."""
    rng = np.random.default_rng(0)
    codes, query = draw(rng, 20_000, 64), draw(rng, 1, 64)
    order = rb.hamming_topk(query, codes, 20_000).ids[0]
    index = HammingIndex(64).add(codes)
    index.remove(order[:3000])
    assert index.snapshot().segments[0].alive is not None
    np.testing.assert_array_equal(index.search(query, 10).ids[0], order[3000:3010])
    mask = np.ones(len(index), bool)
    mask[np.isin(index.ids, order[3000:7000])] = False
    np.testing.assert_array_equal(index.search(query, 10, among=mask).ids[0], order[7000:7010])


def test_rows_are_copied_a_logarithmic_number_of_times(monkeypatch):
    copied = []
    merged = segments.merge_segments

    def counting(parts, bits):
        copied.append(sum(part.live for part in parts))
        return merged(parts, bits)

    monkeypatch.setattr(segments, "merge_segments", counting)
    index, codes = HammingIndex(64), draw(np.random.default_rng(0), 100, 64)
    for _ in range(2000):
        index.add(codes)
    assert len(index) == 200_000 and len(index.snapshot().segments) <= 6
    assert sum(copied) < 60 * len(index)
    assert index.snapshot().segments[0].ids.first == 0


def test_the_index_owns_its_codes():
    packed = np.zeros((4, 8), np.uint8)
    ids = np.array([5, 9, 2, 7])
    index = HammingIndex(64).add(rb.Codes(packed, 64), ids)
    packed[:], ids[:] = 255, 1
    assert index.ids.tolist() == [5, 9, 2, 7]
    assert not index.codes().packed.any()
    index.ids[:] = 0
    assert index.ids.tolist() == [5, 9, 2, 7]


def test_fetching_codes_and_asking_for_ids():
    rng = np.random.default_rng(0)
    codes = draw(rng, 10, 70)
    index = HammingIndex(70).add(codes, [f"x{i}" for i in range(10)])
    assert index.codes(["x7", "x2", "x7"]) == codes[[7, 2, 7]]
    assert "x3" in index and "x10" not in index and 3 not in index
    assert isinstance(index, Index) and repr(index) == "HammingIndex(10 rows of 70 bits)"
    assert bool(HammingIndex(3)) and not len(HammingIndex(3))
    with index as same:
        assert same.remove("x3") == 1 and "x3" not in index
    with pytest.raises(rb.Refusal, match="does not hold id 'x3'"):
        index.codes(["x2", "x3"])
    for name in index.ids:
        index.remove(name)
    index.add(codes, np.arange(10))  # an empty index may take the other kind
    assert index.ids.dtype == np.int64


def test_ids_are_numbered_on_from_the_largest():
    index, codes = HammingIndex(8), rb.pack(np.eye(8)[:2])
    assert index.add(codes).ids.tolist() == [0, 1]
    assert index.add(codes, [90, -5]).add(codes).ids.tolist() == [0, 1, 90, -5, 91, 92]
    index.remove([92, 91, 90])
    assert index.add(codes).ids.tolist() == [0, 1, -5, 2, 3]
    index.add(codes[:1], [2**63 - 1])
    with pytest.raises(rb.Refusal, match="No whole numbers are left"):
        index.add(codes)
    assert len(index) == 6


def test_an_empty_index_finds_nothing():
    index, queries = HammingIndex(20), rb.pack(np.eye(20)[:3])
    for among in (None, [], [4], ["a"], np.zeros(0, bool)):
        found = index.search(queries, 5, among=among)
        assert found.ids.shape == found.distances.shape == (3, 0)
        assert index.within(queries, 20, among=among).offsets.tolist() == [0, 0, 0, 0]
    assert index.remove([1]) == 0 and index.add(queries[:0]).count() == 0
    index.add(queries)
    assert index.search(queries[:0], 5).ids.shape == (0, 3)
    assert index.search(queries, 50).ids.shape == (3, 3)
    assert index.search(queries, 5, among=[]).ids.shape == (3, 0)


@pytest.mark.parametrize(
    "given_ids",
    [
        [3, 1], (3, 1), np.array([3, 1], np.uint8), np.array([3, 1], object), torch.tensor([3, 1]),
        {3: 0, 1: 0}.keys(), iter([3, 1]), np.array([3, 1], np.uint64), [np.int32(3), 1],
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_whole_numbers_come_in_many_forms(given_ids):
    found = parse_ids(given_ids)
    assert found.dtype == np.int64 and found.tolist() == [3, 1]


def test_strings_come_in_many_forms():
    for given_ids in (["b", "aé"], np.array(["b", "aé"]), np.array(["b", "aé"], object)):
        found = parse_ids(given_ids)
        assert found.dtype == object and found.tolist() == ["b", "aé"]
        assert all(type(x) is str for x in found)
    assert parse_ids("aé").tolist() == ["aé"] and parse_ids(np.str_("b")).tolist() == ["b"]
    assert parse_ids(np.array(4)).tolist() == parse_ids(np.int8(4)).tolist() == [4]
    assert parse_ids(range(3, 0, -1)).tolist() == [3, 2, 1] and parse_ids(()).tolist() == []
    assert len(parse_ids(["x" * 1024])) == 1


EIGHT = rb.pack(np.eye(8))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda i: i.add(EIGHT, range(7)), "ids must have one row for each of codes: 8; got 7."),
        (lambda i: i.add(EIGHT, [0] * 8), "ids must not hold an id twice; 7 are repeated."),
        (lambda i: i.add(EIGHT[:2], ["a", "a"]), "ids must not hold an id twice; 1 are repeated."),
        (lambda i: i.add(EIGHT[:1], [0.0]), "ids must be all whole numbers or all strings; got fl"),
        (
            lambda i: i.add(EIGHT[:1], np.array([0.5])),
            "whole numbers or strings; got dtype float64",
        ),
        (lambda i: i.add(EIGHT[:1], [True]), "ids must be all whole numbers or all strings; got b"),
        (lambda i: i.add(EIGHT[:1], np.array([True])), "or strings; got dtype bool."),
        (lambda i: i.add(EIGHT[:2], [1, "a"]), "all whole numbers or all strings; got int, str."),
        (lambda i: i.add(EIGHT[:2], [[1, 2]]), "all whole numbers or all strings; got list."),
        (lambda i: i.add(EIGHT[:2], np.ones((1, 2), int)), "ids must have shape (n,); got (1, 2)."),
        (lambda i: i.add(EIGHT[:1], [b"a"]), "all whole numbers or all strings; got bytes."),
        (lambda i: i.add(EIGHT[:1], [2**63]), "ids must fit in 64 bits with a sign"),
        (
            lambda i: i.add(EIGHT[:1], np.array([2**63], np.uint64)),
            "with a sign; got 9223372036854",
        ),
        (lambda i: i.add(EIGHT[:2], ["a", ""]), "ids must not be empty strings; row 1 is one."),
        (lambda i: i.add(EIGHT[:1], ["a\0b"]), "ids must not contain the character NUL"),
        (lambda i: i.add(EIGHT[:1], ["é" * 513]), "at most 1,024 bytes in UTF-8; got 1,026."),
        (lambda i: i.add(EIGHT[:1], ["\ud800"]), "ids must be strings of valid Unicode"),
        (lambda i: i.add(EIGHT[:1], ["a"]), "ids of this index are whole numbers; got strings."),
        (lambda i: i.add(EIGHT[:1], 3.5), "ids must be whole numbers or strings; got float."),
        (lambda i: i.add(np.eye(8)), "Codes are wanted here (rb.pack makes them); got ndarray."),
        (lambda i: i.add(rb.pack(np.eye(9))), "holds codes of 8 bits; got codes of 9."),
        (lambda i: i.remove(["a"]), "ids of this index are whole numbers; got strings."),
        (lambda i: i.remove([1.5]), "all whole numbers or all strings; got float."),
        (lambda i: i.search(np.eye(8), 3), "Codes are wanted here"),
        (lambda i: i.search(rb.pack(np.eye(9)), 3), "same number of bits; got 9 and 8."),
        (lambda i: i.search(EIGHT, 0), "k must be a whole number of at least 1; got 0."),
        (lambda i: i.search(EIGHT, 2.0), "k must be a whole number of at least 1; got 2.0."),
        (lambda i: i.within(EIGHT, -1), "radius must be a whole number of at least 0; got -1."),
        (lambda i: i.search(EIGHT, 3, among=["a"]), "among of this index are whole numbers; got s"),
        (lambda i: i.search(EIGHT, 3, among=np.ones(7, bool)), "must have shape (8,)"),
        (lambda i: i.search(EIGHT, 3, among=[True, False]), "must have shape (8,)"),
        (lambda i: i.search(EIGHT, 3, among=[0.5]), "among must be all whole numbers or all strin"),
        (lambda i: i.codes([99]), "This index does not hold id 99."),
        (lambda i: HammingIndex(0), "bits must be a whole number of at least 1; got 0."),
        (lambda i: HammingIndex(1 << 21), "bits must be at most 1,048,576; got 2,097,152."),
    ],
)
def test_one_sentence_and_nothing_changed(call, sentence):
    index = HammingIndex(8).add(EIGHT)
    with pytest.raises(rb.Refusal) as caught:
        call(index)
    text = str(caught.value)
    assert sentence in text and text.endswith(".") and "\n" not in text
    assert index.ids.tolist() == list(range(8)) and index.codes() == EIGHT


def test_a_string_index_wants_ids():
    index = HammingIndex(8).add(EIGHT[:1], ["a"])
    with pytest.raises(rb.Refusal, match="ids must be given"):
        index.add(EIGHT[:1])
    with pytest.raises(rb.Refusal, match="ids of this index are strings; got whole numbers"):
        index.add(EIGHT[:1], [4])
    assert index.ids.tolist() == ["a"]


@pytest.mark.parametrize("durable", [False, True])
def test_readers_see_whole_writes_only(durable, many_segments, tmp_path):
    """A group of ten equal codes comes and goes in one call: a search sees ten or none."""
    rng = np.random.default_rng(0)
    groups = draw(rng, 12, 96)
    index = FileIndex(tmp_path / "i", 96) if durable else HammingIndex(96)
    done, faults, seen = threading.Event(), [], []

    def read(seed):
        own = np.random.default_rng(seed)
        while not done.is_set():
            g = int(own.integers(12))
            query, names = groups[g], range(10 * g, 10 * g + 10)
            hits = (
                index.within(query, 0).ids,
                index.within(query, 0, among=list(names)).ids,
                np.array([x for x, d in zip(*index.search(query, 10)[0], strict=True) if d == 0]),
            )
            seen.append(len(hits[0]))
            for found in hits:
                if found.tolist() not in ([], list(names)):
                    faults.append((g, found))
            count, ids = index.count(), index.ids
            if count % 10 or len(ids) % 10 or len(set(ids.tolist())) != len(ids):
                faults.append((count, ids))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    try:
        turn = 0
        while turn < 150 or not (faults or {0, 10} <= set(seen)):  # readers may be slow to start
            assert all(reader.is_alive() for reader in readers)
            turn += 1
            g = int(rng.integers(12))
            names = np.arange(10 * g, 10 * g + 10)
            if rng.random() < 0.6:
                index.add(groups[[g] * 10], names)
            else:
                assert index.remove(names) in (0, 10)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not faults and {0, 10} <= set(seen)
    index.close()


def test_writers_take_turns():
    index, codes = HammingIndex(16), draw(np.random.default_rng(0), 5, 16)
    writers = [
        threading.Thread(target=lambda: [index.add(codes) for _ in range(50)]) for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert index.ids.tolist() == list(range(1000))


def test_many_candidates_are_struck_out_and_few_are_gathered(monkeypatch):
    asked = []
    gather = segments.Segment.gather

    def count(segment, rows):
        asked.append(len(rows))
        return gather(segment, rows)

    monkeypatch.setattr(segments.Segment, "gather", count)
    rng = np.random.default_rng(0)
    index, query = HammingIndex(64).add(draw(rng, 5000, 64)), draw(rng, 1, 64)
    index.search(query, 5, among=np.arange(4000))
    assert asked == []
    index.search(query, 5, among=np.arange(100, 150))
    index.search(draw(rng, 500, 64), 5, among=np.arange(4000))
    assert asked == [50, 4000]
