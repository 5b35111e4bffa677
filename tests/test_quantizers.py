"""Quantizers: one contract for all of them, and what each promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.data.digits import digits
from rankbits.quantizers import orthogonal
from rankbits.quantizers.descent import Adam
from rankbits.quantizers.householder import LOSSES
from rankbits.quantizers.projection import grade_neighbours
from rankbits.quantizers.rotations import quantization_error

pytestmark = pytest.mark.learned
DIM = 12


@pytest.fixture(scope="module")
def made():
    """Clustered rows that are no better aligned with the axes than with anything else."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 6, (900,), generator=draw)
    centres = torch.randn(6, DIM, generator=draw)
    rows = centres[labels] + 0.6 * torch.randn(900, DIM, generator=draw)
    return rows @ orthogonal.random_rotation(DIM, draw, torch.float32), labels.numpy()


EVERY = {
    "sign": lambda: rb.Sign(),
    "random": lambda: rb.RandomRotation(seed=3),
    "itq": lambda: rb.ITQ(),
    "itq-random": lambda: rb.ITQ(start="random", steps=5),
    **{f"h2q-{loss}": (lambda loss=loss: rb.H2Q(loss=loss)) for loss in LOSSES},
    "h2q-sgd": lambda: rb.H2Q(solver="sgd", epochs=3),
    "h2q-adam": lambda: rb.H2Q(solver="sgd", epochs=3, optimizer="adam"),
    "supervised": lambda: rb.SupervisedRotation(steps=12, batch=200),
    "supervised-8": lambda: rb.SupervisedRotation(bits=8, steps=12, batch=200),
    "classes": lambda: rb.SupervisedProjection(),
    "classes-8": lambda: rb.SupervisedProjection(bits=8),
    "machash-8": lambda: rb.MACHash(bits=8, steps=2),
    "pca": lambda: rb.Projection(8),
    "pca-wide": lambda: rb.Projection(30),
    "neighbours": lambda: rb.Projection(8, objective="neighbours", steps=10, batch=200),
}


@pytest.fixture(scope="module", params=EVERY)
def fitted(request, made):
    return EVERY[request.param]().fit(*made)


def sphere(rows):
    return rows * (rows.shape[1] ** 0.5 / rows.norm(dim=1, keepdim=True))


def test_bits_are_the_signs_of_the_outputs(fitted, made):
    rows, _ = made
    codes, outputs = fitted.encode(rows), fitted.transform(rows)
    assert isinstance(outputs, torch.Tensor) and outputs.shape == (900, fitted.bits_)
    assert codes == rb.pack(outputs) and codes.bits == fitted.bits_
    assert fitted.encode(rows.numpy()) == codes
    assert isinstance(fitted.transform(rows.numpy()), np.ndarray)
    assert fitted.encode(3.7 * rows) == codes or fitted.offset_.any()
    assert len(fitted.encode(rows[:0])) == 0


def test_rotations_stay_orthogonal(fitted):
    if not hasattr(fitted, "rotation_"):
        return
    u = fitted.rotation_.double()
    small = u.T @ u if len(u) >= u.shape[1] else u @ u.T
    assert (small - torch.eye(len(small), dtype=torch.float64)).abs().max() < 1e-5


def test_files_come_back(fitted, made, tmp_path):
    rows, _ = made
    fitted.save(tmp_path / "q")
    again = rb.load(tmp_path / "q")
    assert repr(again) == repr(fitted) and again.objective_ == fitted.objective_
    assert again.encode(rows) == fitted.encode(rows)
    whole = (tmp_path / "q").read_bytes()
    (tmp_path / "q").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(rb.Refusal, match="truncated, damaged or not a rankbits quantizer file"):
        rb.load(tmp_path / "q")


def test_folding_gives_identical_bits(fitted, made):
    """On activations away from zero, where rounding of another order of sums cannot flip a sign."""
    rows, _ = made
    torch.manual_seed(0)
    layer = torch.nn.Linear(20, DIM)
    with torch.no_grad():
        inputs = torch.linalg.lstsq(layer.weight, (rows - layer.bias).T).solution.T
        outputs = fitted.transform(layer(inputs))
        folded = fitted.fold(layer)(inputs)
    clear = (outputs.abs() > 1e-4).all(dim=1)
    assert clear.float().mean() > 0.9
    assert rb.pack(folded[clear]) == rb.pack(outputs[clear])
    with torch.no_grad():
        assert rb.pack(fitted.to_linear()(rows)) == fitted.encode(rows)


