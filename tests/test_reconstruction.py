"""Reconstruction: bits that rebuild embeddings, and what floats ask of them."""

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.kernels import choices as kernels
from rankbits.kernels.cpu import choices as cpu
from rankbits.kernels.reference import choices as reference
from rankbits.quantizers import atoms as tables

DRAW = np.random.default_rng(0)
MIX = DRAW.normal(size=(6, 24))
X = (DRAW.normal(size=(500, 6)) @ MIX + 0.3 * DRAW.normal(size=(500, 24))).astype(np.float32)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)


def cosine(codes, quantizer, rows):
    decoded = quantizer.decode(codes)
    return float(((decoded * rows).sum(1) / np.linalg.norm(decoded, axis=1)).mean())


@pytest.mark.parametrize(("groups", "group", "step"), [(5, 1, 1), (4, 2, 1), (3, 4, 4), (2, 8, 16)])
@pytest.mark.parametrize("tries", [0, 3])
def test_choices_are_those_of_the_definition(groups, group, step, tries):
    draw = np.random.default_rng(group)
    atoms = draw.normal(size=(groups << group, 7))
    rows = draw.normal(size=(40, 7))
    start = draw.integers(0, 1 << group, size=(40, groups)).astype(np.uint8)
    start[:, -1] = start[:, -1] // step * step
    products, gram = (rows @ atoms.T).astype(np.float32), (atoms @ atoms.T).astype(np.float32)
    kicks = kernels.draw_kicks(tries, groups, 1 << group, step)
    ours = cpu.improve_choices(start, products, gram, step, kicks)
    slow = reference.improve_choices(start, products, gram, step, kicks)
    np.testing.assert_array_equal(ours, slow)
    assert (ours[:, -1] % step == 0).all()

    def error(chosen):
        taken = atoms[np.arange(groups) * (1 << group) + chosen]
        return np.square(rows - taken.sum(axis=1)).sum(axis=1)

    assert (error(ours) <= error(start) + 1e-6).all()
    for place in range(groups):  # no change of one group helps
        for value in range(0, 1 << group, step if place == groups - 1 else 1):
            other = ours.copy()
            other[:, place] = value
            assert (error(other) >= error(ours) - 1e-4).all()


def test_counts_and_sums_are_those_of_the_definition():
    chosen = DRAW.integers(0, 16, size=(60, 5)).astype(np.uint8)
    rows = DRAW.normal(size=(60, 3)).astype(np.float32)
    np.testing.assert_array_equal(cpu.count_pairs(chosen, 16), reference.count_pairs(chosen, 16))
    np.testing.assert_allclose(
        cpu.sum_by_choice(chosen, rows, 16), reference.sum_by_choice(chosen, rows, 16), atol=1e-5
    )


@pytest.mark.parametrize("group", [1, 2, 4, 8])
@pytest.mark.parametrize("bits", [1, 13, 16, 29])
def test_signs_and_choices_go_both_ways(group, bits):
    signs = np.where(DRAW.normal(size=(9, bits)) > 0, 1, -1).astype(np.float32)
    chosen = tables.choose_by_signs(signs, group)
    np.testing.assert_array_equal(tables.to_signs(chosen, group, bits), signs)


