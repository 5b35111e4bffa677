"""The classical rivals: what each promises, and what all of them share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits._files import read_arrays, write_arrays
from rankbits.data.digits import digits
from rankbits.quantizers.classical.machines import Machines

pytestmark = pytest.mark.learned
EVERY = {
    "bre": lambda **o: rb.BRE(16, anchors=100, pairs=40, **o),
    "fasthash": lambda **o: rb.FastHash(16, rounds=20, **o),
    "structhash": lambda **o: rb.StructHash(16, rounds=20, queries=60, **o),
    "structhash-auc": lambda **o: rb.StructHash(16, loss="auc", rounds=20, queries=60, **o),
    "machash": lambda **o: rb.MACHash(16, steps=4, **o),
}


def read_digits():
    images, labels = digits()
    rows = images.reshape(-1, 64).astype(np.float32)
    return rows[:500], labels[:500], rows[500:], labels[500:]


TRAIN, LABELS, REST, OTHERS = read_digits()


def judge(encode):
    return rb.evaluate(encode(REST[:300]), encode(REST[300:]), OTHERS[:300], OTHERS[300:])["mAP"]


@pytest.fixture(scope="module", params=EVERY)
def fitted(request):
    return EVERY[request.param]().fit(TRAIN, LABELS)


def test_bits_are_the_signs_of_the_outputs(fitted):
    outputs, codes = fitted.transform(REST), fitted.encode(REST)
    assert outputs.shape == (len(REST), 16) and outputs.dtype == np.float32
    assert codes == rb.pack(outputs) and codes.fingerprint == fitted.fingerprint
    assert fitted.encode(torch.from_numpy(REST)) == codes
    assert fitted.encode(REST[7]) == codes[7:8] and len(fitted.encode(REST[:0])) == 0
    assert fitted.n_features_in_ == 64 and fitted.bits_ == 16


def test_they_are_far_ahead_of_random_and_principal_directions(fitted):
    plain = [rb.RandomRotation(16), rb.Projection(16)]
    assert judge(fitted.encode) > max(judge(q.fit(TRAIN).encode) for q in plain) + 0.1


def test_files_come_back_and_damage_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "q")
    again = rb.load(tmp_path / "q")
    assert repr(again) == repr(fitted) and again.objective_ == fitted.objective_
    assert again.encode(REST) == fitted.encode(REST) and again.fingerprint == fitted.fingerprint
    facts, arrays = read_arrays(tmp_path / "q", "quantizer")
    if isinstance(fitted, rb.MACHash):
        return
    breaks = {
        "features_": lambda a: np.full_like(a, 64), "thresholds_": lambda a: a[:, 1:],
        "leaves_": lambda a: a * np.nan, "anchors_": lambda a: a[:, 1:],
        "centre_": lambda a: a + np.inf, "weight_": lambda a: a - np.inf, "dim_": lambda a: a[None],
    }  # fmt: skip
    for name, change in breaks.items():
        if name in arrays:
            write_arrays(
                tmp_path / "b", "quantizer", facts, arrays | {name: change(arrays[name])},
                form=".safetensors",
            )  # fmt: skip
            with pytest.raises(rb.Refusal, match="is damaged: its arrays do not fit together"):
                rb.load(tmp_path / "b")


@pytest.mark.parametrize("name", EVERY)
def test_the_seed_decides_the_bits(name):
    few, marks = TRAIN[:150], LABELS[:150]
    same = [EVERY[name](seed=s).fit(few, marks).fingerprint for s in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_labels_may_be_names_sets_or_missing():
    few, marks = TRAIN[:150], LABELS[:150]
    numbers = rb.FastHash(8, rounds=5).fit(few, marks).encode(REST)
    assert rb.FastHash(8, rounds=5).fit(few, marks.astype(str)).encode(REST) == numbers
    assert rb.FastHash(8, rounds=5).fit(few, np.eye(10)[marks]).encode(REST) == numbers
    for make in EVERY.values():
        near = make().fit(few).encode(few)
        apart = rb.hamming(near, near)
        cosine = few @ few.T / np.linalg.norm(few, axis=1) / np.linalg.norm(few, axis=1)[:, None]
        assert np.corrcoef(apart.reshape(-1), cosine.reshape(-1))[0, 1] < -0.4


def test_no_step_of_bre_raises_its_objective():
    quantizer = rb.BRE(8, anchors=30, pairs=30, sweeps=3).fit(TRAIN, LABELS)
    objectives = quantizer.objectives_
    assert len(objectives) == 24 and quantizer.objective_ == objectives[-1]
    assert all(after <= before for before, after in itertools.pairwise(objectives))
    assert objectives[-1] < 0.9 * objectives[0]


def test_no_cut_of_fasthash_raises_the_energy():
    quantizer = rb.FastHash(12, rounds=20).fit(TRAIN, LABELS)
    assert len(quantizer.energies_) == 12
    for energies in quantizer.energies_:
        assert all(after <= before for before, after in itertools.pairwise(energies))
    assert any(energies[-1] < energies[0] for energies in quantizer.energies_)
    apart = rb.hamming(*[quantizer.encode(TRAIN)] * 2).astype(float)
    loss = np.where(LABELS[:, None] == LABELS, apart**2, np.maximum(6 - apart, 0) ** 2)
    np.fill_diagonal(loss, 0)
    assert quantizer.objective_ == pytest.approx(loss.sum() / (500 * 499))


@pytest.mark.parametrize("loss", ["ndcg", "auc"])
def test_no_bit_of_structhash_raises_its_objective(loss):
    quantizer = rb.StructHash(8, loss=loss, rounds=20, queries=60).fit(TRAIN, LABELS)
    objectives = quantizer.objectives_
    assert len(objectives) == 8 and quantizer.objective_ == objectives[-1]
    assert all(after <= before for before, after in itertools.pairwise(objectives))
    assert objectives[-1] < 0.5 * objectives[0]


def test_questions_to_structhash_are_weighted_distances():
    quantizer = rb.StructHash(8, rounds=5, queries=30).fit(TRAIN, LABELS)
    codes = quantizer.encode(REST)
    results = rb.HammingIndex(8).add(codes).search(quantizer.ask(REST[:5]), k=50, precision="float")
    differ = codes[:5].signs()[:, None] != codes.signs()
    weighted = (differ * quantizer.weight_.numpy()).sum(axis=2)
    expected = np.sort(weighted, axis=1)[:, :50]
    assert (quantizer.weight_ >= 0).all() and quantizer.weight_.sum() > 0
    np.testing.assert_allclose(
        np.take_along_axis(weighted, results.ids, axis=1), expected, atol=1e-3 * expected.max()
    )


def test_no_step_of_machash_raises_the_penalised_objective():
    quantizer = rb.MACHash(12, steps=6).fit(TRAIN, LABELS)
    for before, codes, functions in quantizer.penalised_:
        assert functions <= codes <= before
    assert quantizer.penalised_[0][2] < quantizer.penalised_[0][0]
    signs = quantizer.encode(TRAIN).signs().astype(float)
    left = signs @ signs.T / 12 - np.where(LABELS[:, None] == LABELS, 1, -1)
    np.fill_diagonal(left, 0)
    assert quantizer.objective_ == pytest.approx(np.square(left).sum() / (500 * 499), rel=1e-3)
    assert quantizer.objective_ == min(quantizer.losses_) < quantizer.losses_[0]


def test_machines_are_those_of_scikit_learn():
    svm = pytest.importorskip("sklearn.svm")
    signs = torch.from_numpy(np.where(LABELS[:, None] > [2, 5], 1.0, -1.0)).float()
    machines = Machines(torch.from_numpy(TRAIN), 2, cost=1.0)
    machines.fit(signs)
    ours = float(machines.measure(machines.planes, signs))
    theirs = torch.zeros_like(machines.planes)
    for bit in range(2):
        # the same bias: a column that is hardly penalised
        other = svm.LinearSVC(C=1.0, dual=False, intercept_scaling=100, max_iter=5000)
        other.fit(machines.rows[:, :-1].numpy(), signs[:, bit].numpy())
        theirs[:-1, bit] = torch.from_numpy(other.coef_[0])
        theirs[-1, bit] = float(other.intercept_[0])
    assert ours <= 1.02 * float(machines.measure(theirs, signs))


def test_an_encoder_and_an_index_take_them(fitted, tmp_path):
    rb.Encoder.of(fitted).save(tmp_path / "made.encoder")
    encoder = rb.load(tmp_path / "made.encoder")
    assert encoder.encode(REST) == fitted.encode(REST)
    np.save(tmp_path / "rows.npy", REST[:200])
    index = rb.make_index(encoder, tmp_path / "rows.npy", str(tmp_path / "made.index"))
    results = index.search(REST[:3], k=1)
    assert (results.distances[:, 0] == 0).all()


def test_no_matrix_makes_these_bits():
    for make in (rb.BRE, rb.FastHash, rb.StructHash):
        quantizer = make(4).fit(TRAIN[:60], LABELS[:60])
        for call in (
            lambda q=quantizer: q.fold(torch.nn.Linear(3, 64)),
            lambda q=quantizer: q.to_linear(),
            lambda q=quantizer: q.to_faiss(),
            lambda q=quantizer: q.to_onnx("x.onnx"),
        ):
            with pytest.raises(rb.Refusal, match=f"{make.__name__} are not the signs of a linear"):
                call()
    layer = rb.MACHash(4, steps=1).fit(TRAIN[:60], LABELS[:60]).to_linear()
    assert layer.weight.shape == (4, 64)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, y: rb.BRE(8).fit(x, y[:5]), "labels must have one row"),
        (lambda x, y: rb.BRE(8, anchors=0).fit(x, y), "anchors must be a whole number"),
        (lambda x, y: rb.BRE(8, pairs=0).fit(x, y), "pairs must be a whole number"),
        (lambda x, y: rb.BRE(8, sweeps=0).fit(x, y), "sweeps must be a whole number"),
        (lambda x, y: rb.BRE(0).fit(x, y), "bits must be a whole number of at least 1; got 0."),
        (lambda x, y: rb.FastHash(8, rounds=0).fit(x, y), "rounds must be a whole number"),
        (lambda x, y: rb.FastHash(8, depth=9).fit(x, y), "depth must be at most 8; got 9."),
        (lambda x, y: rb.FastHash(8).fit(x, 0 * y), "others not; all of these are."),
        (lambda x, y: rb.FastHash(8).fit(x, np.arange(len(x))), "others not; none of these are."),
        (lambda x, y: rb.FastHash(8).fit(x[:1], y[:1]), "at least 2 rows to form pairs; got 1."),
        (lambda x, y: rb.FastHash(8).fit(x * np.nan, y), "must be finite; row 0 has nan or inf."),
        (lambda x, y: rb.FastHash(8, seed=-1).fit(x, y), "seed must be a whole number"),
        (lambda x, y: rb.StructHash(8, loss="map").fit(x, y), "loss must be one of 'ndcg', 'auc'"),
        (lambda x, y: rb.StructHash(8, cost=0).fit(x, y), "cost must be above 0; got 0"),
        (lambda x, y: rb.StructHash(8, planes=0).fit(x, y), "planes must be a whole number"),
        (lambda x, y: rb.MACHash(8, cost=-1).fit(x, y), "cost must be above 0; got -1"),
        (lambda x, y: rb.MACHash(8, steps=0).fit(x, y), "steps must be a whole number"),
        (lambda x, y: rb.FastHash(4, rounds=2).fit(x, y).encode(x[:, 1:]), "must have dim 64"),
        (lambda x, y: rb.FastHash(4, rounds=2).fit(x, y).encode(x * np.nan), "must be finite"),
        (lambda x, y: rb.BRE(4).fit(x, y).encode(x + np.inf), "must be finite"),
        (lambda x, y: rb.StructHash(4).encode(x), "This StructHash is not fitted yet: call fit"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call(TRAIN[:60], LABELS[:60])
    assert sentence in str(caught.value)
