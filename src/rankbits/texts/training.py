"""Train an encoder of texts by labels or by judgements, in the trainer of this package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._progress import print_line
from rankbits.data.examples import Examples
from rankbits.data.items import Items
from rankbits.data.splits import make_draw, shuffle
from rankbits.data.texts import Texts
from rankbits.data.trec import read_qrels
from rankbits.encoder import Encoder
from rankbits.encoder.files import load_encoder
from rankbits.encoder.fitting import tell_left_out
from rankbits.encoder.folder import QUANTIZER, make_folder, write_encoder
from rankbits.encoder.texts import (
    SENTENCES,
    read_texts,
    remove_other_models,
    save_model,
    save_model_name,
)
from rankbits.models.heads import HashHead
from rankbits.models.sentences import MINILM, BitsNetwork, SentenceModel, open_sentence_model
from rankbits.quantizers import Projection
from rankbits.texts.judged import JudgedLoss, PairBatches, number_judgements, split_judgements
from rankbits.texts.losses import Judgements, grade_pairs
from rankbits.train import TrainConfig, Validation, train
from rankbits.train.embed import Embedded
from rankbits.train.processes import choose_device
from rankbits.train.run import Inputs
from rankbits.train.sentences import embed_texts
from rankbits.train.source import hold_out
from rankbits.train.validation import DATABASE, QUERIES

SAMPLED = 5000  # texts that the first bits are fitted to
PRESETS: dict[str, dict[str, Any]] = {
    "frozen": {  # a layer of bits on the embeddings of a sentence model, which are computed once
        "optimizer": "adamw", "lr": 0.03, "weight_decay": 0.3, "schedule": "cosine",
        "epochs": 40, "batch_size": 1024, "amp": "off",
    },
    "fine-tune": {  # all layers of that model
        "optimizer": "adamw", "lr": 5e-5, "head_multiple": 200.0, "weight_decay": 0.01,
        "schedule": "cosine", "warmup": 0.1, "clip": 1.0, "epochs": 3, "batch_size": 512,
        "chunk": 64,
    },
}  # fmt: skip
FOR_QRELS = {"frozen": {"lr": 0.01}, "fine-tune": {}}  # qrels judge fewer texts than labels do
NOT_OF_TEXTS = (
    "features", "weights", "teachers", "unlabelled", "dim", "hidden", "dropout", "freeze", "side",
    "augment", "mirror",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What a run is trained on, how it is judged, and other arguments of ``train``."""

    examples: Examples
    validation: Validation | None
    options: dict[str, Any] = field(default_factory=dict)