def test_atoms_are_least_squares():
    signs = np.where(DRAW.normal(size=(300, 8)) > 0, 1, -1).astype(np.float32)
    chosen = tables.choose_by_signs(signs, 4)
    true = DRAW.normal(size=(32, 5)).astype(np.float32)
    rows = true[chosen[:, 0]] + true[16 + chosen[:, 1]]
    atoms, centre = tables.solve_atoms(rows, chosen, 4, 8, 1e-9)
    rebuilt = centre + atoms[chosen[:, 0]] + atoms[16 + chosen[:, 1]]
    np.testing.assert_allclose(rebuilt, rows, atol=2e-3)
    linear, centre = tables.solve_atoms(rows, chosen, 4, 8, None)
    held, _ = tables.solve_atoms(rows, chosen, 4, 8, 1e12)
    np.testing.assert_allclose(held, linear, atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "rows", "group"), [(8, 256, 8), (8, 255, 4), (13, 500, 8), (136, 4500, 4)]
)
def test_short_codes_with_rows_enough_have_groups_of_8(bits, rows, group):
    x = np.random.default_rng(bits).normal(size=(rows, 12)).astype(np.float32)
    quantizer = rb.Reconstruction(bits, rounds=1, tries=0).fit(x)
    assert quantizer.atoms_.shape == (-(-bits // group), 1 << group, 12)


@pytest.mark.parametrize(("bits", "group"), [(8, 4), (13, 4), (24, 1), (24, 8), (60, 4), (100, 2)])
def test_codes_rebuild_rows_and_more_bits_rebuild_more(bits, group):
    quantizer = rb.Reconstruction(bits, group=group, rounds=6, tries=2).fit(X)
    codes = quantizer.encode(X)
    assert codes.bits == bits and len(codes) == 500
    error = float(np.square(UNIT - quantizer.decode(codes)).sum(axis=1).mean())
    assert error <= 1.6 * quantizer.objective_ + 0.001  # encoding finds nearly what fit found
    fewer = rb.Reconstruction(max(4, bits // 2), group=group, rounds=6, tries=2).fit(X)
    assert error < fewer.objective_
    np.testing.assert_array_equal(quantizer.transform(X) > 0, codes.signs() > 0)


def test_rows_fewer_than_vectors_are_not_learned_by_heart():
    rows = np.random.default_rng(3).normal(size=(400, 48)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    new = {}
    for group in (1, 4):
        quantizer = rb.Reconstruction(64, group=group, rounds=6, tries=1).fit(rows[:150])
        sums = quantizer.decode(quantizer.encode(rows[200:]))
        new[group] = float(np.square(unit[200:] - sums).sum(axis=1).mean())
    assert new[4] < 7 * quantizer.objective_  # 11 where vectors are held back as among many rows
    assert new[4] < 1.05 * new[1]


def test_it_keeps_more_than_a_projection():
    queries = UNIT[:60] + 0.05 * DRAW.normal(size=(60, 24)).astype(np.float32)
    nearest = np.argsort(-(queries @ UNIT.T), axis=1)[:, :10]

    def recall(quantizer, ask):
        index = rb.HammingIndex(32).add(quantizer.encode(X))
        asked = quantizer.ask(queries) if ask else quantizer.encode(queries)
        listed = index.search(asked, 10).ids
        return np.mean([len(set(a) & set(b)) for a, b in zip(nearest, listed, strict=True)]) / 10

    projection, ours = rb.Projection(32).fit(X), rb.Reconstruction(32).fit(X)
    assert recall(ours, True) > recall(projection, True) + 0.05
    assert recall(ours, True) > recall(projection, False) + 0.05


def test_the_index_gives_the_order_of_the_decoded_embeddings():
    quantizer = rb.Reconstruction(48, rounds=6).fit(X)
    codes = quantizer.encode(X)
    decoded = quantizer.decode(codes)
    decoded /= np.linalg.norm(decoded, axis=1, keepdims=True)
    results = rb.HammingIndex(48).add(codes).search(quantizer.ask(X[:20]), 5)
    exact = 1 - UNIT[:20] @ decoded.T
    np.testing.assert_allclose(results.distances, np.sort(exact, axis=1)[:, :5], atol=2e-6)
    best = np.take_along_axis(exact, results.ids, 1)
    np.testing.assert_allclose(best, results.distances, atol=2e-6)
    assert (results.distances >= -1e-6).all()


def test_equal_rows_get_equal_codes_wherever_they_stand():
    quantizer = rb.Reconstruction(32, rounds=4).fit(X)
    codes = quantizer.encode(X)
    twice = quantizer.encode(np.concatenate([X[100:140], X[:7], X[100:140]]))
    np.testing.assert_array_equal(twice.packed[:40], twice.packed[47:])
    assert (rb.hamming(twice[:40], codes[100:140]).diagonal() == 0).mean() > 0.9
    np.testing.assert_array_equal(quantizer.encode(X[3] * 5).packed, quantizer.encode(X[3]).packed)


@pytest.mark.filterwarnings("ignore:embeddings vary")
@pytest.mark.parametrize(
    "rows",
    [X[:6], X[:, [0, 0, 1, 1]], np.c_[X[:, :3], np.ones((500, 2))], X.astype(np.float16)],
    ids=["few rows", "repeated columns", "constant columns", "float16"],
)
@pytest.mark.parametrize("bits", [3, 64, 200])
def test_any_embeddings_and_any_number_of_bits(rows, bits):
    quantizer = rb.Reconstruction(bits, rounds=3).fit(rows)
    codes = quantizer.encode(rows)
    unit = rows / np.linalg.norm(rows.astype(np.float32), axis=1, keepdims=True)
    assert cosine(codes, quantizer, unit) > (0.5 if bits == 3 else 0.93)


def test_saved_and_loaded(tmp_path):
    quantizer = rb.Reconstruction(20, group=2, rounds=3, seed=4).fit(torch.from_numpy(X))
    quantizer.save(tmp_path / "q")
    again = rb.load(tmp_path / "q")
    assert again.fingerprint == quantizer.fingerprint and repr(again) == repr(quantizer)
    np.testing.assert_array_equal(again.encode(X).packed, quantizer.encode(X).packed)
    other = rb.Reconstruction(20, group=2, rounds=3, seed=5).fit(X)
    assert other.fingerprint != quantizer.fingerprint
    index = rb.HammingIndex(20).add(quantizer.encode(X))
    with pytest.raises(rb.Refusal, match="encoder"):
        index.search(other.ask(X[:1]), 3)


def test_refusals():
    fitted = rb.Reconstruction(16, rounds=2).fit(X)
    for call, sentence in [
        (lambda: rb.Reconstruction(16, group=3).fit(X), "group must be 1, 2, 4 or 8 bits; got 3."),
        (lambda: rb.Reconstruction(16, rounds=0).fit(X), "rounds must be a whole number"),
        (lambda: rb.Reconstruction(16).encode(X), "is not fitted yet"),
        (lambda: rb.Reconstruction(16).fit(X * np.nan), "must be finite; row 0"),
        (lambda: fitted.encode(X[:, :5]), "must have dim 24"),
        (lambda: fitted.fold(torch.nn.Linear(3, 24)), "not the signs of a linear map"),
        (lambda: fitted.to_onnx("q.onnx"), "not the signs of a linear map"),
        (lambda: fitted.to_linear(), "not the signs of a linear map"),
        (lambda: fitted.to_faiss(), "not the signs of a linear map"),
        (lambda: fitted.decode(rb.pack(X)), "bits"),
    ]:
        with pytest.raises(rb.Refusal) as caught:
            call()
        assert sentence in str(caught.value)
