"""The estimator over the whole, and the commands that train and embed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

import rankbits as rb
from rankbits import Refusal, Retriever, TrainConfig
from rankbits.cli import main
from rankbits.data.digits import digits


@pytest.fixture(scope="module")
def made():
    images, labels = digits()
    return images.reshape(-1, 64).astype(np.float32) / 16, labels


@pytest.fixture(scope="module")
def config():
    return TrainConfig(bits=16, epochs=3, lr=0.01, batch_size=64)


def test_embeddings_in_codes_out(made, tmp_path):
    x, y = made
    one = Retriever(bits=16, seed=3).fit(x[:100], y[:100]).add(x[:100])
    q = rb.SupervisedRotation(bits=16, seed=3).fit(x[:100], y[:100])
    wanted = rb.HammingIndex(16).add(q.encode(x[:100])).search(q.encode(x[1000:1010]), 5)
    found = one.search(x[1000:1010], k=5)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    one.save(tmp_path / "kept")
    back = Retriever.load(tmp_path / "kept")
    np.testing.assert_array_equal(back.search(x[1000:1010], 5).ids, found.ids)
    assert back.remove([int(found.ids[0, 0])]) == 1 and len(back) == 99
    report = back.evaluate(x[1000:1100], x[:100], y[1000:1100], y[:100], k=10)
    assert report["mAP"] == rb.evaluate(
        q.encode(x[1000:1100]), q.encode(x[:100]), y[1000:1100], y[:100], k=10
    )["mAP"]  # fmt: skip


def test_a_config_is_trained(made, config, tmp_path):
    x, y = made
    one = Retriever(config).fit(x[:600], y[:600]).add(x[:600], [f"d{i}" for i in range(600)])
    assert isinstance(one.quantizer_, rb.Sign) and one.quantizer_.bits_ == 16
    found = one.search(x[600:605], 3)
    assert all(name.startswith("d") for name in found.ids.reshape(-1))
    one.save(tmp_path / "kept")
    back = Retriever.load(tmp_path / "kept")
    np.testing.assert_array_equal(back.search(x[600:605], 3).ids, found.ids)


def test_any_function_or_module_embeds(made, tmp_path):
    x, _ = made
    half = lambda rows: np.asarray(rows)[:, :32]  # noqa: E731
    one = Retriever(half, "pca", bits=24).fit(x[:500]).add(x[:500])
    assert one.search(x[:3], 1).distances[:, 0].tolist() == [0, 0, 0]
    one.save(tmp_path / "kept")
    with pytest.raises(Refusal, match="your own function; give it as model"):
        Retriever.load(tmp_path / "kept")
    torch.manual_seed(0)
    module = torch.nn.Linear(64, 16)
    assert len(Retriever(module, "sign").fit(x[:50]).add(x[:50])) == 50


def test_refusals(made, config, tmp_path):
    x, _ = made
    for call in (lambda r: r.search(x[:1]), lambda r: r.add(x[:1]), len, lambda r: r.save("x")):
        with pytest.raises(Refusal, match="must be fitted first"):
            call(Retriever())
    with pytest.raises(Refusal, match="Training needs labels"):
        Retriever(config).fit(x[:50])
    with pytest.raises(Refusal, match="must be finite"):
        Retriever().fit(np.full((5, 3), np.nan))
    with pytest.raises(Refusal, match="is not a retriever"):
        Retriever.load(tmp_path)
    with pytest.raises(Refusal, match="one row for each of the inputs"):
        Retriever(lambda rows: np.ones((1, 4))).fit(x[:5])


@pytest.fixture
def pictures(tmp_path, made):
    x, y = made
    for i in range(120):
        where = tmp_path / "pictures" / f"digit{y[i]}"
        where.mkdir(parents=True, exist_ok=True)
        pixels = (x[i].reshape(8, 8) * 255).astype("u1")
        Image.fromarray(pixels).resize((24, 24)).save(where / f"{i}.png")
    return tmp_path


def test_three_lines_of_toml_train_a_folder(pictures, monkeypatch, capsys):
    monkeypatch.chdir(pictures)
    monkeypatch.setenv("RANKBITS_DATA", str(pictures / "root"))
    (pictures / "run.toml").write_text('data = "pictures"\nbits = 16\nout = "run"\n')
    quick = ["--epochs", "2", "--batch-size", "32", "--workers", "0", "--no-tensorboard"]
    assert main(["train", "run.toml", *quick]) == 0
    assert "run: " in capsys.readouterr().out
    assert main(["embed", "run", "pictures", "-o", "x.npz"]) == 0
    found = np.load(pictures / "x.npz")
    assert found["embeddings"].shape == (120, 16) and found["paths"].shape == (120,)
    names = rb.load_run("run").class_names
    folder = [p.split("/")[-2] for p in found["paths"].tolist()]
    assert [names[label] for label in found["labels"]] == folder
    assert main(["embed", "run", "pictures", "-o", "x.npz"]) == 0
    for name in names[:4]:  # a folder of the other classes only: labels stay the run's
        (pictures / "pictures" / name).rename(pictures / name)
    (pictures / "pictures" / names[4]).rename(pictures / "pictures" / "unheard")
    assert main(["embed", "run", "pictures", "-o", "fewer.npz"]) == 0
    fewer = np.load(pictures / "fewer.npz")
    known = [*names, "unheard"]
    assert [known[label] for label in fewer["labels"]] == [
        p.split("/")[-2] for p in fewer["paths"].tolist()
    ]
    assert main(["fit", "x.npz", "--method", "h2q", "-o", "q"]) == 0
    assert main(["encode", "q", "x.npz", "-o", "codes.npz"]) == 0
    assert main(["evaluate", "codes.npz", "codes.npz", "--json"]) == 0
    assert main(["index", "codes.npz", "-o", "pictures.rankbits"]) == 0
    assert rb.open_index("pictures.rankbits").ids.tolist() == found["paths"].tolist()
    capsys.readouterr()
    assert main(["embed", "run", names[0], "-o", "flat.npz"]) == 0
    assert "labels" not in np.load(pictures / "flat.npz")


def test_a_protocol_is_trained_and_judged(tmp_path, monkeypatch, capsys, made):
    """End to end on a protocol of our own making."""
    from rankbits.data import protocols
    from rankbits.data.examples import Examples
    from rankbits.train import source

    x, y = made

    def own(root, seed):
        rows = np.random.default_rng(seed).permutation(len(x))
        return protocols.Protocol(
            "mine", Examples(x, y), rows[:500], rows[500:600], rows[600:], k=(10,)
        )

    monkeypatch.setattr(source, "PROTOCOLS", ("mine",))
    monkeypatch.setattr(source, "protocol", lambda name, root, seed: own(root, seed))
    out = tmp_path / "run"
    flags = ["--bits", "16", "--epochs", "3", "--lr", "0.01", "--batch-size", "64", "--judge"]
    assert main(["train", "--data", "mine", "-o", str(out), "--quantizer", "h2q", *flags]) == 0
    shown = capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert f"{report['figures']['mAP']['mean']:.4f}" in shown
    assert report["queries"] == 100 and report["database"] == len(x) - 600
    run, how = rb.load_run(out), own(None, 0)
    codes = [
        rb.load(out / "quantizer.safetensors").encode(run.embed(x[rows]).embeddings)
        for rows in (how.queries, how.database)
    ]
    again = rb.evaluate(*codes, y[how.queries], y[how.database], k=(10,))
    assert again["mAP"] == pytest.approx(report["figures"]["mAP"]["mean"], abs=1e-12)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "Give the data and the run's folder"),
        (["train", "--data", "omniglott", "-o", "r"], "nor a protocol (did you mean 'omniglot'?)"),
        (["train", "--data", "x", "-o", "r", "--options", "form"], "options must be name=value"),
        (["train", "--data", "x", "-o", "r", "--lrate", "3"], "has no flag --lrate"),
        (["train", "none.toml"], "none.toml does not exist"),
        (["embed", "x"], "Give the run, the inputs and where to write"),
        (["embed", "none", "x", "-o", "y.npz"], "is not a run"),
        (["embed", "none", "x", "-o", "y.txt"], "must end in .npz or .safetensors"),
        (["data", "weights"], "Give a name"),
        (["data", "weights", "resnet51", "x"], "did you mean 'resnet50'?"),
    ],
)
def test_one_line_says_what_is_wrong(words, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_options_of_a_loss_on_the_command_line(tmp_path, made, monkeypatch):
    x, y = made
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", features=x[:200], labels=y[:200])
    flags = ["--loss", "tie-aware-ap", "--options", "form=exact,bins=8", "--epochs", "1"]
    assert main(["train", "--data", "x.npz", "-o", "r", "--bits", "8", *flags]) == 0
    assert rb.load_run("r").config.options == {"form": "exact", "bins": 8}
