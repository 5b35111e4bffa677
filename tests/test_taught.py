"""Features of a frozen network, kept; and labels that teachers give."""

import shutil

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.cli import main
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.train import TrainConfig, features, teach, train
from rankbits.train.features import compute_features
from rankbits.train.run import Inputs, Run, load_run
from rankbits.train.source import read_source
from rankbits.train.teach import add_taught_examples, pick_surest


def pictures(rows, seed=0):
    """Bars, upright or lying: two classes a small network tells apart at once."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, rows)
    images = draw.integers(0, 60, (rows, 16, 16, 3)).astype(np.uint8)
    for row, label in enumerate(labels):
        at = draw.integers(2, 11)
        images[row, at : at + 3] += np.uint8(120 * (label == 0))
        images[row, :, at : at + 3] += np.uint8(120 * (label == 1))
    return Examples(images, labels, class_names=("lying", "upright"))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    out = tmp_path_factory.mktemp("teacher") / "run"
    return train(
        examples=pictures(120), out=str(out), bits=8, epochs=6, batch_size=40, lr=0.003, say=id
    )


def settings(teacher, root, **more):
    return TrainConfig(features=str(teacher.folder), root=str(root), device="cpu", **more)


def test_features_are_the_outputs_of_the_body_and_computed_once(teacher, tmp_path, monkeypatch):
    examples = pictures(30, seed=1)
    config = settings(teacher, tmp_path)
    found = compute_features(examples, config)
    body = teacher.model.backbone.eval()
    with torch.no_grad():
        wanted = body(View(16, 3).see_centre(torch.from_numpy(examples.inputs)))
    assert found.inputs.dtype == np.float16
    np.testing.assert_allclose(found.inputs, wanted, atol=2e-3)
    np.testing.assert_array_equal(found.labels, examples.labels)
    monkeypatch.setattr(features, "_embed_images", lambda *_, **__: pytest.fail("computed again"))
    np.testing.assert_array_equal(compute_features(examples, config).inputs, found.inputs)


def test_other_images_or_weights_are_other_features(teacher, tmp_path):
    config = settings(teacher, tmp_path)
    compute_features(pictures(30, seed=1), config)
    compute_features(pictures(30, seed=2), config)
    other = tmp_path / "other"
    train(examples=pictures(40), out=str(other), bits=8, epochs=1, say=id)
    compute_features(pictures(30, seed=1), settings(teacher, tmp_path).with_changes(
        features=str(other)))  # fmt: skip
    assert len(list((tmp_path / "features").glob("*.npy"))) == 3


def test_a_damaged_cache_is_refused_by_name(teacher, tmp_path):
    examples, config = pictures(30, seed=1), settings(teacher, tmp_path)
    compute_features(examples, config)
    (path,) = (tmp_path / "features").glob("*.npy")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(rb.Refusal, match="is damaged: remove it"):
        compute_features(examples, config)


@pytest.mark.parametrize(
    ("name", "rows", "says"),
    [
        ("efficientnet-lite9", pictures(4), "did you mean 'efficientnet-lite"),
        ("efficientnet-lite0", Examples(np.eye(3), [0, 1, 1]), "are features already"),
    ],
)
def test_features_that_cannot_be_had_are_refused(tmp_path, name, rows, says):
    with pytest.raises(rb.Refusal, match=says):
        compute_features(rows, TrainConfig(features=name, root=str(tmp_path)))


def test_a_run_on_features_has_nothing_to_freeze(tmp_path):
    own = Examples(np.eye(4, dtype=np.float32), [0, 0, 1, 1])
    out = str(tmp_path / "run")
    train(examples=own, validation=0, bits=4, epochs=1, out=out, say=id)
    with pytest.raises(rb.Refusal, match="no layers that make features of images"):
        compute_features(pictures(4), TrainConfig(features=out, root=str(tmp_path), device="cpu"))


@pytest.mark.learned
def test_a_head_is_trained_on_kept_features_and_embeds_images(
    teacher, tmp_path, monkeypatch, capsys
):
    from PIL import Image

    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "root"))
    examples = pictures(60, seed=3)
    for row, (image, label) in enumerate(zip(examples.inputs, examples.labels, strict=True)):
        folder = tmp_path / "images" / examples.class_names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{row}.png")
    out, flags = str(tmp_path / "run"), ["--bits", "8", "--epochs", "4", "--lr", "0.01"]
    said = ["train", "--data", str(tmp_path / "images"), "-o", out]
    assert main([*said, "--features", str(teacher.folder), *flags]) == 0
    run = rb.load_run(out)
    assert run.inputs == Inputs("features", dim=teacher.model.backbone.features)
    assert main(["embed", out, str(tmp_path / "images"), "-o", str(tmp_path / "x.npz")]) == 0
    assert np.load(tmp_path / "x.npz")["embeddings"].shape == (60, 8)
    assert run.progress.best > 0.8


def test_the_surest_rows_of_each_class_are_kept():
    run = Run(torch.nn.Identity(), TrainConfig(bits=2), Inputs("features", dim=2))
    known = Examples(np.float32([[1, 0], [0, 1]]), [4, 9])
    draw = np.random.default_rng(0)
    new = Examples(draw.random((200, 2)).astype(np.float32), np.zeros(200, int))
    rows, labels = pick_surest([run, run], known, new, 0.3)
    x = new.inputs
    wanted = np.where(x[:, 0] > x[:, 1], 4, 9)
    np.testing.assert_array_equal(labels, wanted[rows])
    for label in (4, 9):
        mine = np.flatnonzero(wanted == label)
        lean = np.abs(np.arctan2(x[:, 0], x[:, 1]) - np.pi / 4)
        top = mine[np.argsort(-lean[mine])[: round(0.3 * len(mine))]]
        assert set(top) == set(rows[labels == label])


@pytest.mark.learned
def test_teachers_label_a_database_but_no_query_and_no_held_row(
    teacher, tmp_path, monkeypatch, capsys
):
    whole = pictures(200, seed=5)
    rows = np.random.default_rng(0).permutation(200)
    mine = Protocol("mine", whole, rows[:40], rows[40:60], np.r_[rows[:40], rows[60:]])
    config = TrainConfig(teachers=str(teacher.folder), taught=0.5, device="cpu", validation=0.25)
    found = read_source(config, mine)
    assert len(found.held) == 10
    known = 30
    more = found.train.inputs[known:]
    assert abs(len(more) - 70) <= 2
    keys = {image.tobytes(): row for row, image in enumerate(whole.inputs)}
    places = np.array([keys[image.tobytes()] for image in more])
    assert not np.isin(places, rows[:60]).any()
    right = found.train.labels[known:] == whole.labels[places]
    assert right.mean() > 0.9


def test_a_teacher_looks_at_the_same_images_once(tmp_path, monkeypatch):
    out = str(tmp_path / "run")
    run = train(examples=pictures(80), out=out, bits=8, epochs=3, batch_size=40, say=id)
    known, new = pictures(40), pictures(50, seed=9)
    first = pick_surest([run], known, new, 0.8)
    looked, embed = [], Run.embed
    monkeypatch.setattr(Run, "embed", lambda s, e, **o: looked.append(len(e)) or embed(s, e, **o))
    for found, wanted in zip(pick_surest([run], known, new, 0.8), first, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not looked
    pick_surest([run], known, pictures(51, seed=9), 0.8)
    assert looked == [51]
    with torch.no_grad():
        next(run.model.parameters()).mul_(0.9)
    run.save_weights()
    pick_surest([run], known, new, 0.8)
    assert looked == [51, 40, 50]


def test_a_teacher_that_is_somebody_elses_is_left_as_it_is(teacher, tmp_path, monkeypatch):
    run = load_run(shutil.copytree(teacher.folder, tmp_path / "theirs"))
    shutil.rmtree(run.folder / "outputs", ignore_errors=True)
    monkeypatch.setattr(teach.os, "access", lambda path, mode: path != run.folder)
    before = sorted(run.folder.iterdir())
    rows, _ = pick_surest([run], pictures(40), pictures(50, seed=9), 0.8)
    assert len(rows) == 40 and sorted(run.folder.iterdir()) == before


def test_an_output_is_the_mean_of_an_image_and_its_mirror(tmp_path):
    draw = np.random.default_rng(1)
    mixed = Examples(pictures(80).inputs, draw.integers(0, 2, 80))  # so that no ranking is perfect
    own = {"examples": mixed, "bits": 8, "epochs": 1, "batch_size": 40, "alpha": 1, "say": id}
    run = train(out=str(tmp_path / "run"), mirror=True, **own)
    images = pictures(20, seed=3).inputs
    one, other = (run.embed(i, mirror=False).embeddings for i in (images, images[:, :, ::-1]))
    assert np.abs(one - other).max() > 1e-4
    for found in (run.embed(images), load_run(tmp_path / "run").embed(images)):
        np.testing.assert_allclose(found.embeddings, (one + other) / 2, atol=1e-6)
    plain = train(**own)
    assert plain.progress.best != run.progress.best  # validation looks at mirrors too
    np.testing.assert_array_equal(plain.embed(images).embeddings, one)  # training does not


def test_teachers_look_at_mirrors_where_they_are_asked_to(teacher, monkeypatch):
    known, new = pictures(40), pictures(50, seed=11)
    looked, embed = [], Run.embed
    monkeypatch.setattr(
        Run, "embed", lambda s, e, **o: looked.append(o["mirror"]) or embed(s, e, **o)
    )
    folder, wanted = str(teacher.folder), {}
    for mirror in (False, True, False, True):
        found = add_taught_examples(known, new, folder, 0.9, "cpu", mirror)
        np.testing.assert_array_equal(wanted.setdefault(mirror, found.labels), found.labels)
    assert looked == [None, None, True, True]


def test_features_of_an_image_and_its_mirror_are_kept_apart_from_its_own(teacher, tmp_path):
    examples, other = pictures(30, seed=1), pictures(30, seed=1).inputs[:, :, ::-1].copy()
    config = settings(teacher, tmp_path)
    own, its = (compute_features(e, config).inputs for e in (examples, Examples(other, [0] * 30)))
    both = compute_features(examples, config.with_changes(mirror=True)).inputs
    np.testing.assert_allclose(both, (own.astype(np.float32) + its) / 2, atol=2e-3)
    assert np.abs(both.astype(np.float32) - own).max() > 4e-3
    np.testing.assert_array_equal(compute_features(examples, config).inputs, own)
    np.savez(tmp_path / "own.npz", images=examples.inputs, labels=examples.labels)
    run = train(
        settings(teacher, tmp_path, mirror=True, data=str(tmp_path / "own.npz"), bits=8, epochs=1),
        say=id,
    )
    assert run.inputs.dim == own.shape[1]


def test_features_have_no_mirror():
    with pytest.raises(rb.Refusal, match="mirror is for images"):
        train(examples=Examples(np.eye(6), [0, 1, 0, 1, 0, 1]), mirror=True, validation=0, say=id)


def test_teachers_label_own_images(teacher, tmp_path):
    np.savez(tmp_path / "known.npz", images=pictures(40).inputs, labels=pictures(40).labels)
    np.save(tmp_path / "new.npy", pictures(50, seed=9).inputs)
    config = TrainConfig(
        data=str(tmp_path / "known.npz"), teachers=str(teacher.folder), taught=1.0,
        unlabelled=str(tmp_path / "new.npy"), validation=0, device="cpu",
    )  # fmt: skip
    assert len(read_source(config).train) == 90
    with pytest.raises(rb.Refusal, match="give them as unlabelled"):
        read_source(config.with_changes(unlabelled=None))


def test_what_teachers_cannot_do_is_refused(teacher):
    several = Examples(pictures(4).inputs, np.eye(4, dtype=bool))
    with pytest.raises(rb.Refusal, match="one class for each example"):
        add_taught_examples(several, pictures(4), str(teacher.folder), 0.5)
    with pytest.raises(rb.Refusal, match="is a share above 0"):
        add_taught_examples(pictures(4), pictures(4), str(teacher.folder), 1.5, "cpu")
