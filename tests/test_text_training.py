"""Encoders of texts, trained by labels and by judgements, from a file to what an index finds."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.cli import main
from rankbits.encoder.texts import remove_other_models, save_model
from rankbits.losses import TieAwareAP
from rankbits.models.sentences import open_sentence_model
from rankbits.texts import RankingLoss, train_texts
from rankbits.texts.judged import JudgedLoss, PairBatches, number_judgements, split_judgements
from sentences import WORDS, make_sentence_model

SUBJECTS = ("cat", "dog", "moon", "bone")
FILLERS = ("a", "the", "is", "good", "for", "number", *WORDS[-10:])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_sentence_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def draw_texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts of seven words, two of which are the subject, and the subjects."""
    draw = np.random.default_rng(seed)
    subjects = [SUBJECTS[row % len(SUBJECTS)] for row in range(count)]
    texts = [" ".join(draw.permutation([s, s, *draw.choice(FILLERS, 5)])) for s in subjects]
    return texts, subjects


def write(path: str, *columns: str, rows) -> str:
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    """A table with labels, one of queries, and judgements as BEIR has them: a text is relevant to
    one query of its subject, and more so where it begins with that."""
    texts, labels = draw_texts(240, 0)
    ids = [f"t{row}" for row in range(240)]
    write("t.jsonl", "id", "text", "label", rows=zip(ids, texts, labels, strict=True))
    queries = [(f"q{row}", f"{SUBJECTS[row % 4]} {SUBJECTS[row % 4]} ?") for row in range(16)]
    write("q.jsonl", "_id", "text", rows=queries)
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [
        f"q{row % 16}\tt{row}\t{1 + texts[row].startswith(labels[row])}" for row in range(240)
    ]
    (tmp_path / "qrels.tsv").write_text("\n".join([*lines, "gone\tt1\t1"]) + "\n")
    return tmp_path


def rankbits(capsys, *words):
    """What a command prints on both streams; it must succeed."""
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert status == 0, err
    return out, err


def judge(capsys, encoder: str, *more: str) -> float:
    rankbits(capsys, "index", encoder, "t.jsonl", "-o", f"{encoder}.index")
    words = ("evaluate", f"{encoder}.index", "asked.jsonl", "-k", 10, "--json", *more)
    return json.loads(rankbits(capsys, *words)[0])["figures"]["mAP"]["mean"]


def test_labels_train_a_layer_that_finds_more(files, model, capsys):
    write("asked.jsonl", "text", "label", rows=zip(*draw_texts(80, 1), strict=True))
    fit = ("--bits", 8, "--model", model, "-o")
    rankbits(capsys, "fit", "t.jsonl", *fit, "plain", "--no-curve")
    train = ("train", "t.jsonl", *fit, "own", "--epochs", 15, "--batch-size", 120)
    out, err = rankbits(capsys, *train, "--device", "cpu")
    assert out == "own: Encoder(texts -> 8 bits)\n"
    assert "before training: validation mAP" in err and "216 to learn from, 24 held out" in err
    assert judge(capsys, "own") > judge(capsys, "plain") + 0.1
    encoder = rb.load("own")
    assert encoder.network.name == model and encoder.class_names == tuple(sorted(SUBJECTS))
    again = rankbits(capsys, *train)[1]
    assert "own is finished" in again
    assert rb.load("own").fingerprint == encoder.fingerprint


def test_a_trained_network_leaves_the_one_in_use_until_its_encoder_is_written(tmp_path, model):
    network = open_sentence_model(model)
    first = save_model(tmp_path, network)
    with torch.no_grad():
        next(network.parameters()).add_(1)
    second = save_model(tmp_path, network)
    for named in (first, second):
        assert open_sentence_model(tmp_path / named.name).digest in named.name
    assert first.name != second.name
    remove_other_models(tmp_path, second)
    assert [path.name for path in tmp_path.glob("*network*")] == [second.name]
    assert save_model(tmp_path, network).name == second.name  # the same weights once more


def test_judgements_train_the_whole_network(files, model, capsys):
    more = ("--qrels", "qrels.tsv")
    out, err = rankbits(
        capsys, "train", "t.jsonl", "--queries", "q.jsonl", *more, "--preset", "fine-tune",
        "--bits", 8, "--model", model, "-o", "own", "--epochs", 4, "--lr", 0.003,
        "--head-multiple", 1, "--batch-size", 100, "--memory", 50, "--validation", 0.2,
    )  # fmt: skip
    assert "left out: 1 judgements of an unknown query or text." in err
    assert "validation mAP" in err and out.startswith("own: Encoder(texts")
    shutil.move("own", "moved")  # the network lies inside
    encoder, before = rb.load("moved"), open_sentence_model(model)
    assert encoder.network.digest != before.digest
    assert encoder.network.settings()["prompts"] == before.settings()["prompts"]
    shutil.copy("q.jsonl", "asked.jsonl")
    rankbits(capsys, "fit", "t.jsonl", "--bits", 8, "--model", model, "-o", "plain", "--no-curve")
    assert judge(capsys, "moved", *more) > judge(capsys, "plain", *more)
    with rb.open_index("moved.index", mode="r") as index:
        report = rb.evaluate_index(index, "q.jsonl", qrels="qrels.tsv", k=10)
        assert report.queries == 16 - err.count("left out: q")
        with pytest.raises(rb.Refusal, match="no item of the index as relevant"):
            rb.evaluate_index(index, "q.jsonl", qrels={"q1": {"gone": 1}})