def test_onnx_gives_identical_bits(fitted, made, tmp_path):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnx.reference")
    rows, _ = made
    fitted.to_onnx(tmp_path / "q.onnx")
    session = runtime.ReferenceEvaluator(onnx.load(tmp_path / "q.onnx"))
    bits, outputs = session.run(None, {"embeddings": rows.numpy()})
    clear = (np.abs(outputs) > 1e-5).all(axis=1)
    assert rb.Codes(np.packbits(bits[clear], axis=1), fitted.bits_) == fitted.encode(rows)[clear]


def test_faiss_gives_identical_bits(fitted, made):
    pytest.importorskip("faiss")
    rows, _ = made
    outputs = fitted.to_faiss().apply(rows.numpy())
    clear = (np.abs(outputs) > 1e-5).all(axis=1)
    assert clear.mean() > 0.9 and rb.pack(outputs[clear]) == fitted.encode(rows)[clear]


def test_init_only_assigns_and_options_can_be_set(fitted):
    options = fitted.get_params()
    fresh = type(fitted)(**options)
    assert fresh.get_params() == options and not hasattr(fresh, "weight_")
    assert fresh.set_params(**options) is fresh
    with pytest.raises(rb.Refusal, match="has no option 'sed'"):
        fresh.set_params(sed=1)
    with pytest.raises(rb.Refusal, match="is not fitted yet"):
        fresh.encode(np.zeros((2, DIM), np.float32))


def test_the_same_seed_gives_the_same_bits(made):
    for make in EVERY.values():
        assert torch.equal(make().fit(*made).weight_, make().fit(*made).weight_)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["fast", "sgd"])
def test_h2q_is_never_worse_than_the_identity(made, loss, solver):
    rows, _ = made
    fitted = rb.H2Q(loss=loss, solver=solver, epochs=2).fit(rows)
    assert fitted.objective_ <= float(LOSSES[loss](sphere(rows))) + 1e-6
    aligned = torch.where(rows > 0, 1.0, -1.0)  # codes already: nothing to gain
    assert (
        rb.H2Q(loss=loss, solver=solver, epochs=2).fit(aligned).objective_
        <= float(LOSSES[loss](aligned)) + 1e-6
    )


def test_a_projection_is_never_worse_than_its_components_as_they_are(made):
    rows, _ = made
    fitted = rb.Projection(7).fit(rows)
    plain = fitted.transform(rows) @ fitted.rotation_  # back to the principal components
    assert fitted.objective_ <= float(quantization_error(sphere(plain))) + 1e-5
    aligned = torch.where(rows[:, :7] > 0, 1.0, -1.0) * torch.linspace(1, 2, 7)
    again = rb.Projection(7).fit(aligned)
    plain = again.transform(aligned) @ again.rotation_
    assert again.objective_ <= float(quantization_error(sphere(plain))) + 1e-5


def test_the_error_is_the_l1_norm_in_disguise(made):
    y = sphere(made[0])
    assert float(quantization_error(y)) == pytest.approx(2 - 2 * float(y.abs().mean()), abs=1e-5)


def test_each_step_of_itq_lowers_the_error(made):
    objectives = rb.ITQ(steps=30).fit(made[0]).objectives_
    assert len(objectives) == 31
    assert all(b <= a + 1e-6 for a, b in itertools.pairwise(objectives))
    assert objectives[-1] < 0.9 * objectives[0]


def test_the_wrong_procrustes_of_public_ports_would_be_caught(made):
    """V'U' in place of VU' barely moves the error."""
    rows = sphere(made[0])
    rotation = torch.eye(DIM)
    for _ in range(30):
        left, _, right = torch.linalg.svd(torch.sign(rows @ rotation.T).T @ rows)
        rotation = (left @ right).T
    assert float(quantization_error(rows @ rotation.T)) > rb.ITQ(steps=30).fit(made[0]).objective_


