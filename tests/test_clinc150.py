"""CLINC150: the publisher's files, the embeddings made of them, and the two protocols."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import layouts
from rankbits._check import Refusal
from rankbits._files import write_arrays
from rankbits.data.examples import Examples
from rankbits.data.protocol import find_leaks
from rankbits.data.splits import split_classes
from rankbits.papers.draws import draw_classes
from rankbits.papers.protocols import PROTOCOLS, draw_protocol, find_protocol, protocol
from rankbits.papers.publishers import clinc150
from rankbits.papers.publishers.published import Dataset
from rankbits.train import TrainConfig
from rankbits.train.source import read_source

DOMAINS, INTENTS, DIM = 3, 10, 4


@pytest.fixture(autouse=True)
def _unsummed(monkeypatch):
    monkeypatch.setattr(clinc150, "SUMS", {})


def make(root, each=(4, 2, 2), repeat=0):
    """Texts of 3 domains with 10 intents each, as published, and embeddings of them."""
    names = [[f"d{d}i{i}" for i in range(INTENTS)] for d in range(DOMAINS)]
    held = {f"oos_{part}": [[f"nothing {part}", "oos"]] for part in clinc150.PARTS}
    for part, many in zip(clinc150.PARTS, each, strict=True):
        held[part] = [
            [f"{part} {number} of {n}", n] for row in names for n in row for number in range(many)
        ]
    for row in range(repeat):
        held["test"][row] = [held["train"][row][0], held["test"][row][1]]
    layouts.write(root / "clinc150" / "data_full.json", json.dumps(held))
    domains = {f"domain {d}": row for d, row in enumerate(names)}
    layouts.write(root / "clinc150" / "domains.json", json.dumps(domains))
    texts, _, _ = clinc150.read_texts(root)
    put(root, texts)
    return root


def put(root, texts, rows=None, made_of=None):
    """Embeddings of texts, equal for equal texts."""
    known = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    draw = np.random.default_rng(0).standard_normal((len(known), DIM)).astype(np.float16)
    facts = {"texts": clinc150.hash_texts(made_of or texts)}
    values = draw[[known[text] for text in texts]] if rows is None else rows
    write_arrays(root / "clinc150" / "minilm.npz", clinc150.KIND, facts, {"embeddings": values})


def test_intents_are_classes_and_domains_categories(tmp_path):
    found = clinc150.read(make(tmp_path))
    examples = found.examples
    assert len(examples) == 30 * 8 and examples.classes == 30
    assert examples.inputs.dtype == np.float32 and examples.inputs.shape[1] == DIM
    assert {part: len(rows) for part, rows in found.parts.items()} == {
        "train": 120, "val": 60, "test": 60, "once": 240
    }  # fmt: skip
    assert "oos" not in examples.class_names and len(examples.category_names) == DOMAINS
    for label, category in zip(examples.labels, examples.categories, strict=True):
        name = examples.class_names[label]
        assert examples.category_names[category] == f"domain {name[1]}"


def test_a_text_that_came_before_is_left_out(tmp_path):
    found = clinc150.read(make(tmp_path, repeat=3))
    assert len(found.examples) == 240 and len(found.parts["once"]) == 237
    assert not np.isin(found.parts["test"][:3], found.parts["once"]).any()
    one = protocol("clinc150", tmp_path)
    assert len(one.examples) == 237 and find_leaks(one) == []


def test_whole_intents_train_validate_or_are_judged(tmp_path):
    make(tmp_path)
    one, same, other = (protocol("clinc150", tmp_path, seed=s) for s in (1, 1, 2))
    parts = [set(one.examples.labels[rows]) for rows in (one.train, one.validation, one.queries)]
    assert [len(part) for part in parts] == [18, 6, 6] and len(set.union(*parts)) == 30
    for rows, count in ((one.train, 6), (one.validation, 2), (one.queries, 2)):
        labels, categories = one.examples.labels[rows], one.examples.categories[rows]
        assert {len(set(labels[categories == c])) for c in range(DOMAINS)} == {count}
    assert one.exclude_self and one.metric == "hit@1"
    assert np.array_equal(one.train, same.train) and not np.array_equal(one.train, other.train)


def test_the_neighbours_protocol_has_no_labels():
    rows = np.random.default_rng(0).standard_normal((22_100, 1)).astype(np.float32)
    once = np.arange(50, 22_100)
    published = Dataset(Examples(rows, np.zeros(22_100, np.int64)), {"once": once})
    found = draw_protocol("clinc150-neighbours", published, seed=0)
    assert (len(found.train), len(found.queries), len(found.database)) == (5000, 2000, 20_000)
    assert np.isin(found.train, found.database).all() and found.metric == "NDCG"
    assert found.queries.min() >= 50 and found.database.min() >= 50
    assert np.array_equal(found.examples.labels, np.arange(22_100))
    assert "clinc150-neighbours" in PROTOCOLS


def test_without_embeddings_the_script_is_named(tmp_path):
    make(tmp_path)
    (tmp_path / "clinc150" / "minilm.npz").unlink()
    sentence = r"minilm.npz does not exist: put what 'python reproduce/embed_texts.py MODEL_FOLDER'"
    for name in ("clinc150", "clinc150-neighbours"):
        with pytest.raises(Refusal, match=sentence):
            protocol(name, tmp_path)


def test_embeddings_of_other_texts_are_refused(tmp_path):
    texts, _, _ = clinc150.read_texts(make(tmp_path))
    put(tmp_path, texts, made_of=texts[::-1])
    with pytest.raises(Refusal, match="holds embeddings of other texts"):
        clinc150.read(tmp_path)
    put(tmp_path, texts, rows=np.zeros((239, DIM), np.float32))
    with pytest.raises(Refusal, match="must hold 'embeddings', 240 rows"):
        clinc150.read(tmp_path)
    put(tmp_path, texts, rows=np.full((240, DIM), np.nan, np.float16))
    with pytest.raises(Refusal, match="must be finite; row 0"):
        clinc150.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("minilm.npz", b"PK\3\4 no zip", "truncated, damaged or not a rankbits text embeddings"),
        ("minilm.npz", b"", "truncated, damaged or not a rankbits text embeddings"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path, name, content, sentence):
    layouts.write(make(tmp_path) / "clinc150" / name, content)
    with pytest.raises(Refusal, match=sentence) as refusal:
        protocol("clinc150", tmp_path)
    assert name in str(refusal.value) and "\n" not in str(refusal.value)


def test_other_bytes_than_the_publishers_are_refused(tmp_path, monkeypatch):
    make(tmp_path)
    monkeypatch.undo()
    with pytest.raises(Refusal, match=r"data_full.json is damaged or not its publisher's"):
        clinc150.read(tmp_path)
    assert all(re.fullmatch("[0-9a-f]{64}", known) for known in clinc150.SUMS.values())


def test_drawn_classes_are_whole_and_enough():
    labels = np.repeat(np.arange(6), 3)
    first, rest = draw_classes(labels, labels // 3, (1,), seed=0)
    assert len(first) == 6 and not set(labels[first]) & set(labels[rest])
    assert np.array_equal(np.union1d(first, rest), np.arange(18))
    with pytest.raises(Refusal, match="needs 4 classes of every category; category 0 has 3"):
        draw_classes(labels, labels // 3, (4,), seed=0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_classes_are_held_out_whole(share):
    labels = np.repeat(np.arange(20), np.arange(1, 21))
    train, held = split_classes(Examples(np.zeros((210, 1)), labels), share, seed=3)
    assert not set(labels[train]) & set(labels[held]) and len(train) + len(held) == 210
    assert len(set(labels[held])) == round(share * 20)


def test_where_new_classes_are_judged_whole_classes_validate(tmp_path, monkeypatch):
    layouts.unsummed(monkeypatch)
    layouts.make_omniglot(tmp_path)
    found = read_source(TrainConfig(validation=0.5), find_protocol("omniglot", tmp_path))
    assert found.held is not None and len(found.held)
    assert not set(found.held.labels) & set(found.train.labels)