def train_texts(
    texts: Any,
    labels: Any = None,
    *,
    queries: Any = None,
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, int]] | None = None,
    columns: Sequence[str] = (),
    config: TrainConfig | None = None,
    say: Callable[[str], None] = print_line,
    **changes: Any,
) -> Encoder:
    """Train an encoder of texts (a list of strings, a file or a folder).

    ``labels`` (n,) or (n, C), by default those in the file, say what is relevant: texts that share
    a label are relevant to each other. Or ``queries`` are further texts, and ``qrels`` say which
    texts are relevant to them: a file, or {query: {text: grade}} by ids.

    A sentence model (``model=``, by default MiniLM) embeds the texts once, and a layer of ``bits``
    that starts as a ``Projection`` is trained on the embeddings. ``preset="fine-tune"`` trains all
    layers of the model and needs a folder ``out``. ``config`` and ``changes`` are those of
    ``rankbits.train``. A share of the texts (of the judged texts) is held out; if training does not
    improve the bits for these, the bits that it started from are kept.

    >>> encoder = train_texts("texts.jsonl", bits=256, out="notes")  # doctest: +SKIP
    """
    config = (config or TrainConfig()).with_changes(**changes)
    whole, config = config.preset == "fine-tune", _adapt_config(config, qrels is not None)
    if whole and not config.out:
        _check.refuse("preset='fine-tune' needs a folder for the network: give out.")
    if (queries is None) != (qrels is None):
        _check.refuse("queries and qrels belong together: give both, or labels.")
    items = read_texts("texts", texts, columns)
    query_items = None if queries is None else read_texts("queries", queries)
    readable = _keep_readable(items)
    if qrels is None or query_items is None:
        labelled, labels = _find_labels(items, labels, say)
    else:
        judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
        judgements = _find_judgements(judged, readable, _keep_readable(query_items), say)
    name, device = MINILM if config.model == "auto" else config.model, choose_device(config.device)
    model = open_sentence_model(name, str(device))
    features = _make_features(model, items, whole, say)
    if qrels is None or query_items is None:
        task = _make_label_task(features[labelled], labels, config)
    else:
        query_features = _make_features(model, query_items, whole, say, queries=True)
        stacked = _stack(features, query_features)
        task = _make_judged_task(stacked, len(readable), judgements, config)
    start = _fit_start(model, readable, None if whole else features, config)
    head = HashHead(model.dim, start.bits_)
    head.load_state_dict(start.to_linear().state_dict())
    network = BitsNetwork(model, head) if whole else torch.nn.Sequential(head)
    before = None
    if task.validation is None:
        config = config.with_changes(validation=0)
    else:
        before = task.validation.judge(network.to(device), None, device).chosen
        say(f"before training: validation {config.validate_by} {before:.4f}")
    run = train(
        config, examples=task.examples, held=task.validation, model=network, say=say, **task.options
    )
    if not run.progress.finished:
        raise KeyboardInterrupt  # the caller must not go on without an encoder
    better = before is None or run.progress.best is None or run.progress.best > before
    if better:
        start.weight_, start.offset_ = head.weight.detach().cpu(), head.bias.detach().cpu()
    else:
        say("Training found no better bits for the texts held out; the first bits are kept.")
        model = open_sentence_model(name, str(device)) if whole else model
    reads = Inputs("texts", dim=model.dim)
    if not config.out:
        return Encoder(reads, model, start, columns=tuple(columns), class_names=readable.names)
    folder = make_folder(config.out)
    if whole and better:
        model = save_model(folder, model)
    name_model = partial(save_model_name, model=model, columns=columns)
    write_encoder(folder, {SENTENCES: name_model, QUANTIZER: start.save}, reads, readable.names)
    remove_other_models(folder, model)
    return load_encoder(folder, device=str(device))


def _adapt_config(config: TrainConfig, judged: bool) -> TrainConfig:
    """``config`` with the preset for texts in place of its defaults; refuses settings of images."""
    name = _check.choice("preset", config.preset or "frozen", tuple(PRESETS))
    defaults = TrainConfig(preset=config.preset).facts()
    changed = {key: value for key, value in config.facts().items() if value != defaults[key]}
    for key in NOT_OF_TEXTS:
        if key in changed:
            _check.refuse(f"{key} is not for texts; got {changed[key]!r}.")
    return TrainConfig(**PRESETS[name] | (FOR_QRELS[name] if judged else {}) | changed)


def _keep_readable(items: Items) -> Items:
    """The items whose texts can be read; refuses if there are none."""
    assert isinstance(items.inputs, Texts)
    if not len(items.inputs.readable):
        _check.refuse(f"None of {len(items):,} texts can be read; {items.inputs.sentences[0]}")
    return items.subset(items.inputs.readable)


def _make_features(
    model: SentenceModel,
    items: Items,
    whole: bool,
    say: Callable[[str], None],
    queries: bool = False,
) -> np.ndarray:
    """The input of the network for each text that can be read: its embedding, or its tokens if the
    ``whole`` network is trained."""
    assert isinstance(items.inputs, Texts)
    if whole:
        rows, failed = items.inputs.readable, items.inputs.sentences
        tell_left_out(Embedded(np.empty((0, 0)), rows, failed), model, say)
        return model.tokenize(items.inputs.values[rows].tolist(), queries=queries)
    embedded = embed_texts(model, items.inputs, queries=queries, progress=True)
    tell_left_out(embedded, model, say)
    return embedded.embeddings


