"""The Hamming kernels on a GPU against their definition."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.kernels import (
    hamming,
    hamming_counts,
    hamming_topk,
    hamming_within,
    lay_out,
    question_topk,
    words,
)
from rankbits.kernels.reference import codes as reference
from rankbits.kernels.reference import questions as definition
from rankbits.types import Decoder, Questions

if torch.cuda.is_available() and importlib.util.find_spec("triton"):
    from rankbits.kernels.cuda import nearest
    from rankbits.kernels.cuda import questions as cuda

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("triton") is None,
        reason="needs a CUDA device and triton",
    ),
]


@pytest.mark.parametrize("bits", [1, 13, 32, 64, 65, 128, 300, 1024])
@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (3, 5), (7, 513), (70, 4097), (5, 20000)])
def test_everything_equals_the_definition(bits, queries, rows):
    draw = np.random.default_rng(bits + rows)
    # few distinct codes: ties everywhere
    pool = rb.pack(draw.normal(size=(min(rows, 300), bits)))
    database = pool[draw.integers(0, len(pool), rows)]
    query_codes = rb.pack(draw.normal(size=(queries, bits)))
    left, right = np.ascontiguousarray(words(query_codes).words.T), words(database).words
    on_gpu = words(database).on("cuda")
    out = np.empty((queries, rows), np.uint16)
    reference.hamming(left, right, out)
    np.testing.assert_array_equal(hamming(query_codes, on_gpu), out)
    for k in {1, min(10, rows), min(777, rows), rows}:
        results = hamming_topk(query_codes, on_gpu, k)
        ids, distances = reference.hamming_topk(left, right, k, bits)
        np.testing.assert_array_equal(results.distances, distances)
        np.testing.assert_array_equal(results.ids, ids)
    for radius in {0, bits // 3, bits // 2, bits}:
        results = hamming_within(query_codes, on_gpu, radius)
        offsets, ids, distances = reference.hamming_within(left, right, radius, bits)
        np.testing.assert_array_equal(results.offsets, offsets)
        np.testing.assert_array_equal(results.ids, ids)
        np.testing.assert_array_equal(results.distances, distances)
    labels = draw.integers(0, 4, queries), draw.integers(0, 4, rows)
    np.testing.assert_array_equal(
        hamming_counts(query_codes, on_gpu, *labels), hamming_counts(query_codes, database, *labels)
    )
    several = tuple(draw.random((n, 21)) < 0.2 for n in (queries, rows))
    for relevance in ("any", "count"):
        np.testing.assert_array_equal(
            hamming_counts(query_codes, on_gpu, *several, relevance=relevance),
            hamming_counts(query_codes, database, *several, relevance=relevance),
        )
    grades = draw.integers(0, 5, (queries, rows))
    np.testing.assert_array_equal(
        hamming_counts(query_codes, on_gpu, relevance=grades),
        hamming_counts(query_codes, database, relevance=grades),
    )


def test_an_index_on_the_gpu_finds_the_same():
    draw = np.random.default_rng(0)
    codes = rb.pack(draw.normal(size=(5000, 64)))
    query_codes = rb.pack(draw.normal(size=(40, 64)))
    plain, on_gpu = rb.HammingIndex(64).add(codes), rb.HammingIndex(64, device="cuda").add(codes)
    for index in (plain, on_gpu):
        index.remove(np.arange(0, 900, 3))
        index.add(codes[:50], np.arange(9000, 9050))
    one, two = (index.search(query_codes, 25) for index in (plain, on_gpu))
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_array_equal(one.distances, two.distances)


@pytest.mark.parametrize("bits", [24, 64, 256])
@pytest.mark.parametrize("k", [1, 10, 300])
@pytest.mark.parametrize("stretch", [1 << 20, 1 << 28])
def test_equal_codes_and_many_stretches_change_nothing(bits, k, stretch, monkeypatch):
    monkeypatch.setattr(nearest, "STRETCH", stretch)
    draw = np.random.default_rng(bits)
    database = rb.pack(draw.normal(size=(150_000, bits)))
    packed = database.packed.copy()
    packed[100_000:130_000] = packed[99_999]  # 30,000 equal codes
    database = rb.Codes(packed, bits)
    query_codes = rb.Codes(packed[[5, 99_999, 120_000, 149_999]], bits)
    sides = database, words(database).on("cuda")
    one, two = (hamming_topk(query_codes, side, k) for side in sides)
    np.testing.assert_array_equal(one.distances, two.distances)
    np.testing.assert_array_equal(one.ids, two.ids)


@pytest.mark.parametrize("bits", [1, 13, 64, 100, 256, 384, 1024])
@pytest.mark.parametrize(("questions", "rows"), [(1, 1), (3, 5), (20, 513), (70, 4097), (5, 20000)])
def test_questions_equal_their_definition(bits, questions, rows):
    draw = np.random.default_rng(bits + rows)
    pool = rb.pack(draw.normal(size=(min(rows, 300), bits)))
    database = words(pool[draw.integers(0, len(pool), rows)])
    on_gpu = database.on("cuda")
    weights = draw.normal(size=(questions, bits)).astype(np.float32)
    weights[0] = 0
    for group in (1, 2, 4, 8):
        atoms = draw.normal(size=(-(-bits // group), 1 << group, 20))
        decoder = Decoder(atoms, draw.normal(size=20), bits)
        inverses = 1 / cuda.measure_lengths(decoder.atoms, decoder.centre, on_gpu.words)
        here = inverses.cpu().numpy()
        lengths = definition.measure_lengths(decoder.atoms, decoder.centre, database.words)
        np.testing.assert_allclose(1 / here, lengths, rtol=1e-5)
    for precision in ("int4", "int8"):
        laid_out = lay_out(Questions(weights, draw.normal(size=questions)), precision)
        scale = 2 * laid_out.steps, laid_out.bases.astype(np.float32)
        for k in {1, min(10, rows), min(777, rows), rows}:
            plain = laid_out.planes, laid_out.signs, database.words, k, bits
            ids, sums = definition.planes_topk(*plain)
            results = cuda.whole_topk(laid_out.whole, on_gpu.words, k)
            np.testing.assert_array_equal(results[1], sums)
            np.testing.assert_array_equal(results[0], ids)
            ids, far = definition.planes_topk(*plain, (*scale, here))
            results = cuda.whole_topk(laid_out.whole, on_gpu.words, k, (*scale, inverses))
            np.testing.assert_array_equal(results[1], far)
            np.testing.assert_array_equal(results[0], ids)
    vectors = np.tile(np.eye(20)[0], (questions, 1))
    floats = Questions(weights, draw.normal(size=questions), decoder, vectors)
    wanted = question_topk(floats, database, min(9, rows), precision="float")
    results = question_topk(floats, on_gpu, min(9, rows), precision="float")
    np.testing.assert_allclose(results.distances, wanted.distances, rtol=1e-4, atol=1e-5)


def test_rows_that_all_tie_come_in_their_order():
    database = words(rb.pack(np.ones((200_000, 64))))
    results = question_topk(Questions(np.ones((3, 64))), database.on("cuda"), 10)
    np.testing.assert_array_equal(results.ids, np.tile(np.arange(10), (3, 1)))


def test_an_index_on_a_gpu_answers_questions():
    draw = np.random.default_rng(0)
    codes = rb.pack(draw.normal(size=(5000, 96)))
    here, on_gpu = rb.HammingIndex(96), rb.HammingIndex(96, device="cuda")
    for index in (here, on_gpu):
        index.add(codes)
        index.remove(range(5))
        index.add(codes[:1000], range(9000, 10_000))
    questions = Questions(draw.normal(size=(30, 96)))
    choices = ({}, {"precision": "int8"}, {"among": range(100, 400)}, {"shortlist": 50})
    for options in choices:
        wanted, results = (index.search(questions, 10, **options) for index in (here, on_gpu))
        np.testing.assert_array_equal(results.ids, wanted.ids)
        np.testing.assert_array_equal(results.distances, wanted.distances)
    decoder = Decoder(draw.normal(size=(24, 16, 20)), draw.normal(size=20))
    vectors = draw.normal(size=(30, 20))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    decoded = Questions(questions.weights, np.ones(30), decoder, vectors)
    for options in choices:
        wanted, results = (index.search(decoded, 10, **options) for index in (here, on_gpu))
        np.testing.assert_array_equal(results.ids, wanted.ids)
        np.testing.assert_array_equal(results.distances, wanted.distances)