def test_tokens_are_embedded_as_texts_are(model):
    opened, texts = open_sentence_model(model), draw_texts(20, 2)[0]
    texts[3] = "cat"
    for queries in (False, True):
        tokens = torch.from_numpy(opened.tokenize(texts, queries=queries))
        with torch.no_grad():
            rows = opened(tokens).numpy()
        assert np.allclose(rows, opened.embed(texts, queries=queries), atol=1e-5)


def test_bits_that_training_does_not_improve_are_kept(model):
    texts, labels = draw_texts(80, 3)
    told: list[str] = []
    for rate, better in ((1e-9, False), (0.03, True)):
        encoder = train_texts(
            texts, labels, model=model, bits=6, epochs=3, lr=rate, device="cpu", say=told.append
        )
        assert encoder.encode(texts).bits == 6
        assert any("no better bits" in line for line in told) != better
        told.clear()


def test_judged_texts_are_ranked_as_columns_of_them_are():
    torch.manual_seed(0)
    rows, judgements = torch.randn(9, 12), {6: {0: 2, 1: 1}, 7: {2: 1}, 8: {4: 3}}
    numbers = torch.tensor([8, 0, 3, 6, 4, 7, 1, 5, 2])
    loss = JudgedLoss("tie-aware-ap", 6, judgements)
    again = torch.cat([rows, torch.randn(2, 12)]), torch.cat([numbers, torch.tensor([3, 8])])
    value = loss(rows, numbers)
    assert value == loss(*again)  # a text that comes again is the first one
    place = {number: row for row, number in enumerate(numbers.tolist())}
    columns = [[6, 7, 8], [0, 2, 4], [1, 3, 5]]
    features = [{"rows": rows[[place[number] for number in part]]} for part in columns]
    network = torch.nn.Module()
    network.forward = lambda part: {"sentence_embedding": part["rows"]}
    same = RankingLoss(network, TieAwareAP(), judgements=judgements)
    torch.testing.assert_close(same(features, torch.tensor(columns).T), value)


def test_what_is_held_out_is_not_trained_on():
    qrels = {f"q{n}": {f"d{n}": 1, f"d{n % 7}": 2, "x": 1} for n in range(40)}
    names = [f"d{n}" for n in range(60)]
    judgements, unknown = number_judgements(qrels, names, list(qrels))
    assert unknown == 40 and judgements[60 + 9] == {9: 1, 2: 2}
    pairs, held = split_judgements(judgements, 0.3, seed=0)
    hidden = {document for query in held.tolist() for document in judgements[query]}
    assert len(held) and not hidden & set(pairs[:, 1].tolist())
    assert not set(held.tolist()) & set(pairs[:, 0].tolist())
    shared = {60 + n: {0: 1, 1: 1} for n in range(10)}  # no query asks for held documents alone
    others, held = split_judgements(shared, 0.3, seed=0)
    assert len(held) == 3 and not set(held.tolist()) & set(others[:, 0].tolist())
    assert split_judgements(shared, 0.0, seed=0)[1].size == 0
    batches = PairBatches(pairs, 60, 25)
    rows = np.concatenate(list(batches.plan(0)))
    assert set(pairs.reshape(-1).tolist()) <= set(rows.tolist())
    assert not np.array_equal(rows, np.concatenate(list(batches.plan(1))))


REFUSALS = {
    "Training needs to know what is relevant: labels of": ("no.jsonl",),
    "queries and qrels belong together": ("t.jsonl", "--queries", "q.jsonl"),
    "side is not for texts; got 32.": ("t.jsonl", "--side", "32"),
    "preset must be one of 'frozen', 'fine-tune'": ("t.jsonl", "--preset", "from-scratch"),
    "--quantizer and --judge are not for texts": ("t.jsonl", "--quantizer", "itq"),
    "t.jsonl has no column 'abstract'": ("t.jsonl", "--column", "abstract"),
    "labels must have one row for each of the texts: 240": ("t.jsonl", "--labels", "few.txt"),
    "Training needs texts of at least two labels; got 1.": ("one.jsonl",),
    "The qrels name no relevant text of any query": (
        "no.jsonl", "--queries", "q.jsonl", "--qrels", "qrels.tsv",
    ),
    "loss must be": (
        "t.jsonl", "--queries", "q.jsonl", "--qrels", "qrels.tsv", "--loss", "cel",
    ),
    "device must be 'auto', 'cpu', 'cuda' or 'cuda:N'; got 'gpu'.": ("t.jsonl", "--device", "gpu"),
    "queries must be strings, or a file of them": (
        "t.jsonl", "--queries", "photo.png", "--qrels", "qrels.tsv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSALS)
def test_bad_input_is_refused_in_one_sentence(sentence, files, model, capsys):
    write("no.jsonl", "text", rows=[("cat",), ("dog",), ("moon",)])
    write("one.jsonl", "text", "label", rows=[("cat", "a"), ("dog", "a"), ("moon", "a")])
    (files / "few.txt").write_text("a\nb\n")
    (files / "photo.png").write_bytes(b"\x89PNG")
    words = ("train", *REFUSALS[sentence], "--bits", "4", "--model", model, "-o", "own")
    assert main(list(words)) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith("rankbits: ") and sentence in err[-1]
    assert not (files / "own" / "encoder.json").exists()
