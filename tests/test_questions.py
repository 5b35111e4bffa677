"""Questions: float queries of codes, by their definition, on every backend and in memory."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.cli import main
from rankbits.indexes.segments import Segment
from rankbits.indexes.shortlist import choose_width
from rankbits.kernels import inverse_lengths, lay_out, order_rows, question_topk, words
from rankbits.kernels.cpu import questions as cpu
from rankbits.kernels.questions import PRECISIONS, round_weights
from rankbits.kernels.reference import questions as reference
from rankbits.types import Decoder, Questions

BITS = [1, 13, 64, 100, 128, 256, 384, 1024, 3000]


def make_codes(draw, rows, bits, pool=40):
    """Few distinct codes, so that distances tie everywhere."""
    few = rb.pack(draw.normal(size=(min(rows, pool), bits)))
    return few[draw.integers(0, len(few), rows)]


def make_patterns(group):
    """-1 and +1 (2**group, group) of each value of a group."""
    return 2.0 * (np.arange(1 << group)[:, None] >> np.arange(group)[::-1] & 1) - 1


def make_decoder(draw, bits, group=4, dim=10):
    """Vectors that are a linear map of their bits, and somewhat more."""
    directions = draw.normal(size=(-(-bits // group), group, dim)) / np.sqrt(bits)
    atoms = make_patterns(group) @ directions
    atoms += 0.5 / np.sqrt(bits) * draw.normal(size=atoms.shape)
    return Decoder(atoms, 0.3 * draw.normal(size=dim), bits)


def make_questions(draw, count, decoder):
    """Questions of random vectors, with the weights and offsets of the decoder's linear part."""
    vectors = draw.normal(size=(count, decoder.dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = make_patterns(decoder.group).T @ decoder.atoms / (1 << decoder.group)
    directions = directions.reshape(-1, decoder.dim)[: decoder.bits]
    middle = decoder.centre + decoder.atoms.mean(axis=1).sum(axis=0)
    return Questions(vectors @ directions.T, vectors @ middle, decoder, vectors)


def decode(decoder, codes):
    """The embeddings as the docstring of ``Decoder`` has them, float64 (N, dim)."""
    ones = (codes.signs() > 0).astype(int)
    out = np.tile(decoder.centre.astype(np.float64), (len(codes), 1))
    for group, vectors in enumerate(decoder.atoms.astype(np.float64)):
        own = ones[:, group * decoder.group : (group + 1) * decoder.group]
        powers = 1 << np.arange(decoder.group)[::-1]
        out += vectors[own @ powers[: own.shape[1]]]
    return out


def define(questions, codes):
    """The distances as the docstring of ``Questions`` has them, float64 (Q, N)."""
    if questions.decoder is None:
        weights = questions.weights.astype(np.float64)
        differing = codes.signs()[None] != np.where(weights > 0, 1, -1)[:, None]
        return (np.abs(weights)[:, None] * differing).sum(axis=2)
    embeddings = decode(questions.decoder, codes)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return 1 - questions.vectors.astype(np.float64) @ embeddings.T


def define_scan(questions, codes):
    """What a scan goes by: with a decoder the weights, the offsets and the lengths."""
    if questions.decoder is None:
        return define(questions, codes)
    products = questions.weights.astype(np.float64) @ codes.signs().T
    lengths = np.linalg.norm(decode(questions.decoder, codes), axis=1)
    return -(questions.offsets[:, None] + products) / lengths


def find_nearest(questions, codes, k, precision="int4"):
    """Rows (Q, k) and distances of what an index in memory must find."""
    if questions.decoder is None:
        found = question_topk(questions, codes, k, precision=precision)
        return found.ids, found.distances
    rows = question_topk(questions, codes, choose_width(k), precision=precision).ids
    far = order_rows(questions, codes, rows)
    order = np.argsort(far, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(far, order, 1)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("rows", [1, 5, 300, 2500])
def test_integer_questions_equal_the_definition_to_the_last_bit(bits, rows):
    draw = np.random.default_rng(bits + rows)
    database = words(make_codes(draw, rows, bits))
    weights = draw.normal(size=(4, bits)).astype(np.float32)
    weights[1] = 0
    weights[2] = np.round(weights[2])
    for precision in ("int4", "int8"):
        asked = lay_out(Questions(weights), precision)
        inverses = draw.uniform(0.5, 2, rows).astype(np.float32)
        scale = 2 * asked.steps, asked.bases.astype(np.float32), inverses
        for k in {1, min(10, rows), rows}:
            plain = asked.planes, asked.signs, database.words, k, bits
            ids, sums = reference.planes_topk(*plain)
            fast_ids, fast_sums = cpu.planes_topk(*plain)
            np.testing.assert_array_equal(fast_ids, ids)
            np.testing.assert_array_equal(fast_sums, sums)
            assert fast_sums.dtype == sums.dtype == np.int64
            ids, far = reference.planes_topk(*plain, scale)
            fast_ids, fast_far = cpu.planes_topk(*plain, scale)
            np.testing.assert_array_equal(fast_ids, ids)
            np.testing.assert_array_equal(fast_far, far)


@pytest.mark.parametrize("bits", [1, 13, 64, 100, 384])
@pytest.mark.parametrize("with_decoder", [False, True])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_scan_by_floats_is_its_definition(bits, with_decoder, backend, monkeypatch):
    monkeypatch.setenv("RANKBITS_BACKEND", backend)
    draw = np.random.default_rng(bits)
    codes = make_codes(draw, 200, bits)
    decoder, vectors = None, None
    if with_decoder:
        decoder, vectors = make_decoder(draw, bits), np.eye(10)[:3]
    questions = Questions(draw.normal(size=(3, bits)), draw.normal(size=3), decoder, vectors)
    far = define_scan(questions, codes)
    found = question_topk(questions, codes, 200, precision="float")
    np.testing.assert_allclose(found.distances, np.sort(far, axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        np.take_along_axis(far, found.ids, 1), found.distances, rtol=1e-4, atol=1e-4
    )
    if not with_decoder:
        np.testing.assert_array_equal(order_rows(questions, codes, found.ids), found.distances)


SHAPES = [(1, 1), (13, 1), (100, 1), (13, 2), (64, 2), (13, 4), (66, 4), (1, 8), (13, 8), (128, 8)]


@pytest.mark.parametrize(("bits", "group"), SHAPES)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_decoded_distances_are_their_definition(bits, group, backend, monkeypatch):
    monkeypatch.setenv("RANKBITS_BACKEND", backend)
    draw = np.random.default_rng(bits + group)
    codes, decoder = make_codes(draw, 150, bits, pool=90), make_decoder(draw, bits, group)
    questions = make_questions(draw, 5, decoder)
    np.testing.assert_allclose(decoder.decode(codes), decode(decoder, codes), atol=1e-5)
    rows = np.stack([draw.permutation(150)[:70] for _ in range(5)])
    far = np.take_along_axis(define(questions, codes), rows, 1)
    found = order_rows(questions, codes, rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, far, atol=2e-6)
    lengths = np.linalg.norm(decode(decoder, codes), axis=1)
    inverses = inverse_lengths(decoder, words(codes))
    assert inverses.dtype == np.float32
    np.testing.assert_allclose(1 / inverses, lengths, rtol=1e-5)
    given = order_rows(questions, codes, rows, inverses=inverses)
    np.testing.assert_array_equal(given, found)


@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_decoded_distances_have_the_same_digits_alone_and_in_company(group):
    draw = np.random.default_rng(group)
    codes, decoder = make_codes(draw, 400, 70), make_decoder(draw, 70, group, dim=333)
    questions = make_questions(draw, 60, decoder)
    rows = np.stack([draw.permutation(400)[:50] for _ in range(60)])
    together = order_rows(questions, codes, rows)
    tables = decoder.make_byte_tables(questions.vectors)
    for i in (0, 17, 59):
        np.testing.assert_array_equal(
            decoder.make_byte_tables(questions.vectors[i : i + 1])[0], tables[i]
        )
        alone = order_rows(questions[i], codes[rows[i]], np.arange(50)[None])
        np.testing.assert_array_equal(alone[0], together[i])
    state = tables, words(codes).words, rows
    np.testing.assert_array_equal(cpu.sum_rows(*state), reference.sum_rows(*state))


def test_the_embeddings_of_a_decoder_may_be_of_any_size():
    draw = np.random.default_rng(0)
    codes, decoder = make_codes(draw, 50, 20), make_decoder(draw, 20)
    rows = np.arange(50)[None]
    wanted = order_rows(make_questions(np.random.default_rng(1), 1, decoder), codes, rows)
    for size in (1e-12, 1e12):
        sized = Decoder(size * decoder.atoms, size * decoder.centre, 20)
        found = order_rows(make_questions(np.random.default_rng(1), 1, sized), codes, rows)
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_decoders_are_told_apart():
    draw = np.random.default_rng(0)
    atoms, centre = draw.normal(size=(4, 16, 3)), draw.normal(size=3)
    decoder = Decoder(atoms, centre, 13)
    assert (decoder.bits, decoder.group, decoder.dim) == (13, 4, 3)
    assert repr(decoder) == "Decoder(13 bits to 3 dimensions)"
    assert Decoder(atoms).bits == 16 and not Decoder(atoms).centre.any()
    others = Decoder(atoms, centre, 14), Decoder(2 * atoms, centre, 13), Decoder(atoms, None, 13)
    assert len({other.digest for other in (decoder, *others)}) == 4
    assert Decoder(atoms.copy(), centre.copy(), 13).digest == decoder.digest


@pytest.mark.parametrize("levels", [7, 127])
def test_rounding_loses_no_more_than_the_largest_step(levels):
    weights = np.random.default_rng(0).normal(size=(20, 256)).astype(np.float32)
    whole, steps = round_weights(weights, levels)
    assert np.abs(whole).max() <= levels
    error = np.square(weights - whole * steps[:, None]).sum(axis=1)
    plain_steps = np.abs(weights).max(axis=1, keepdims=True) / levels
    plain = np.square(weights - np.rint(weights / plain_steps) * plain_steps).sum(axis=1)
    assert (error <= plain * (1 + 1e-5)).all()
    exact, steps = round_weights(np.array([[7.0, -4.0, 0.0]], np.float32), 7)
    assert (exact.tolist(), steps.tolist()) == ([[7, -4, 0]], [1.0])
    assert round_weights(np.zeros((1, 3), np.float32), levels)[0].tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("levels", [7, 127])
@pytest.mark.parametrize("bits", [1, 5, 64, 300])
def test_rounding_is_the_same_by_every_backend(levels, bits, monkeypatch):
    weights = np.random.default_rng(bits).standard_t(3, size=(50, bits)).astype(np.float32)
    whole, steps = round_weights(weights, levels)
    monkeypatch.setenv("RANKBITS_BACKEND", "reference")
    expected, expected_steps = round_weights(weights, levels)
    assert whole.dtype == expected.dtype == np.int8
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(steps, expected_steps)


def test_integer_distances_are_those_of_the_rounded_weights():
    draw = np.random.default_rng(3)
    codes, decoder = make_codes(draw, 500, 96), make_decoder(draw, 96)
    whole, steps = round_weights(draw.normal(size=(5, 96)).astype(np.float32), 7)
    weights = (whole * steps[:, None]).astype(np.float32)
    decoded = Questions(weights, [0.5, 0, -2, 1, 0], decoder, np.eye(10)[:5])
    for asked in (Questions(weights), decoded):
        found = question_topk(asked, codes, 20)
        expected = np.take_along_axis(define_scan(asked, codes), found.ids, 1)
        np.testing.assert_allclose(found.distances, expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_lengths_have_the_same_digits_alone_and_in_company(group):
    draw = np.random.default_rng(5)
    codes, decoder = rb.pack(draw.normal(size=(1000, 70))), make_decoder(draw, 70, group)
    every = inverse_lengths(decoder, words(codes))
    some = draw.permutation(1000)[:77]
    np.testing.assert_array_equal(inverse_lengths(decoder, words(codes[some])), every[some])
    state = decoder.atoms, decoder.centre, words(codes).words
    np.testing.assert_allclose(1 / every, reference.measure_lengths(*state), rtol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_code_that_stands_for_nothing_has_length_one(backend, monkeypatch):
    monkeypatch.setenv("RANKBITS_BACKEND", backend)
    codes = rb.pack([[1, 1], [1, -1]])
    decoder = Decoder([[[3.0], [1.0]], [[3.0], [1.0]]], [-2.0])
    np.testing.assert_array_equal(inverse_lengths(decoder, words(codes)), np.float32([1, 0.5]))
    questions = Questions([[1, 1], [1, 1]], None, decoder, [[1.0], [0.0]])
    far = order_rows(questions, codes, np.array([[0, 1], [0, 1]]))
    np.testing.assert_array_equal(far, np.float32([[1, 0], [1, 1]]))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads):
    draw = np.random.default_rng(1)
    codes = make_codes(draw, 120_000, 64, pool=900)
    decoder = make_decoder(draw, 64)
    questions = []
    for count in (1, 2, 5):
        decoded = make_questions(draw, count, decoder)
        questions += [decoded, Questions(decoded.weights)]
    before = torch.get_num_threads()
    wanted = [find_nearest(asked, codes, 50) for asked in questions]
    try:
        torch.set_num_threads(threads)
        again = [find_nearest(asked, codes, 50) for asked in questions]
    finally:
        torch.set_num_threads(before)
    for (ids, far), (other_ids, other_far) in zip(wanted, again, strict=True):
        np.testing.assert_array_equal(ids, other_ids)
        np.testing.assert_array_equal(far, other_far)


@pytest.fixture(params=["plain", "decoder"])
def asked(request):
    """An index of several segments, some rows removed; questions; all codes; the removed rows."""
    draw = np.random.default_rng(7)
    codes = make_codes(draw, 6000, 40, pool=3000)
    index = rb.HammingIndex(40)
    for start, stop in ((0, 5500), (5500, 5990), (5990, 6000)):
        index.add(codes[start:stop], ids=np.arange(start, stop) + 100)
    gone = draw.permutation(6000)[:50]
    index.remove(gone + 100)
    questions = make_questions(draw, 6, make_decoder(draw, 40))
    if request.param == "plain":
        questions = Questions(questions.weights)
    return index, questions, codes, gone


@pytest.mark.parametrize("precision", ["int4", "int8", "float"])
def test_an_index_finds_what_the_kernels_find(asked, precision):
    index, questions, codes, gone = asked
    kept = np.setdiff1d(np.arange(len(codes)), gone)
    rows, far = find_nearest(questions, codes[kept], 25, precision)
    found = index.search(questions, 25, precision=precision)
    np.testing.assert_array_equal(found.ids, kept[rows] + 100)
    np.testing.assert_array_equal(found.distances, far)
    assert found.distances.dtype == np.float32


@pytest.mark.parametrize("some", [5, 400, 5000])
def test_among_is_the_search_of_those_alone(asked, some):
    index, questions, codes, gone = asked
    chosen = np.random.default_rng(some).permutation(6000)[:some]
    kept = np.setdiff1d(chosen, gone)
    rows, far = find_nearest(questions, codes[kept], 10)
    found = index.search(questions, 10, among=chosen + 100)
    np.testing.assert_array_equal(found.ids, kept[rows] + 100)
    np.testing.assert_array_equal(found.distances, far)


def test_a_shortlist_of_all_is_the_definition_and_a_short_one_orders_its_own(asked):
    index, questions, codes, gone = asked
    whole = index.search(questions, 30, shortlist=10**6)
    kept = codes[np.setdiff1d(np.arange(len(codes)), gone)]
    far = order_rows(questions, kept, np.tile(np.arange(len(kept)), (6, 1)))
    np.testing.assert_array_equal(whole.distances, np.sort(far, axis=1)[:, :30])
    exact = index.search(questions, 30, precision="float")
    same = [np.isin(a, b).mean() for a, b in zip(exact.distances, whole.distances, strict=True)]
    assert np.mean(same) > (0.9 if questions.decoder else 0.999)
    near = index.search(questions.codes(), 40)
    short = index.search(questions, 5, shortlist=40)
    for row in range(len(questions)):
        far = order_rows(questions[row], index.codes(near.ids[row]), np.arange(40)[None])[0]
        order = np.argsort(far, kind="stable")[:5]
        np.testing.assert_array_equal(short.ids[row], near.ids[row][order])
        np.testing.assert_array_equal(short.distances[row], far[order])
    assert index.search(questions, 50, shortlist=3).ids.shape == (6, 50)


@pytest.mark.parametrize("with_decoder", [False, True])
def test_ties_come_by_order_of_insertion_and_k_may_pass_the_end(with_decoder):
    def ask(weights):
        if not with_decoder:
            return Questions(weights)
        vectors = np.tile([1.0, 0.0], (len(weights), 1))
        return Questions(weights, None, Decoder(np.ones((2, 4, 2)), [0, -2]), vectors)

    index = rb.HammingIndex(4).add(rb.pack(np.ones((9, 4))), ids=[*"ihgfedcba"])
    for options in ({}, {"precision": "float"}, {"shortlist": 99}):
        found = index.search(ask([[0, 0, 0, 0], [1, 2, 3, 4]]), 99, **options)
        assert found.ids.tolist() == [[*"ihgfedcba"]] * 2
        assert not found.distances.any()
    assert index.search(ask(np.empty((0, 4))), 3).ids.shape == (0, 3)
    empty = rb.HammingIndex(4).search(ask([[1, 2, 3, 4]]), 3)
    assert empty.ids.shape == empty.distances.shape == (1, 0)
    assert empty.distances.dtype == np.float32
    assert rb.HammingIndex(4).search(ask([[1, 2, 3, 4]]), 3, shortlist=9).ids.size == 0
    assert index.search(ask([[1, 2, 3, 4]]), 3, among=[]).ids.shape == (1, 0)
    codes = rb.pack(np.ones((9, 4)))
    assert order_rows(ask([[1, 2, 3, 4]]), codes, np.empty((1, 0), int)).shape == (1, 0)


def test_lengths_are_computed_once_for_a_segment(asked, monkeypatch):
    index, questions, _, _ = asked
    index.search(questions, 3)
    calls, compute = [], cpu.measure_lengths

    def count(*state):
        calls.append(state)
        return compute(*state)

    monkeypatch.setattr(cpu, "measure_lengths", count)
    index.search(questions, 3)
    index.search(questions, 3, among=range(100, 120))
    assert not calls
    if questions.decoder is not None:
        other = Questions(
            questions.weights,
            decoder=Decoder(2 * questions.decoder.atoms, questions.decoder.centre),
            vectors=questions.vectors,
        )
        index.search(other, 3)
        assert calls


def test_lengths_on_one_device_stay_when_another_asks_for_them(monkeypatch):
    draw = np.random.default_rng(14)
    decoder, other = make_decoder(draw, 40), make_decoder(draw, 40)
    index = rb.HammingIndex(40).add(make_codes(draw, 50, 40))
    (segment,) = index.snapshot().segments
    monkeypatch.setattr(Segment, "on", lambda self, device: self.words)
    there, here = segment.inverse_lengths(decoder, "cuda"), segment.inverse_lengths(decoder)
    assert segment.inverse_lengths(decoder, "cuda") is there
    assert segment.inverse_lengths(decoder) is here
    segment.inverse_lengths(other)
    assert {digest for digest, _ in segment.inverses} == {other.digest}


def test_rows_that_are_added_or_removed_do_not_cost_the_lengths_of_all(monkeypatch):
    draw = np.random.default_rng(12)
    codes = rb.pack(draw.normal(size=(9000, 40)))
    questions = make_questions(draw, 2, make_decoder(draw, 40))
    index = rb.HammingIndex(40).add(codes[:8000])
    index.search(questions, 3)
    rows, plain = [], cpu.measure_lengths

    def count_rows(atoms, centre, columns):
        rows.append(columns.shape[1])
        return plain(atoms, centre, columns)

    monkeypatch.setattr(cpu, "measure_lengths", count_rows)
    index.add(codes[8000:], range(8000, 9000)).remove(range(100))
    index.add(codes[:100], range(100))
    index.remove(range(5000))
    found = index.search(questions, 20)
    assert sum(rows) < 2500 + 2 * choose_width(20)
    rows, far = find_nearest(questions, codes[5000:], 20)
    np.testing.assert_array_equal(found.ids, rows + 5000)
    np.testing.assert_array_equal(found.distances, far)


@pytest.mark.parametrize(
    "quantizer", [rb.Sign(), rb.RandomRotation(), rb.ITQ(), rb.H2Q(), rb.Projection(7)], ids=repr
)
def test_every_quantizer_asks_with_its_floats(quantizer):
    x = np.random.default_rng(13).normal(size=(200, 12)).astype(np.float32)
    quantizer.fit(x)
    for given in (x[:5], torch.from_numpy(x[:5]), x[0], x[:5].astype(np.float64)):
        questions, codes = quantizer.ask(given), quantizer.encode(given)
        outputs = np.asarray(quantizer.transform(given))
        np.testing.assert_array_equal(questions.weights, outputs)
        assert questions.codes() == codes and questions.fingerprint == codes.fingerprint
    with pytest.raises(rb.Refusal, match="finite"):
        quantizer.ask(np.full((1, 12), np.nan))


def test_many_threads_ask_while_one_adds():
    draw = np.random.default_rng(2)
    codes, decoder = rb.pack(draw.normal(size=(4000, 48))), make_decoder(draw, 48)
    questions = make_questions(draw, 2, decoder)
    index = rb.HammingIndex(48).add(codes[:2000])
    wrong = []

    def ask():
        for _ in range(10):
            found = index.search(questions, 10)
            expected = order_rows(questions, codes, found.ids)
            if not np.array_equal(found.distances, expected) or found.ids.shape != (2, 10):
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(2000, 4000, 100):
        index.add(codes[start : start + 100])
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_questions_are_rows_and_a_saved_index_answers_them_alike(tmp_path):
    draw = np.random.default_rng(4)
    x = draw.normal(size=(300, 24)).astype(np.float32)
    quantizer = rb.ITQ().fit(x)
    questions = quantizer.ask(x[:5])
    np.testing.assert_array_equal(questions.weights, quantizer.transform(x[:5]))
    assert questions.codes() == quantizer.encode(x[:5])
    assert questions.fingerprint == quantizer.fingerprint == questions.codes().fingerprint
    assert (repr(questions), len(questions[1:3]), len(questions[2])) == (
        "Questions(5 rows of 24 bits)",
        2,
        1,
    )
    index = rb.HammingIndex(24).add(quantizer.encode(x))
    index.save(tmp_path / "x.index")
    wanted = index.search(questions, 7)
    found = rb.HammingIndex.open(tmp_path / "x.index").search(questions, 7)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.distances, wanted.distances)


def test_a_gpu_searches_words_that_lie_in_the_memory_of_the_cpu(monkeypatch):
    """``RANKBITS_BACKEND=cuda`` with codes that nobody moved: its module takes whole weights."""
    rng = np.random.default_rng(0)
    codes = rb.pack(rng.normal(size=(50, 40)))
    questions = Questions(rng.normal(size=(3, 40)).astype(np.float32))
    expected = question_topk(questions, codes, 5)
    signs = codes.signs().astype(np.int64)

    class Gpu:
        @staticmethod
        def whole_topk(whole, words, k, scale):
            assert isinstance(words, np.ndarray) and scale is None
            sums = (np.abs(whole).sum(axis=1, dtype=np.int64)[:, None] - whole @ signs.T) // 2
            ids = np.argsort(sums, axis=1, kind="stable")[:, :k]
            return ids, np.take_along_axis(sums, ids, 1)

    monkeypatch.setattr("rankbits.kernels.questions.choose_module", lambda database, room: Gpu)
    results = question_topk(questions, codes, 5)
    assert results.ids.tolist() == expected.ids.tolist()
    assert results.distances.tolist() == expected.distances.tolist()


def test_an_encoder_asks_as_its_quantizer_prefers(monkeypatch):
    x = np.random.default_rng(4).normal(size=(300, 24)).astype(np.float32)
    encoder = rb.Encoder.of(rb.ITQ().fit(x))
    index = rb.HammingIndex(24).add(encoder.encode(x))
    index.encoder = encoder
    assert index.search(x[:3], 4).distances.dtype == np.int32
    monkeypatch.setattr(rb.ITQ, "asks_with", "questions")
    by_inputs, by_questions = index.search(x[:3], 4), index.search(encoder.ask(x[:3]), 4)
    np.testing.assert_array_equal(by_inputs.ids, by_questions.ids)
    assert by_inputs.distances.dtype == np.float32
    assert index.within(x[:3], 2).distances.dtype == np.int32
    assert encoder.ask(x[0]).fingerprint == encoder.fingerprint


def test_floats_find_more_than_bits():
    draw = np.random.default_rng(6)
    x = draw.normal(size=(2100, 32)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    queries, database = x[:100], x[100:]
    quantizer = rb.ITQ().fit(database)
    index = rb.HammingIndex(32).add(quantizer.encode(database))
    near = np.argsort(-queries @ database.T, axis=1)[:, :10]

    def recall(found):
        return np.mean(
            [len(np.intersect1d(*pair)) / 10 for pair in zip(found.ids, near, strict=True)]
        )

    bits, floats = recall(index.search(quantizer.encode(queries), 10)), {}
    for precision in ("int4", "int8", "float"):
        floats[precision] = recall(index.search(quantizer.ask(queries), 10, precision=precision))
    assert floats["float"] > bits + 0.03
    assert floats["int8"] == pytest.approx(floats["float"], abs=0.01)
    assert floats["int4"] == pytest.approx(floats["float"], abs=0.03)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_distances_past_the_largest_float_are_found_all_the_same(precision):
    codes = rb.pack([[1, 1], [1, -1], [-1, 1]])
    asked, inverses = lay_out(Questions([[-4e29, -4e29]]), precision), np.full(3, 1e20, np.float32)
    for backend in (reference, cpu):
        if asked.whole is None:
            laid_out = asked.weights, words(codes).words, 3, asked.bases, inverses
            found = backend.weights_topk(*laid_out)
        else:
            scale = 2 * asked.steps, asked.bases.astype(np.float32), inverses
            found = backend.planes_topk(asked.planes, asked.signs, words(codes).words, 3, 2, scale)
        assert found[0].tolist() == [[1, 2, 0]]
        assert found[1][0, 2] == np.finfo(np.float32).max


def test_refusals():
    index = rb.HammingIndex(3).add(rb.pack([[1, 1, 1]]))
    good, decoder = Questions([[1, 2, 3]]), Decoder(np.ones((2, 4, 2)), bits=3)
    refused = [
        (lambda: Questions([1.0, 2.0]), "weights must have two dimensions"),
        (lambda: Questions([[1.0, np.nan]]), "weights must be finite; row 0"),
        (lambda: Questions([[1e300, 0]]), r"must sum to at most 1e\+30; row 0"),
        (lambda: Questions(np.empty((2, 0))), "bits"),
        (lambda: Questions([[1.0]], [1, 2]), r"offsets must have shape \(1,\)"),
        (lambda: Questions([[1.0]], [np.inf]), "offsets must be finite"),
        (lambda: Questions([[1.0]], None, 3, [[1.0]]), "decoder must be a Decoder; got int"),
        (lambda: Questions([[1.0]], None, decoder, [[1.0]]), "codes of 1 bits.*got 3"),
        (lambda: Questions([[1, 2, 3]], None, decoder), "decoder and the queries' own vectors"),
        (lambda: Questions([[1, 2, 3]], vectors=[[1, 0]]), "decoder and the queries' own vectors"),
        (lambda: Questions([[1, 2, 3]], None, decoder, [[1]]), r"shape \(1, 2\); got \(1, 1\)"),
        (lambda: Questions([[1, 2, 3]], None, decoder, [[1, np.inf]]), "vectors must be finite"),
        (lambda: Questions([[1, 2, 3]], None, decoder, [[3, 4]]), "row 0 has length 5"),
        (lambda: Questions([[1.0]], fingerprint="me"), "fingerprint must be 16"),
        (lambda: Decoder(np.ones((2, 3))), r"atoms must have shape \(groups, 2, 4, 16 or 256, dim"),
        (lambda: Decoder(np.ones((2, 3, 1))), r"atoms must have shape.*got \(2, 3, 1\)"),
        (lambda: Decoder(np.ones((0, 2, 1))), "atoms must have shape"),
        (lambda: Decoder([[[np.nan], [1]]]), "atoms must be finite"),
        (lambda: Decoder([[[1e300], [1]]]), "atoms must be finite"),
        (lambda: Decoder([[[1], [1]]], [np.inf]), "centre must be finite"),
        (lambda: Decoder([[[1], [1]]], [1, 2]), r"centre must have shape \(1,\)"),
        (lambda: Decoder(np.ones((4, 16, 1)), bits=12), "4 groups of 4 bits do not make 12 bits"),
        (lambda: Decoder(np.ones((4, 16, 1)), bits=17), "do not make 17 bits"),
        (lambda: decoder.decode(rb.pack([[1, 1]])), "same number of bits"),
        (lambda: inverse_lengths(decoder, words(rb.pack([[1, 1]]))), "same number of bits"),
        (lambda: good[7], "have no rows 7"),
        (lambda: index.within(good, 1), "A radius is a Hamming distance"),
        (lambda: index.search(good, 1, precision="int5"), "precision must be one of"),
        (lambda: index.search(good, 1, shortlist=0), "shortlist must be a whole number"),
        (lambda: index.search(good.codes(), 1, shortlist=9), "shortlist is for questions"),
        (lambda: index.search(Questions([[1.0]]), 1), "same number of bits; got 1 and 3"),
        (lambda: index.add(good), "Codes are wanted here"),
        (lambda: index.search([[1, 2, 3]], 1), "Codes are wanted here"),
    ]
    for call, sentence in refused:
        with pytest.raises(rb.Refusal, match=sentence):
            call()
    index.remember({"fingerprint": "0" * 16})
    with pytest.raises(rb.Refusal, match=r"These questions were made by encoder 1{16}; this"):
        index.search(Questions([[1, 2, 3]], fingerprint="1" * 16), 1)


@pytest.mark.parametrize("with_decoder", [False, True])
def test_a_report_of_questions_is_that_of_their_distances(with_decoder):
    draw = np.random.default_rng(8)
    codes, labels = make_codes(draw, 120, 12), draw.integers(0, 3, 120)
    decoder = make_decoder(draw, 12) if with_decoder else None
    questions = Questions(np.round(draw.normal(size=(20, 12))))
    own = Questions(codes.signs().astype(np.float32))
    if decoder:
        questions = make_questions(draw, 20, decoder)
        own = make_questions(draw, 120, decoder)
    mine = draw.integers(0, 3, 20)
    report = rb.evaluate(questions, codes, mine, labels, k=(1, 10))
    far = order_rows(questions, codes, np.tile(np.arange(120), (20, 1)))
    ranking = rb.rank(far, mine[:, None] == labels)
    for ties in ("mean", "best", "worst"):
        wanted = np.nanmean(rb.average_precision(ranking, ties=ties))
        assert getattr(report.figures["mAP"], ties.replace("mean", "value")) == pytest.approx(
            wanted
        )
    assert report["NDCG@10"] == pytest.approx(np.nanmean(rb.ndcg(ranking, k=10)))
    assert "float questions" in report.protocol and report.bits == 12
    assert "precision within 2" not in report.figures
    alone = rb.evaluate(own, codes, labels, exclude_self=True, k=1)
    far = order_rows(own, codes, np.tile(np.arange(120), (120, 1)))
    ranking = rb.rank(far, labels[:, None] == labels, exclude_self=True)
    assert alone["mAP"] == pytest.approx(np.nanmean(rb.average_precision(ranking)))


def test_rerank_takes_questions_first():
    draw = np.random.default_rng(9)
    x = draw.normal(size=(500, 16)).astype(np.float32)
    quantizer = rb.ITQ().fit(x)
    index = rb.HammingIndex(16).add(quantizer.encode(x))
    rerank = rb.Rerank(index, x, quantizer)
    queries = draw.normal(size=(30, 16)).astype(np.float32)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    near = np.argsort(-queries @ unit.T, axis=1)[:, :5]

    def recall(found):
        return np.mean([np.isin(a, b).mean() for a, b in zip(near, found.ids, strict=True)])

    bits = rerank.search(queries, 5, shortlist=20)
    floats = rerank.search(queries, 5, shortlist=20, ask="questions")
    assert recall(floats) > recall(bits)
    given = rerank.search(queries, 5, shortlist=20, codes=quantizer.ask(queries))
    np.testing.assert_array_equal(given.ids, floats.ids)
    signs = rb.Rerank(rb.HammingIndex(16).add(rb.pack(x)), x)
    assert recall(signs.search(queries, 5, shortlist=500, ask="questions")) == 1
    with pytest.raises(rb.Refusal, match="ask must be one of 'codes', 'questions'"):
        rerank.search(queries, 5, ask="floats")


def test_the_commands_ask_by_bits_or_by_floats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(10)
    names = np.array(["ant", "bee", "cow"])[draw.integers(0, 3, 80)]
    x = draw.normal(size=(80, 16)).astype(np.float32) + 2 * (names == "bee")[:, None]
    np.savez("x.npz", embeddings=x, labels=names)
    np.savez("q.npz", embeddings=x[:9] + 0.1, labels=names[:9])
    np.save("q.npy", x[:9] + np.float32(0.1))
    encoder = rb.Encoder.of(rb.ITQ().fit(x))
    encoder.save("x.encoder")
    encoder.encode(x[:9]).save("codes.npz")
    with rb.make_index("x.encoder", "x.npz", "x.index") as index:
        wanted = index.search(encoder.ask(x[:9] + np.float32(0.1)), 4)
        report = rb.evaluate_index(index, "q.npz", ask="questions")
        themselves = rb.evaluate_index(index, "x.npz", ask="questions")
        by_bits = rb.evaluate_index(index, "q.npz")
    assert (themselves.queries, themselves.database) == (80, 79)
    assert report["mAP"] != by_bits["mAP"]
    assert main(["search", "x.index", "q.npy", "-k", "4", "--ask", "floats", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["results"]
    assert [row["ids"] for row in told] == wanted.ids.tolist()
    np.testing.assert_allclose([row["distances"] for row in told], wanted.distances)
    assert main(["search", "x.index", "q.npy", "-k", "4", "--ask", "floats"]) == 0
    assert f"{wanted.distances[0, 1]:.4g}" in capsys.readouterr().out
    for ask in ([], ["--ask", "bits"]):
        assert main(["search", "x.index", "q.npy", "-k", "4", "--json", *ask]) == 0
        near = json.loads(capsys.readouterr().out)["results"]
        assert isinstance(near[0]["distances"][0], int)
    assert main(["evaluate", "x.index", "q.npz", "--ask", "floats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["mAP"]["mean"] == report["mAP"]
    for words_, sentence in (
        (["search", "x.index", "codes.npz", "--ask", "floats"], "holds codes, not floats"),
        (["search", "x.index", "q.npy", "--ask", "float"], "did you mean 'floats'"),
        (["search", "x.index", "q.npy", "--ask", "floats", "--radius", "2"], "needs --ask bits"),
        (["evaluate", "x.index", "q.npz", "--ask", "codes"], "one of 'bits', 'floats'"),
    ):
        assert main(words_) == 1
        assert sentence in capsys.readouterr().err