def test_the_fast_solver_ends_below_itq_and_sgd(made):
    rows, _ = made
    fast = rb.H2Q().fit(rows).objective_
    assert fast <= rb.ITQ(steps=100).fit(rows).objective_ + 1e-3
    assert fast <= rb.H2Q(solver="sgd", epochs=20).fit(rows).objective_ + 1e-3


def test_where_single_precision_gives_up_double_goes_on(made, monkeypatch):
    """LAPACK does so for real, but for other matrices on every machine."""
    matrix = torch.randn(12, 12, generator=torch.Generator().manual_seed(0))
    wanted, whole, failed = orthogonal.polar(matrix), torch.linalg.svd, []

    def gives_up(given, **options):
        if given.dtype == torch.float32:
            failed.append(given)
            raise torch.linalg.LinAlgError("linalg.svd: The algorithm failed to converge")
        return whole(given, **options)

    monkeypatch.setattr(torch.linalg, "svd", gives_up)
    found = orthogonal.polar(matrix)
    assert failed and found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)
    assert rb.H2Q(loss="min_entry").fit(made[0]).objective_ > 0


def test_the_compact_product_is_the_product_of_reflections():
    torch.manual_seed(0)
    vectors = torch.randn(6, 6, dtype=torch.float64)
    wanted = torch.eye(6, dtype=torch.float64)
    for v in vectors.T:
        wanted = wanted @ (torch.eye(6, dtype=torch.float64) - 2 * torch.outer(v, v) / v.dot(v))
    torch.testing.assert_close(orthogonal.householder_product(vectors), wanted)
    minus = orthogonal.householder_product(torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(minus, -torch.eye(6, dtype=torch.float64))


def test_a_supervised_rotation_ranks_rows_no_worse_than_identity_and_h2q(made):
    fitted = rb.SupervisedRotation(steps=40, batch=300).fit(*made)
    assert list(fitted.judged_) == ["identity", "h2q", "climb 1", "climb 2", "climb 3"]
    assert fitted.chosen_.startswith("climb")
    assert fitted.judged_[fitted.chosen_] == max(fitted.judged_.values())
    assert fitted.objective_ == 1 - fitted.judged_[fitted.chosen_]
    assert len(set(fitted.judged_.values())) == 5  # climbs start from different rotations
    codes, labels = fitted.encode(made[0]), made[1]
    again = rb.evaluate(codes, codes, labels, labels, exclude_self=True)["mAP"]
    assert again == pytest.approx(fitted.judged_[fitted.chosen_], abs=1e-9)
    unlabelled = rb.SupervisedRotation(steps=6, batch=200, climbs=1).fit(made[0])
    assert unlabelled.judged_[unlabelled.chosen_] >= unlabelled.judged_["identity"]


def test_rows_that_nothing_is_relevant_to_leave_the_identity(made):
    fitted = rb.SupervisedRotation(steps=2, climbs=1).fit(made[0], np.arange(len(made[0])))
    assert fitted.chosen_ == "identity" and set(fitted.judged_.values()) == {0.0}


def test_the_weight_of_the_quantization_error_pulls_towards_it(made):
    def error(weight):
        rotated = rb.SupervisedRotation(weight=weight, climbs=1).fit(*made).transform(made[0])
        return float(quantization_error(sphere(rotated)))

    assert error(3.0) < error(0.0)


def test_where_no_rotation_helps_the_identity_is_kept():
    """Codes that already are one for each class: perfect as they stand."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (400,), generator=draw)
    codes = torch.randint(0, 2, (4, 8), generator=draw) * 2.0 - 1
    codes[:, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    rows = codes[labels] + 0.01 * torch.randn(400, 8, generator=draw)
    fitted = rb.SupervisedRotation(steps=12).fit(rows, labels.numpy())
    assert fitted.chosen_ == "identity"


def test_labels_of_many_kinds(made):
    rows, labels = made
    sets = np.eye(6)[labels]
    assert rb.SupervisedRotation(steps=6, batch=100).fit(rows, sets).rotation_.shape == (DIM, DIM)


def test_projection_is_principal_components_before_its_rotation(made):
    from sklearn.decomposition import PCA

    rows, _ = made
    fitted = rb.Projection(5).fit(rows)
    ours = fitted.rotation_.T @ fitted.weight_
    theirs = PCA(5).fit(rows.numpy()).components_
    np.testing.assert_allclose(np.abs((ours.numpy() * theirs).sum(1)), 1, atol=1e-3)
    mean = fitted.transform(rows).mean(dim=0)
    assert mean.abs().max() < 1e-3


def test_projection_takes_rows_as_they_come(made):
    rows, _ = made
    whole = rb.Projection(6).fit(rows)
    parts = rb.Projection(6)
    for part in rows.split(300):
        parts.partial_fit(part)
    torch.testing.assert_close(
        (parts.rotation_.T @ parts.weight_).abs(),
        (whole.rotation_.T @ whole.weight_).abs(), atol=1e-3, rtol=1e-3,
    )  # fmt: skip


def test_projection_reads_a_mapped_file(made, tmp_path):
    rows, _ = made
    np.save(tmp_path / "x.npy", rows.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert rb.Projection(6).fit(mapped).encode(mapped) == rb.Projection(6).fit(rows).encode(rows)
    half = rows.half()
    assert len(rb.Projection(6).fit(half).encode(half)) == 900


def test_nearest_neighbours_get_the_shares_of_talr():
    part = torch.randn(1001, 5, generator=torch.Generator().manual_seed(0))
    found = grade_neighbours(part)
    assert found.unique().tolist() == [0, 1, 2, 5, 10]
    counts = {v: (found == v).sum(dim=1).unique().tolist() for v in (1, 2, 5, 10)}
    assert counts == {1: [40], 2: [8], 5: [1], 10: [1]}
    assert (found.diagonal() == 0).all()


def test_neighbours_learn():
    """The trained maps keep more of each row's neighbours than those they start from."""
    rows = digits()[0].reshape(-1, 64).astype(np.float32)
    before = rb.account(rb.Projection(16).fit(rows), rows).recall[10]
    trained = rb.Projection(16, objective="neighbours", steps=60, batch=500).fit(rows)
    assert rb.account(trained, rows).recall[10] > before + 0.01


def test_adam_is_that_of_torch():
    ours, theirs = (torch.tensor([3.0, -2.0, 0.5], requires_grad=True) for _ in range(2))
    adam, other = Adam([ours], 0.1, 30), torch.optim.Adam([theirs], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(other, 30)
    for _ in range(30):
        adam.step((ours**4).sum() + ours.sin().sum())
        other.zero_grad()
        ((theirs**4).sum() + theirs.sin().sum()).backward()
        other.step()
        schedule.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: rb.H2Q().fit(x[:5]), "at least as many rows as bits, 12; got 5."),
        (lambda x: rb.H2Q().fit(x * (torch.arange(900) != 7)[:, None]), "row of zeros; row 7 is"),
        (lambda x: rb.ITQ().fit(x.index_fill(1, torch.tensor([3]), 1.0)), "column 3 is one"),
        (lambda x: rb.Sign().fit(x.index_fill(0, torch.tensor([4]), torch.nan)), "row 4 has nan"),
        (lambda x: rb.Projection(4).fit(x.index_fill(0, torch.tensor([4]), torch.inf)), "row 4"),
        (lambda x: rb.H2Q().fit(x.long()), "floats, int8 or uint8; got torch.int64."),
        (lambda x: rb.H2Q().fit(np.arange(6)), "two dimensions"),
        (lambda x: rb.H2Q(loss="l3").fit(x), "loss must be one of 'l2', 'l1'"),
        (lambda x: rb.H2Q(solver="adam").fit(x), "solver must be one of 'fast', 'sgd'"),
        (lambda x: rb.Projection(0).fit(x), "bits must be a whole number of at least 1; got 0."),
        (lambda x: rb.Projection(4, objective="pcaa").fit(x), "(did you mean 'pca'?)"),
        (lambda x: rb.Sign().fit(x).encode(x[:, :5]), "must have dim 12, as in fit"),
        (lambda x: rb.Sign().fit(x).encode(x + torch.nan), "embeddings must be finite; row 0"),
        (lambda x: rb.Sign().fit(x).fold(torch.nn.Linear(3, 4)), "with 12 outputs"),
        (lambda x: rb.SupervisedRotation().fit(x, np.arange(5)), "labels must have one row"),
        (lambda x: rb.SupervisedRotation(weight=-1).fit(x), "weight must not be below zero"),
        (lambda x: rb.SupervisedRotation(climbs=0).fit(x), "climbs must be a whole number"),
        (
            lambda x: rb.Projection(4, objective="neighbours").partial_fit(x),
            "partial_fit is for objective",
        ),
        (lambda x: rb.Sign().fit(x).to_onnx("q.bin"), "must end in .onnx"),
    ],
)
def test_refusals(made, call, sentence):
    with pytest.raises(rb.Refusal) as caught:
        call(made[0])
    assert sentence in str(caught.value)


