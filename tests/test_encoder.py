"""One encoder, from a file to an answer: what it makes, what remembers it, and who is refused."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import rankbits as rb
from rankbits.cli import main
from rankbits.client import Client
from rankbits.data.files import make_file_id
from rankbits.data.items import read_items
from rankbits.encoder.files import load_encoder
from rankbits.encoder.judging import evaluate_index
from rankbits.indexes.checks import read_facts
from rankbits.indexes.engines.notes import read_note, write_note
from rankbits.scale import search as search_by_ray
from rankbits.serve import Rejected, Service
from rankbits.train.run import Inputs

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 4
CENTRES = 3 * RNG.normal(size=(4, 12))
X = (RNG.normal(size=(120, 12)) + CENTRES[LABELS]).astype(np.float32)
ONE, OTHER = rb.ITQ().fit(X), rb.RandomRotation(seed=2).fit(X)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two folders of tiny pictures, bright and dark: twelve to index and six to ask with."""
    folder = tmp_path_factory.mktemp("pictures")
    draw = np.random.default_rng(1)
    for part, many in (("shop", 6), ("new", 3)):
        for name, level in (("bright", 200), ("dark", 40)):
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(many):
                pixels = np.clip(draw.normal(level, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def trained(pictures):
    """The folder of a run on the pictures."""
    out = pictures / "shop.encoder"
    words = ["--bits", "8", "--epochs", "2", "--batch-size", "6", "--validation", "0"]
    assert main(["train", str(pictures / "shop"), "-o", str(out), "--model", "conv", *words]) == 0
    return out


def test_an_encoder_of_vectors_is_a_folder(tmp_path):
    encoder = rb.Encoder.of(ONE)
    encoder.save(tmp_path / "x.encoder")
    back = rb.load(tmp_path / "x.encoder")
    assert repr(back) == "Encoder(vectors of 12 -> 12 bits)" and back.bits == back.dim == 12
    assert back.encode(X) == ONE.encode(X) and back.encode(X[0]) == ONE.encode(X[:1])
    assert back.fingerprint == encoder.fingerprint == ONE.fingerprint == back.encode(X).fingerprint
    assert rb.Encoder.of(OTHER).fingerprint != back.fingerprint
    np.save(tmp_path / "x.npy", X)
    assert back.encode(tmp_path / "x.npy") == ONE.encode(X)
    np.testing.assert_array_equal(back.embed(X), X)
    ONE.save(tmp_path / "q")  # what earlier versions wrote
    assert load_encoder(tmp_path / "q").encode(X) == ONE.encode(X)
    assert isinstance(rb.load(tmp_path / "q"), rb.ITQ)


def test_a_fingerprint_follows_the_weights():
    quantizer = rb.ITQ().fit(X)
    assert quantizer.fingerprint == ONE.fingerprint
    quantizer.weight_ += 1
    assert quantizer.fingerprint != ONE.fingerprint
    net = torch.nn.Linear(12, 6)
    before = rb.Encoder(Inputs("features", dim=12), net).fingerprint
    with torch.no_grad():
        net.bias += 1
    after = rb.Encoder(Inputs("features", dim=12), net)
    assert before != after.fingerprint and after.bits == 6
    with_quantizer = rb.Encoder(Inputs("features", dim=12), net, rb.Sign().fit(after.embed(X)))
    assert with_quantizer.fingerprint != after.fingerprint
    assert with_quantizer.encode(X) == after.encode(X)


def test_an_encoder_of_pictures(pictures, trained):
    encoder = rb.load(trained)
    assert repr(encoder) == "Encoder(images at 16 x 16 -> 8 bits)"
    items = read_items(pictures / "shop")
    codes = encoder.encode(pictures / "shop")
    assert len(codes) == len(items) == 12 and codes.fingerprint == encoder.fingerprint
    one = items.paths[3]
    data = io.BytesIO(Path(one).read_bytes())
    assert encoder.encode(one) == encoder.encode_image(data) == encoder.encode([one])
    assert encoder.encode_embeddings(encoder.embed([one])) == encoder.encode(one)
    with pytest.raises(rb.Refusal, match=r"reads images at 16 x 16; got vectors\."):
        encoder.encode(X)
    with pytest.raises(rb.Refusal, match=r"reads vectors of 12; got images"):
        rb.Encoder.of(ONE).encode(one)
    with pytest.raises(rb.Refusal, match=r"reads vectors of 12; got vectors of 5\."):
        rb.Encoder.of(ONE).encode(X[:, :5])
    with pytest.raises(rb.Refusal, match="reads vectors of 12; got an image"):
        rb.Encoder.of(ONE).encode_image(one)


def test_a_copy_of_a_run_is_the_same_encoder(trained, tmp_path):
    encoder = rb.load(trained)
    encoder.save(tmp_path / "copy")
    assert rb.load(tmp_path / "copy").fingerprint == encoder.fingerprint
    assert not (tmp_path / "copy" / "log.jsonl").exists()


def test_refusals_of_encoders(tmp_path):
    with pytest.raises(rb.Refusal, match="needs a network or a quantizer"):
        rb.Encoder(Inputs("features", dim=3))
    with pytest.raises(rb.Refusal, match="does not exist; rankbits train or fit makes"):
        load_encoder(tmp_path / "nowhere")
    with pytest.raises(rb.Refusal, match=r"is not an encoder: it has no encoder\.json"):
        rb.load(tmp_path)
    own = rb.Encoder(Inputs("features", dim=12), torch.nn.Linear(12, 4))
    with pytest.raises(rb.Refusal, match="can save a network of your own"):
        own.save(tmp_path / "own")
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    for place, said in (("file", "is a file; an encoder needs"), ("full", "is not empty and")):
        with pytest.raises(rb.Refusal, match=said):
            rb.Encoder.of(ONE).save(tmp_path / place)
    rb.Encoder.of(ONE).save(tmp_path / "x")
    for text, said in (
        ("[]", "is damaged or not an encoder's"),
        ('{"version": 9}', "has layout 9"),
        ('{"version": 1, "reads": {"side": 3, "colour": 1}}', "is damaged or not"),
    ):
        (tmp_path / "x" / "encoder.json").write_text(text)
        with pytest.raises(rb.Refusal, match=said):
            rb.load(tmp_path / "x")
    rb.Encoder.of(ONE).save(tmp_path / "y")
    (tmp_path / "y" / "quantizer.safetensors").unlink()
    with pytest.raises(rb.Refusal, match="is not a whole encoder"):
        rb.load(tmp_path / "y")


def test_a_saved_index_keeps_its_encoder(tmp_path):
    made = rb.HammingIndex(12).add(ONE.encode(X))
    made.save(tmp_path / "saved")
    back = rb.HammingIndex.open(tmp_path / "saved")
    assert back.fingerprint == ONE.fingerprint and back.codes().fingerprint == ONE.fingerprint
    plain = rb.HammingIndex(12).add(rb.pack(X))
    plain.save(tmp_path / "plain")
    data = (tmp_path / "plain").read_bytes()
    assert data[8:12] == (1).to_bytes(4, "little")  # as before there were facts
    assert rb.HammingIndex.open(tmp_path / "plain").fingerprint is None


def test_damaged_facts_are_refused(tmp_path):
    path = tmp_path / "x.index"
    with rb.open_index(path, 12) as index:
        index.add(ONE.encode(X))
        index.compact()
    data = path.read_bytes()
    at = data.index(b'"fingerprint"') + 3
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    with pytest.raises(rb.Refusal, match="its facts cannot be read"):
        rb.open_index(path)
    for text in ("[]", '{"a": 1}', '{"fingerprint": "x"}', "{"):
        with pytest.raises(ValueError, match=r"^$|hexadecimal|Expecting"):
            read_facts(text)
    assert read_note(write_note(8, {"a": "b"}), "here") == (8, {"a": "b"})
    for note in ("", "rankbits", "rankbits 8 {", "rankbits 8 []", 'rankbits 8 {"a": 1}'):
        with pytest.raises(rb.Refusal, match="was not made by rankbits"):
            read_note(note, "here")


def test_codes_files_keep_their_encoder(tmp_path):
    for name in ("c.npz", "c.safetensors"):
        ONE.encode(X).save(tmp_path / name)
        assert rb.Codes.load(tmp_path / name).fingerprint == ONE.fingerprint
        rb.pack(X).save(tmp_path / name)
        assert rb.Codes.load(tmp_path / name).fingerprint is None
    with pytest.raises(rb.Refusal, match="16 hexadecimal digits or None; got 'mine'"):
        rb.Codes(np.zeros((1, 1), np.uint8), 8, "mine")
    codes = ONE.encode(X)
    assert codes[3:5].fingerprint == codes[4].fingerprint == ONE.fingerprint
    assert [len(row) for row in codes] == [1] * 120 and list(codes)[3] == codes[3]
    np.testing.assert_array_equal(np.asarray(codes), codes.packed)


def test_judging_refuses_codes_of_two_encoders():
    said = "the database holds codes of encoder"
    with pytest.raises(rb.Refusal, match=said):
        rb.evaluate(ONE.encode(X), OTHER.encode(X), LABELS, LABELS)
    with pytest.raises(rb.Refusal, match=said):
        search_by_ray(ONE.encode(X), OTHER.encode(X), 1)
    assert rb.evaluate(ONE.encode(X), rb.pack(ONE.transform(X)), LABELS, LABELS)["mAP"] > 0.5


def test_the_service_refuses_codes_of_another_encoder(monkeypatch):
    index = rb.HammingIndex(12).add(ONE.encode(X))
    with pytest.raises(rb.Refusal, match="the index holds codes of encoder"):
        Service(index, encoder=rb.Encoder.of(OTHER))
    service = Service(index, encoder=rb.Encoder.of(ONE), token="a-long-token")
    assert asyncio.run(service.stats())["fingerprint"] == ONE.fingerprint
    sent = []
    client = Client("http://127.0.0.1:1")
    monkeypatch.setattr(client, "_post", lambda path, body: sent.append(json.dumps(body).encode()))
    for quantizer in (ONE, OTHER):
        client.search(code=quantizer.encode(X[:1]), k=1)
        client.add([900], quantizer.encode(X[:1]))
    assert b'"distance":0' in asyncio.run(service.search(sent[0]))
    assert asyncio.run(service.add(sent[1])) == {"added": 1, "count": 121}
    for ask, body in ((service.search, sent[2]), (service.add, sent[3])):
        with pytest.raises(Rejected, match="this service holds codes of encoder") as told:
            asyncio.run(ask(body))
        assert told.value.status == 409
    with pytest.raises(Rejected, match="16 hexadecimal digits"):
        asyncio.run(service.search(b'{"code": "0000", "fingerprint": 7}'))
    service.close()


def test_an_index_remembers_all_it_needs(pictures, trained, tmp_path, capsys):
    address = tmp_path / "shop.index"
    shop, new = str(pictures / "shop"), str(pictures / "new")
    assert main(["index", str(trained), shop, "-o", str(address)]) == 0
    assert "12 items of 8 bits" in capsys.readouterr().out
    one = str(pictures / "shop" / "dark" / "2.png")
    assert main(["search", str(address), one, "-k", "12", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]
    at_zero = [i for i, d in zip(found["ids"], found["distances"], strict=True) if d == 0]
    assert "dark/2.png" in at_zero
    assert main(["evaluate", str(address), new, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["queries"] == 6 and report["database"] == 12
    with rb.open_index(address, mode="r") as index:
        assert index.facts["encoder"] == str(trained.resolve())
        again = evaluate_index(index, new)
        assert again["mAP"] == report["figures"]["mAP"]["mean"]
        themselves = evaluate_index(index, shop)  # each leaves itself out
        assert themselves.queries == 12 and themselves.database == 11
        with pytest.raises(ValueError, match="own items are known: leave labels out"):
            evaluate_index(index, shop, labels=np.zeros(12, np.int64))


def test_labels_are_joined_by_name(tmp_path):
    encoder = rb.Encoder.of(ONE)
    encoder.save(tmp_path / "x.encoder")
    names = np.array(["ant", "bee", "cow", "dog"])
    np.savez(tmp_path / "x.npz", embeddings=X[:100], labels=names[LABELS[:100]])
    keep = LABELS[100:] >= 2  # numbered from 0 in their own file, and other classes there
    np.savez(tmp_path / "q.npz", embeddings=X[100:][keep], labels=names[LABELS[100:][keep]])
    with rb.make_index(encoder, tmp_path / "x.npz", tmp_path / "x.index") as index:
        found = evaluate_index(index, tmp_path / "q.npz")
    rows = 100 + np.flatnonzero(keep)
    wanted = rb.evaluate(ONE.encode(X[rows]), ONE.encode(X[:100]), LABELS[rows], LABELS[:100])
    assert found["mAP"] == wanted["mAP"]


def test_what_is_gone_is_told(tmp_path, capsys):
    rb.Encoder.of(ONE).save(tmp_path / "x.encoder")
    np.savez(tmp_path / "x.npz", embeddings=X, labels=LABELS)
    words = [str(tmp_path / name) for name in ("x.encoder", "x.npz", "x.index")]
    assert main(["index", *words[:2], "-o", words[2]]) == 0
    (tmp_path / "x.encoder").rename(tmp_path / "moved.encoder")
    assert main(["search", words[2], words[1]]) == 1
    assert "say where it is now (--encoder)" in capsys.readouterr().err
    moved = ["--encoder", str(tmp_path / "moved.encoder")]
    assert main(["search", words[2], words[1], *moved, "-o", str(tmp_path / "r.npz")]) == 0
    rb.Encoder.of(OTHER).save(tmp_path / "other.encoder")
    capsys.readouterr()
    assert main(["search", words[2], words[1], "--encoder", str(tmp_path / "other.encoder")]) == 1
    assert f"this index holds codes of encoder {ONE.fingerprint}" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "other.encoder"), words[1], "-o", words[2]]) == 1
    assert f"got inputs for encoder {OTHER.fingerprint}" in capsys.readouterr().err
    (tmp_path / "x.npz").rename(tmp_path / "y.npz")
    assert main(["evaluate", words[2], str(tmp_path / "y.npz"), *moved]) == 1
    assert "is gone or has no labels" in capsys.readouterr().err


def test_ids_of_files_are_paths_below_what_was_given(pictures, tmp_path):
    items = read_items(pictures / "new")
    assert items.ids.tolist()[:3] == ["bright/0.png", "bright/1.png", "bright/2.png"]
    assert items.names == ("bright", "dark") and items.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert items.titles[0] == "0" and make_file_id("/a/b/c.png", "/a") == "b/c.png"
    (tmp_path / "list.csv").write_text(
        "path,label,title,id\na/b.png,cat,A cat,x1\nc.png,dog,B,x2\n"
    )
    table = read_items(tmp_path / "list.csv")
    assert table.ids.tolist() == ["x1", "x2"] and table.titles == ("A cat", "B")
    (tmp_path / "plain.csv").write_text("path,label\na/b.png,cat\nc.png,dog\n")
    assert read_items(tmp_path / "plain.csv").ids.tolist() == ["a/b.png", "c.png"]
    np.save(tmp_path / "one.npy", X[0])
    np.save(tmp_path / "bytes.npy", np.arange(24, dtype=np.int8).reshape(2, 12))
    assert read_items(tmp_path / "one.npy").inputs.shape == (1, 12)
    assert read_items(tmp_path / "bytes.npy").inputs.dtype == np.float32
    for name, said in (("nowhere", "does not exist"), ("x.docx", "must be an image, a text")):
        (tmp_path / "x.docx").write_text("x")
        with pytest.raises(rb.Refusal, match=said):
            read_items(tmp_path / name)
