"""A layer of bits, its evaluator and training inside sentence-transformers' own trainer, on a small
random BERT."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import rankbits as rb
from rankbits.losses import FastAP, Nested
from rankbits.texts import BitsModel, RankingLoss, add_bits

sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")

TOPICS = [[f"{kind}{n}" for n in range(6)] for kind in ("bone", "star", "boat", "leaf")]
WORDS = [word for topic in TOPICS for word in topic]


def draw_texts(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of four words of a topic each, and the topics."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % len(TOPICS)
    return [" ".join(draw.choice(TOPICS[label], 4)) for label in labels], labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a BERT of one layer with random weights, and a word for each of its tokens."""
    path = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (path / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(path)
    transformers.BertTokenizer(str(path / "vocab.txt")).save_pretrained(path)
    return path


def open_model(folder):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    network = Transformer(str(folder))
    pooling = Pooling(network.get_embedding_dimension())
    return sentence_transformers.SentenceTransformer(modules=[network, pooling], device="cpu")


def test_the_layer_starts_as_the_quantizer_and_is_saved_with_the_model(folder, tmp_path):
    model, (texts, _) = open_model(folder), draw_texts(64, 1)
    embeddings = model.encode(texts)
    quantizer = rb.Projection(8).fit(embeddings)
    wanted = quantizer.transform(embeddings)
    assert add_bits(model, texts, 8, quantizer=quantizer) is model
    outputs = model.encode(texts)
    np.testing.assert_allclose(outputs, np.asarray(wanted) / np.std(wanted), atol=1e-3)
    packed = model.encode(texts, precision="ubinary")
    np.testing.assert_array_equal(packed, rb.pack(outputs).packed)
    model.save(str(tmp_path / "saved"))
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(loaded.encode(texts), outputs, atol=1e-5)
    with pytest.raises(rb.Refusal, match="bits"):
        add_bits(open_model(folder), texts, 16, quantizer=quantizer)


def test_the_evaluator_reports_what_evaluate_says(folder, tmp_path):
    from rankbits.texts import BitsEvaluator

    (asking, asked), (texts, labels) = draw_texts(12, 2), draw_texts(40, 3)
    model = add_bits(open_model(folder), texts, 8)
    evaluator = BitsEvaluator(
        asking, texts, asked, labels, prefixes=(4,), only=("mAP", "NDCG@10"), name="small"
    )
    figures = evaluator(model, str(tmp_path), epoch=1, steps=5)
    queries, database = model.encode(asking), model.encode(texts)
    for way, bits in (("bits", 8), ("bits4", 4)):
        packed = [rb.pack(rows[:, :bits]) for rows in (queries, database)]
        report = rb.evaluate(*packed, asked, labels, only=("mAP", "NDCG@10"), k=10)
        figure = report.figures["mAP"]
        assert figures[f"small_{way}_mAP"] == pytest.approx(figure.value)
        assert figures[f"small_{way}_mAP_worst"] == pytest.approx(figure.worst)
        assert figure.worst < figure.value < figures[f"small_{way}_mAP_best"]
    floats = rb.evaluate(queries, database, asked, labels, only=("mAP",), k=10).figures["mAP"].value
    assert figures["small_cosine_mAP"] == pytest.approx(floats)
    assert "small_questions4_NDCG@10" in figures and "small_questions_mAP_worst" not in figures
    assert evaluator.primary_metric == "small_bits_mAP"
    (line,) = (tmp_path / "bits_evaluation_small.jsonl").read_text().splitlines()
    assert json.loads(line) == {"epoch": 1, "steps": 5, **figures}
    with pytest.raises(rb.Refusal, match="no prefix of 9"):
        BitsEvaluator(asking, texts, asked, labels, prefixes=(9,))(model)


@pytest.mark.parametrize("pairs", [False, True])
def test_the_trainer_of_sentence_transformers_learns_better_bits(folder, tmp_path, pairs):
    """The dataset has labels, or a query and a document in each row, embedded in chunks; bits are
    evaluated after each epoch."""
    pytest.importorskip("accelerate", reason="sentence-transformers' trainer needs accelerate")
    datasets = pytest.importorskip("datasets", reason="the trainer needs the package datasets")
    from rankbits.texts import BitsEvaluator

    (asking, asked), (texts, labels) = draw_texts(40, 4), draw_texts(80, 5)
    model = add_bits(open_model(folder), texts, 8)
    evaluator = BitsEvaluator(asking, texts, asked, labels, prefixes=(4,))
    columns = {"text": texts, "label": labels.tolist()}
    loss = RankingLoss(model, Nested(FastAP(bins=8), (4,)), signs="both")
    if pairs:
        columns = {"query": [TOPICS[label][0] for label in labels], "document": texts}
        loss = RankingLoss(model, "fastap", signs="both", chunk=7)
    before = evaluator(model)
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=8, per_device_train_batch_size=40,
        learning_rate=0.005, eval_strategy="epoch", save_strategy="no", report_to="none",
        disable_tqdm=True, use_cpu=True, seed=0,
    )  # fmt: skip
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model, arguments, train_dataset=datasets.Dataset.from_dict(columns), loss=loss,
        evaluator=evaluator,
    )  # fmt: skip
    trainer.train()
    after = evaluator(model)
    assert after["bits_NDCG@10"] > before["bits_NDCG@10"] + 0.05
    logged = [entry for entry in trainer.state.log_history if "eval_bits_NDCG@10" in entry]
    assert len(logged) == 8
    assert logged[-1]["eval_bits_NDCG@10"] == pytest.approx(after["bits_NDCG@10"])


@pytest.mark.parametrize("questions", [False, True])
def test_boards_rank_as_we_do(folder, questions):
    """mteb runs the bits on a small task of ours; its nDCG@10 lies between our ties' worst and
    best."""
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    (asking, asked), (texts, labels) = draw_texts(8, 6), draw_texts(24, 7)
    model = add_bits(open_model(folder), texts, 8)

    class Topics(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Topics", description="", dataset={"path": "rankbits/topics", "revision": "1"},
            type="Retrieval", category="t2t", eval_splits=["test"], eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )  # fmt: skip

        def load_data(self, **options):
            def column(rows):
                ids = [str(number) for number in range(len(rows))]
                return datasets.Dataset.from_dict({"id": ids, "text": rows})

            qrels = {
                str(q): {str(d): 1 for d in np.flatnonzero(labels == topic)}
                for q, topic in enumerate(asked)
            }
            parts = {"queries": column(asking), "corpus": column(texts), "relevant_docs": qrels}
            self.dataset = {"default": {"test": {**parts, "top_ranked": None}}}
            self.data_loaded = True

    bits = BitsModel(model, questions=questions)
    (result,) = mteb.evaluate(bits, Topics(), cache=None, co2_tracker=False).task_results
    codes, queries = rb.pack(model.encode(texts)), model.encode(asking)
    ask = rb.Questions(queries) if questions else rb.pack(queries)
    figure = rb.evaluate(ask, codes, asked, labels, only=("NDCG@10",), k=10).figures["NDCG@10"]
    assert figure.worst - 1e-4 <= result.scores["test"][0]["ndcg_at_10"] <= figure.best + 1e-4
