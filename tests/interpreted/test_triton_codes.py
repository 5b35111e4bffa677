"""Search and counts of codes in Triton equal their definition, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import rankbits as rb
from rankbits.kernels import lay_out, words
from rankbits.kernels.cuda import codes as cuda
from rankbits.kernels.cuda import counting, nearest, questions
from rankbits.kernels.reference import codes as reference
from rankbits.kernels.reference import questions as definition
from rankbits.types import Decoder, Questions


def draw_codes(bits, queries, rows):
    """Query words (Q, W), database words (W, n), and the latter as a tensor; many codes tie."""
    draw = np.random.default_rng(bits + rows)
    pool = rb.pack(draw.normal(size=(min(rows, 30), bits)))
    database = words(pool[draw.integers(0, len(pool), rows)]).words
    left = np.ascontiguousarray(words(rb.pack(draw.normal(size=(queries, bits)))).words.T)
    return draw, left, database, counting.move_words(database, "cpu")


def assert_same(computed, wanted):
    for ours, theirs in zip(computed, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("bits", [1, 64, 100, 300])
@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (5, 130), (3, 600)])
def test_the_nearest_and_all_within_a_radius(bits, queries, rows):
    _, left, right, moved = draw_codes(bits, queries, rows)
    out, wanted = np.empty((queries, rows), np.uint16), np.empty((queries, rows), np.uint16)
    cuda.hamming(left, moved, out)
    reference.hamming(left, right, wanted)
    np.testing.assert_array_equal(out, wanted)
    for k in {1, min(10, rows), rows}:
        assert_same(
            cuda.hamming_topk(left, moved, k, bits), reference.hamming_topk(left, right, k, bits)
        )
    for radius in {0, bits // 2, bits}:
        assert_same(
            cuda.hamming_within(left, moved, radius, bits),
            reference.hamming_within(left, right, radius, bits),
        )


@pytest.mark.parametrize("bits", [1, 13, 64, 300])
@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (5, 130), (3, 600)])
def test_counts(bits, queries, rows):
    draw, left, right, moved = draw_codes(bits, queries, rows)
    sizes = queries, rows
    classes = [draw.integers(0, 3, n) for n in sizes]
    assert_same(
        cuda.count_classes(left, moved, *classes, bits),
        reference.count_classes(left, right, *classes, bits),
    )
    mine, theirs = (draw.integers(0, 1 << 62, (2, n)).astype(np.uint64) for n in sizes)
    mine = np.ascontiguousarray(mine.T)
    grades = draw.integers(0, 5, sizes)
    for most in (1, 4):
        assert_same(
            cuda.count_shared(left, moved, mine, theirs, bits, most),
            reference.count_shared(left, right, mine, theirs, bits, most),
        )
    for kind in (np.int64, np.uint8):
        assert_same(
            cuda.count_grades(left, moved, grades.astype(kind), bits, 4),
            reference.count_grades(left, right, grades, bits, 4),
        )


def test_many_stretches_and_batches_change_nothing(monkeypatch):
    _, left, right, moved = draw_codes(64, 7, 700)
    monkeypatch.setattr(nearest, "STRETCH", 1 << 14)
    monkeypatch.setattr(nearest, "CELLS", 1 << 10)
    monkeypatch.setattr(nearest, "AT_ONCE", 4)
    monkeypatch.setattr(cuda, "AT_ONCE", 4)
    for k in (1, 4, 300):
        assert_same(
            cuda.hamming_topk(left, moved, k, 64), reference.hamming_topk(left, right, k, 64)
        )
    assert_same(
        cuda.hamming_within(left, moved, 30, 64), reference.hamming_within(left, right, 30, 64)
    )


@pytest.mark.parametrize("precision", ["int4", "int8"])
@pytest.mark.parametrize(
    ("bits", "count", "rows", "k"),
    [(1, 1, 1, 1), (100, 3, 130, 130), (256, 5, 300, 10), (64, 17, 260, 2), (128, 65, 130, 1)],
)
def test_questions(bits, count, rows, k, precision):
    draw, _, right, moved = draw_codes(bits, 1, rows)
    weights = draw.normal(size=(count, bits)).astype(np.float32)
    weights[0] = 0
    inverses = draw.uniform(0.5, 2, rows).astype(np.float32)
    laid_out = lay_out(Questions(weights, draw.normal(size=count)), precision)
    plain = laid_out.planes, laid_out.signs, right, k, bits
    assert_same(questions.whole_topk(laid_out.whole, moved, k), definition.planes_topk(*plain))
    scale = 2 * laid_out.steps, laid_out.bases.astype(np.float32), inverses
    assert_same(
        questions.whole_topk(laid_out.whole, moved, k, scale),
        definition.planes_topk(*plain, scale),
    )
    for factor in (None, inverses):
        arguments = k, laid_out.bases, factor
        _, far = questions.weights_topk(weights, moved, *arguments)
        _, wanted = definition.weights_topk(weights, right, *arguments)
        np.testing.assert_allclose(far, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_lengths_of_decoded_codes(group):
    draw, _, right, moved = draw_codes(20, 1, 33)
    decoder = Decoder(draw.normal(size=(-(-20 // group), 1 << group, 6)), draw.normal(size=6), 20)
    lengths = questions.measure_lengths(decoder.atoms, decoder.centre, moved)
    wanted = definition.measure_lengths(decoder.atoms, decoder.centre, right)
    np.testing.assert_allclose(lengths, wanted, rtol=1e-5)
