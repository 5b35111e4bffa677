"""Nested codes: the first bits of a code are a code of their own."""

import numpy as np
import pytest

import rankbits as rb
from rankbits.kernels.codes import words
from rankbits.quantizers import atoms as tables

DRAW = np.random.default_rng(0)
MIX = DRAW.normal(size=(12, 32))
X = (DRAW.normal(size=(700, 12)) @ MIX + 0.3 * DRAW.normal(size=(700, 32))).astype(np.float32)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
QUERIES = UNIT[:80] + 0.05 * DRAW.normal(size=(80, 32)).astype(np.float32)
NEAREST = np.argsort(-(QUERIES @ UNIT.T), axis=1)[:, :10]


@pytest.fixture(scope="module")
def nested():
    return rb.Reconstruction(96, nested=(24, 48), rounds=6, tries=1).fit(X)


def recall(ids):
    return np.mean([np.isin(a, b).mean() for a, b in zip(NEAREST, ids, strict=True)])


def error(quantizer, codes):
    return float(np.square(UNIT - quantizer.decode(codes)).sum(axis=1).mean())


@pytest.mark.parametrize("bits", [1, 7, 8, 24, 63, 64, 65, 100])
def test_a_prefix_is_the_first_bits(bits):
    codes = rb.pack(DRAW.normal(size=(9, 100)))
    first = codes.prefix(bits)
    np.testing.assert_array_equal(first.signs(), codes.signs()[:, :bits])
    assert first.bits == bits and rb.Codes(first.packed, bits) == first  # pad bits are zero
    laid_out = words(codes).prefix(bits)
    np.testing.assert_array_equal(laid_out.words, words(first).words)
    assert laid_out.bits == bits


def test_each_prefix_is_nearly_as_good_as_a_code_of_its_own(nested):
    codes = nested.encode(X)
    for bits in (24, 48, 96):
        alone = rb.Reconstruction(bits, rounds=6, tries=1).fit(X)
        ours, own = error(nested, codes.prefix(bits)), error(alone, alone.encode(X))
        assert ours < 1.35 * own
    # the first bits of a code that is not nested, decoded as well as they can be, lose far more
    plain = rb.Reconstruction(96, rounds=6, tries=1).fit(X).encode(X).prefix(24)
    chosen = tables.choose_by_signs(plain.signs().astype(np.float32), 4)
    atoms, centre = tables.solve_atoms(UNIT, chosen, 4, 24, 10.0)
    sums = centre + atoms[np.arange(6) * 16 + chosen].sum(axis=1)
    assert np.square(UNIT - sums).sum(axis=1).mean() > 1.3 * error(nested, codes.prefix(24))


def test_prefixes_are_searched_as_codes_of_their_own(nested):
    codes, questions = nested.encode(X), nested.ask(QUERIES)
    kept = []
    for bits in (24, 48, 96):
        first, asked = codes.prefix(bits), questions.prefix(bits)
        results = rb.HammingIndex(bits).add(first).search(asked, 10)
        decoded = nested.decode(first)
        decoded /= np.linalg.norm(decoded, axis=1, keepdims=True)
        unit = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
        exact = np.sort(1 - unit @ decoded.T, axis=1)[:, :10]
        np.testing.assert_allclose(results.distances, exact, atol=3e-6)
        kept.append(recall(results.ids))
    assert kept[0] < kept[1] < kept[2]


@pytest.mark.parametrize("precision", ["int4", "int8", "float"])
@pytest.mark.parametrize("coarse", [24, 48])
def test_a_coarse_pass_lists_by_the_first_bits(nested, precision, coarse):
    codes, questions = nested.encode(X), nested.ask(QUERIES)
    index = rb.HammingIndex(96)
    for start in range(0, 700, 100):  # several segments, and a removed row in each of them
        index.add(codes[start : start + 100], ids=np.arange(start, start + 100) + 5000)
    index.remove(np.arange(0, 700, 70) + 5000)
    how = {"precision": precision, "coarse": coarse}
    exact = index.search(questions, 10, shortlist=700)
    everything = index.search(questions, 10, shortlist=700, **how)
    np.testing.assert_array_equal(everything.distances, exact.distances)
    some = np.arange(100, 500) + 5000
    short = index.search(questions, 10, shortlist=40, among=some, **how)
    assert np.isin(short.ids, some).all()
    first = rb.HammingIndex(coarse).add(index.codes().prefix(coarse), index.ids)
    for row, ids in enumerate(short.ids):
        listed = first.search(questions.prefix(coarse)[row], 150, among=some).ids[0]
        assert np.isin(ids, listed).all()
    wide = index.search(questions, 10, **how)
    assert recall(wide.ids - 5000) > recall(exact.ids - 5000) - 0.05


def test_a_projection_has_prefixes_too():
    quantizer = rb.Projection(32).fit(X)
    index = rb.HammingIndex(32).add(quantizer.encode(X))
    questions = quantizer.ask(QUERIES)
    exact = index.search(questions, 10, shortlist=700)
    coarse = index.search(questions, 10, shortlist=700, coarse=16)
    np.testing.assert_array_equal(coarse.distances, exact.distances)


def test_nested_codes_are_saved_with_their_fingerprint(nested, tmp_path):
    nested.save(tmp_path / "q")
    again = rb.load(tmp_path / "q")
    assert again.fingerprint == nested.fingerprint and again.nested == (24, 48)
    codes = again.encode(X)
    np.testing.assert_array_equal(codes.packed, nested.encode(X).packed)
    np.testing.assert_array_equal(again.decode(codes.prefix(48)), nested.decode(codes.prefix(48)))
    assert codes.prefix(48).fingerprint == nested.fingerprint
    again.nested_atoms_ = again.nested_atoms_ + 0.01
    assert again.fingerprint != nested.fingerprint
    plain = again.set_params(nested=()).fit(X)
    assert plain.fingerprint != nested.fingerprint
    plain.save(tmp_path / "plain")
    assert rb.load(tmp_path / "plain").fingerprint == plain.fingerprint


def test_refusals(nested):
    codes, questions = nested.encode(X[:9]), nested.ask(X[:2])
    index = rb.HammingIndex(96).add(codes)
    for call, sentence in [
        (lambda: rb.Reconstruction(64, nested=(20,)).fit(X), "nested must be multiples of 8"),
        (lambda: rb.Reconstruction(64, nested=(32, 16)).fit(X), "that rise and stay below 64"),
        (lambda: rb.Reconstruction(64, nested=(64,)).fit(X), "stay below 64 bits; got (64,)."),
        (lambda: codes.prefix(97), "bits must be at most 96, the bits of the codes; got 97."),
        (lambda: codes.prefix(0), "bits must be a whole number"),
        (lambda: questions.prefix(32), "from their first 24, 48, 96 bits; got 32."),
        (lambda: nested.decode(codes.prefix(8)), "from their first 24, 48, 96 bits; got 8."),
        (lambda: index.search(questions, 3, coarse=40), "from their first 24, 48, 96 bits"),
        (lambda: index.search(codes, 3, coarse=24), "coarse is for questions"),
        (lambda: index.search(questions.prefix(24), 3), "bits"),
    ]:
        with pytest.raises(rb.Refusal) as caught:
            call()
        assert sentence in str(caught.value)
