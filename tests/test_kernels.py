"""Fast kernels equal the plain definition, at odd sizes, on any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbits as rb
from rankbits.kernels import words
from unmeasured import UNMEASURED

BITS = (1, 7, 12, 64, 65, 128, 200, 256, 300, 1000)
SIZES = (1, 5, 1023, 9001)


def random_codes(rng, rows, bits, spread=1.0):
    """Codes near a few centres, so that near and far distances and many ties occur."""
    centres = rng.integers(0, 2, (3, bits)) * 2 - 1
    return rb.pack(centres[rng.integers(0, 3, rows)] + spread * rng.normal(size=(rows, bits)))


@pytest.fixture(params=BITS, ids=lambda b: f"{b}bits")
def bits(request):
    return request.param


def run_both(monkeypatch, function):
    results = []
    for name in ("reference", "cpu"):
        monkeypatch.setenv("RANKBITS_BACKEND", name)
        results.append(function())
    return results


@pytest.mark.parametrize("rows", SIZES)
def test_search_equals_the_reference(monkeypatch, bits, rows):
    rng = np.random.default_rng(bits * 10_007 + rows)
    query, database = random_codes(rng, 7, bits), random_codes(rng, rows, bits)
    slow, fast = run_both(monkeypatch, lambda: rb.hamming(query, database))
    np.testing.assert_array_equal(slow, fast)
    np.testing.assert_array_equal(
        fast, (query.signs()[:, None] != database.signs()[None]).sum(-1) if rows < 2000 else fast
    )
    for k in (1, 10, rows // 3 + 1, rows, rows + 5):
        slow, fast = run_both(monkeypatch, lambda k=k: rb.hamming_topk(query, database, k))
        np.testing.assert_array_equal(slow.ids, fast.ids)
        np.testing.assert_array_equal(slow.distances, fast.distances)
    for radius in (0, 2, bits // 2, bits + 1):
        slow, fast = run_both(monkeypatch, lambda r=radius: rb.hamming_within(query, database, r))
        np.testing.assert_array_equal(slow.offsets, fast.offsets)
        np.testing.assert_array_equal(slow.ids, fast.ids)
        np.testing.assert_array_equal(slow.distances, fast.distances)


@pytest.mark.parametrize("rows", SIZES)
def test_counts_equal_the_reference(monkeypatch, bits, rows):
    from scipy.sparse import coo_array

    rng = np.random.default_rng(bits * 10_007 + rows)
    query, database = random_codes(rng, 7, bits), random_codes(rng, rows, bits)
    few = rng.integers(0, 3, 7), rng.integers(0, 2, rows)  # class 2 is never in the database
    far = rng.integers(0, 5, 7) * 10**12, rng.integers(0, 5, rows) * 10**12
    sets = rng.random((7, 70)) < 0.05, rng.random((rows, 70)) < 0.05
    grades = rng.integers(0, 4, (7, rows))
    for arguments in (few, far, (*sets, "any"), (*sets, "count"), (None, None, grades)):
        slow, fast = run_both(
            monkeypatch, lambda a=arguments: rb.hamming_counts(query, database, *a)
        )
        np.testing.assert_array_equal(slow, fast)
        assert fast.sum() == 7 * rows
    sparse = rb.hamming_counts(query, database, relevance=coo_array(grades))
    dense = rb.hamming_counts(query, database, relevance=grades)
    np.testing.assert_array_equal(sparse, dense[:, :, : sparse.shape[2]])
    assert dense[:, :, sparse.shape[2] :].sum() == 0


def test_many_equal_distances_overflow_no_counter(monkeypatch):
    """Every pair of a 16-bit joint table falls into one cell, more often than it can count."""
    database = rb.pack(np.ones((150_001, 3)))
    counts = rb.hamming_counts(database[:2], database, [0, 1], np.zeros(150_001, int))
    assert counts[0, 0].tolist() == [0, 150_001] and counts[1, 0].tolist() == [150_001, 0]


@pytest.mark.parametrize("direction", [1, -1])
def test_sorted_databases_search_exactly(monkeypatch, direction):
    """Falling distances fill the candidate list at every step, rising ones never."""
    distances = np.sort(np.random.default_rng(0).integers(0, 65, 5000))[::direction]
    database = rb.pack(np.where(np.arange(64) < distances[:, None], 1, -1))
    query = rb.pack(-np.ones((1, 64)))
    for k in (1, 3, 100):
        slow, fast = run_both(monkeypatch, lambda k=k: rb.hamming_topk(query, database, k))
        np.testing.assert_array_equal(slow.ids, fast.ids)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 130), st.integers(1, 300), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_topk_is_the_head_of_the_full_order(bits, rows, k, seed):
    rng = np.random.default_rng(seed)
    query, database = random_codes(rng, 2, bits, 3.0), random_codes(rng, rows, bits, 3.0)
    nearest = rb.hamming_topk(query, database, k)
    order = np.lexsort((np.broadcast_to(np.arange(rows), (2, rows)), rb.hamming(query, database)))
    np.testing.assert_array_equal(nearest.ids, order[:, :k])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads):
    rng = np.random.default_rng(0)
    query, database = random_codes(rng, 3, 64), random_codes(rng, 250_000, 64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = rb.hamming_topk(query, words(database), 20)
        torch.set_num_threads(threads)
        many = rb.hamming_topk(query[:1], words(database), 20)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(one.ids[:1], many.ids)


def test_the_users_number_of_threads_is_left_alone():
    code = (
        "import torch, rankbits as rb\n"
        "torch.set_num_threads(1)\n"
        "rb.fastap_loss(torch.randn(8, 4), torch.arange(8) % 2)\n"
        "rb.hamming(rb.pack(torch.randn(3, 4)), rb.pack(torch.randn(3, 4)))\n"
        "print(torch.get_num_threads())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=UNMEASURED
    )
    assert done.stdout.strip() == "1"


def test_searches_from_many_threads_at_once():
    rng = np.random.default_rng(0)
    query, database = random_codes(rng, 20, 64), random_codes(rng, 20_000, 64)
    wanted = rb.hamming_topk(query, database, 5).ids
    results: list[np.ndarray] = []
    workers = [
        threading.Thread(target=lambda: results.append(rb.hamming_topk(query, database, 5).ids))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 8 and all(np.array_equal(ids, wanted) for ids in results)


def search_after_a_fork():
    torch.set_num_threads(2)  # so that there is a pool of threads, which a fork does not copy
    codes = rb.pack(np.eye(9))
    rb.hamming_topk(codes, codes, 2)
    child = os.fork()
    if child == 0:
        right = (rb.hamming_topk(codes, codes, 1).ids[:, 0] == np.arange(9)).all()
        os._exit(0 if right else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_search_works_after_a_fork(forks):
    process = forks.Process(target=search_after_a_fork)
    process.start()
    process.join(120)
    process.kill()  # where it hangs
    assert process.exitcode == 0


def test_no_queries_give_no_results():
    database = rb.pack(np.eye(4))
    none = database[:0]
    assert rb.hamming_topk(none, database, 2).ids.shape == (0, 2)
    assert len(rb.hamming_within(none, database, 2)) == 0
    assert rb.hamming_counts(none, database, [], [0, 1, 2, 3]).shape == (0, 5, 2)