def test_an_account_of_what_was_lost(made):
    rows, _ = made
    lost = rb.account(rb.Projection(10).fit(rows), rows)
    assert set(lost.recall) == {1, 10, 100} and lost.constant == 0
    assert all(lost.rescored[k] >= lost.recall[k] for k in lost.recall)
    assert "times smaller" in str(lost) and lost.to_dict()["bits"] == 10
    assert 0 < lost.distinct <= 1 and 0 <= lost.balance < 0.5


@pytest.mark.parametrize(
    ("dtype", "sentence"),
    [
        (np.int8, "16 int8 numbers to 8 bits: 16 times smaller"),
        (np.float16, "16 float16 numbers to 8 bits: 32 times smaller"),
        (np.float32, "16 floats to 8 bits: 64 times smaller"),
    ],
)
def test_an_account_counts_the_bytes_that_the_embeddings_had(dtype, sentence):
    rows = np.random.default_rng(0).normal(0, 40, (200, 16)).clip(-127, 127).astype(dtype)
    quantizer = rb.Projection(8).fit(rows)
    for given in (rows, torch.from_numpy(rows)):
        assert str(rb.account(quantizer, given)).startswith(sentence)


def test_class_bits_tell_known_classes_apart_and_keep_the_rest():
    draw = np.random.default_rng(5)
    centres = 0.6 * draw.normal(size=(8, 40))
    labels = np.arange(400) % 8
    rows = (draw.normal(size=(400, 40)) + centres[labels]).astype(np.float32)
    known, new = labels < 5, labels >= 5
    first, second = np.flatnonzero(known)[::2], np.flatnonzero(known)[1::2]

    def judged(quantizer, queries, database, **options):
        ranking = rb.rank_codes(
            quantizer.encode(rows[queries]), quantizer.encode(rows[database]),
            labels[queries], labels[database], **options,
        )  # fmt: skip
        return rb.average_precision(ranking).mean()

    plain = rb.Projection(32).fit(rows[first])
    made = rb.SupervisedProjection(32).fit(rows[first], labels[first])
    every = rb.SupervisedProjection(32, share=1.0).fit(rows[first], labels[first])
    unseen = np.flatnonzero(new)
    seen = [judged(q, second, first) for q in (plain, made, every)]
    assert seen[0] + 0.1 < min(seen[1:])
    others = [judged(q, unseen, unseen, exclude_self=True) for q in (made, every)]
    assert others[0] > others[1]  # what half of the bits are kept back for
    for words, said in (
        ({"share": 1.5}, "share must lie between 0 and 1"),
        ({"ridge": 0.0}, "ridge must be above 0"),
        ({"shrink": -1.0}, "shrink must be above 0"),
    ):
        with pytest.raises(rb.Refusal, match=said):
            rb.SupervisedProjection(8, **words).fit(rows, labels)
    for marks, said in (
        (None, "needs labels"),
        (np.zeros(400, int), "at least two classes; got one"),
        (np.eye(8, dtype=bool)[labels], "one label a row; got several"),
    ):
        with pytest.raises(rb.Refusal, match=said):
            rb.SupervisedProjection(8).fit(rows, marks)