def _fit_start(
    model: SentenceModel, items: Items, embeddings: np.ndarray | None, config: TrainConfig
) -> Projection:
    """The bits that training starts from, scaled so that the outputs vary by about 1."""
    rows = shuffle(np.arange(len(items)), make_draw(config.seed))[:SAMPLED]
    _check.not_empty("texts", len(rows))
    if embeddings is None:
        texts = items.subset(np.sort(rows)).inputs
        assert isinstance(texts, Texts)
        sample = embed_texts(model, texts, progress=True).embeddings
    else:
        sample = embeddings[rows]
    start = Projection(config.width, seed=config.seed).fit(sample)
    spread = max(float(np.std(start.transform(sample))), 1e-12)
    start.weight_, start.offset_ = start.weight_ / spread, start.offset_ / spread
    return start


def _find_labels(
    items: Items, labels: Any, say: Callable[[str], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Which of the texts that can be read have a label, in ``labels`` or else in ``items``; and
    those labels."""
    assert isinstance(items.inputs, Texts)
    rows = items.inputs.readable
    if labels is not None:
        _check.same_length("labels", len(labels), "the texts", len(items))
        labelled, labels = np.arange(len(rows)), np.asarray(labels)[rows]
    elif items.labels is None:
        _check.refuse(
            "Training needs to know what is relevant: labels of the texts, or queries with qrels. "
            "rankbits fit makes bits of texts alone."
        )
    else:
        labels = items.labels[rows]
        labelled = np.flatnonzero(labels >= 0 if labels.ndim == 1 else labels.any(1))
    if len(labelled) < len(labels):
        say(f"left out: {len(labels) - len(labelled):,} texts without a label.")
    different = len(np.unique(labels[labelled], axis=0))
    if different < 2:
        _check.refuse(f"Training needs texts of at least two labels; got {different}.")
    return labelled, labels[labelled]


def _make_label_task(features: np.ndarray, labels: np.ndarray, config: TrainConfig) -> Task:
    source = hold_out(Examples(features, labels), config)
    validation = None
    if isinstance(source.held, Examples) and len(source.held):
        validation = Validation(
            source.train, source.held, binary=True, seed=config.seed, figure=config.validate_by
        )
    return Task(source.train, validation)


def _find_judgements(
    qrels: Mapping[str, Mapping[str, int]],
    items: Items,
    queries: Items,
    say: Callable[[str], None],
) -> Judgements:
    judgements, unknown = number_judgements(qrels, items.ids, queries.ids)
    if not judgements:
        _check.refuse("The qrels name no relevant text of any query: their ids must be the texts'.")
    if unknown:
        say(f"left out: {unknown:,} judgements of an unknown query or text.")
    return judgements


def _make_judged_task(
    features: np.ndarray, documents: int, judgements: Judgements, config: TrainConfig
) -> Task:
    pairs, held_out = split_judgements(judgements, config.validation, config.seed)
    examples = Examples(features, np.arange(len(features)))
    draw = make_draw(config.seed)
    queries = shuffle(held_out, draw)[:QUERIES]
    validation = None
    if len(queries):
        relevant = [document for query in queries.tolist() for document in judgements[query]]
        others = shuffle(np.arange(documents), draw)[:DATABASE]
        rows = np.union1d(relevant, others).astype(np.int64)
        grades = grade_pairs(judgements, torch.from_numpy(queries), torch.from_numpy(rows)).long()
        validation = Validation(
            examples.subset(rows), examples.subset(queries), binary=True, grades=grades.numpy(),
            figure=config.validate_by,
        )  # fmt: skip
    loss = JudgedLoss(config.loss, documents, judgements, **config.options or {})
    sampler = PairBatches(pairs, documents, config.batch_size, seed=config.seed)
    return Task(examples, validation, {"loss": loss, "sampler": sampler})


def _stack(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Stack rows of embeddings, or of tokens, which are padded with -1 to one width."""
    width = max(first.shape[1], second.shape[1])
    parts = [
        np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1)
        for part in (first, second)
    ]
    return np.concatenate(parts)
