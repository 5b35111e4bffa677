"""Train an encoder of texts by labels or by judgements, in the trainer of this package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.items import Items
from rankbits.data.splits import make_draw, shuffle
from rankbits.data.texts import Texts
from rankbits.data.trec import read_qrels
from rankbits.encoder import Encoder
from rankbits.encoder.files import load_encoder
from rankbits.encoder.fitting import tell_left_out
from rankbits.encoder.folder import QUANTIZER, make_folder, write_encoder
from rankbits.encoder.texts import SENTENCES, save_model_name, take_texts
from rankbits.models.heads import HashHead
from rankbits.models.sentences import MINILM, BitsNetwork, SentenceModel, open_sentence_model
from rankbits.quantizers import Projection
from rankbits.texts.judged import JudgedLoss, PairBatches, number_judgements, split_judgements
from rankbits.texts.losses import Judgements, grade_pairs
from rankbits.train import TrainConfig, Validation, train
from rankbits.train.embed import DATABASE, QUERIES, Embedded
from rankbits.train.meter import print_line
from rankbits.train.processes import choose_device
from rankbits.train.run import Inputs
from rankbits.train.sentences import embed_texts
from rankbits.train.source import hold_out

NETWORK = "network"  # the folder, inside the encoder's, of a sentence model that was trained
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
JUDGED = {"frozen": {"lr": 0.01}, "fine-tune": {}}  # by qrels: fewer texts are learned from
NOT_OF_TEXTS = (
    "features", "weights", "teachers", "unlabelled", "dim", "hidden", "dropout", "freeze", "side",
    "augment", "mirror",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What a run learns from, how it is judged, and what else ``train`` takes."""

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
    """Train an encoder of texts (a list of strings, a file or a folder) by what is relevant.

    That is said by ``labels`` (n,) or (n, C), by default those beside the texts: texts that share
    one are relevant to each other. Or ``queries`` are further texts, and ``qrels`` say which texts
    are relevant to them: a file, or {query: {text: grade}} by their ids.

    A sentence model (``model=``, by default MiniLM) embeds the texts once, and a layer of ``bits``
    that starts as a ``Projection`` is trained on the embeddings. ``preset="fine-tune"`` trains all
    layers of the model, for which ``out`` must be a folder. ``config`` and ``changes`` are those of
    ``rankbits.train``. A share of the texts (of the judged texts) is held out, and where training
    finds no better bits for these than it began with, the first ones are kept.

    >>> encoder = train_texts("texts.jsonl", bits=256, out="notes")  # doctest: +SKIP
    """
    config = (config or TrainConfig()).with_changes(**changes)
    whole, config = config.preset == "fine-tune", suit_texts(config, qrels is not None)
    if whole and not config.out:
        _check.refuse("A whole network is trained into a folder: give out.")
    if (queries is None) != (qrels is None):
        _check.refuse("queries and qrels belong together: give both, or labels.")
    items = _read_texts("texts", texts, columns)
    asking = None if queries is None else _read_texts("queries", queries)
    kept = _keep_readable(items)
    if qrels is None or asking is None:
        known, labels = _find_labels(items, labels, say)
    else:
        judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
        judgements = _find_judgements(judged, kept, _keep_readable(asking), say)
    name, device = MINILM if config.model == "auto" else config.model, choose_device(config.device)
    model = open_sentence_model(name, str(device))
    features = _make_features(model, items, whole, say)
    if qrels is None or asking is None:
        task = _learn_labels(features[known], labels, config)
    else:
        asked = _make_features(model, asking, whole, say, queries=True)
        task = _learn_judgements(_stack(features, asked), len(kept), judgements, config)
    start = _fit_start(model, kept, None if whole else features, config)
    head = HashHead(model.dim, start.bits_)
    head.load_state_dict(start.to_linear().state_dict())
    network = BitsNetwork(model, head) if whole else torch.nn.Sequential(head)
    before = None
    if task.validation is None:
        config = config.with_changes(validation=0)
    else:
        before = task.validation.judge(network.to(device), None, device).mean_precision
        say(f"before training: validation mAP {before:.4f}")
    run = train(
        config, examples=task.examples, held=task.validation, model=network, say=say, **task.options
    )
    if not run.progress.finished:
        raise KeyboardInterrupt  # so that nothing goes on to what needs the encoder
    better = before is None or run.progress.best is None or run.progress.best > before
    if better:
        start.weight_, start.offset_ = head.weight.detach().cpu(), head.bias.detach().cpu()
    else:
        say("Training found no better bits for the texts held out; those of before are kept.")
        model = open_sentence_model(name, str(device)) if whole else model
    reads = Inputs("texts", dim=model.dim)
    if not config.out:
        return Encoder(reads, model, start, columns=tuple(columns), class_names=kept.names)
    folder = make_folder(config.out)
    if whole and better:
        _save_network(model, folder / NETWORK)
        model = SentenceModel(model.model, NETWORK)  # its digest is that of the new weights
    name_model = partial(save_model_name, model=model, columns=columns)
    write_encoder(folder, {SENTENCES: name_model, QUANTIZER: start.save}, reads, kept.names)
    return load_encoder(folder, device=str(device))


def suit_texts(config: TrainConfig, judged: bool = False) -> TrainConfig:
    """Settings for texts, where ``config`` has only the defaults of its preset."""
    name = _check.choice("preset", config.preset or "frozen", tuple(PRESETS))
    plain = TrainConfig(preset=config.preset).facts()
    chosen = {key: value for key, value in config.facts().items() if value != plain[key]}
    for key in NOT_OF_TEXTS:
        if key in chosen:
            _check.refuse(f"{key} is not for texts; got {chosen[key]!r}.")
    return TrainConfig(**PRESETS[name] | (JUDGED[name] if judged else {}) | chosen)


def _read_texts(what: str, texts: Any, columns: Sequence[str] = ()) -> Items:
    items = take_texts(texts, columns)
    if not isinstance(items, Items) or not isinstance(items.inputs, Texts):
        got = texts if isinstance(texts, (str, os.PathLike)) else type(texts).__name__
        _check.refuse(f"{what} must be strings, or a file of them; got {got}.")
    return items


def _keep_readable(items: Items) -> Items:
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
    """What the network reads of each text that can be read: its embedding, or its tokens where the
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
    """The bits that training begins with; their outputs vary by about 1."""
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
    """Which of the texts that can be read have labels, those given or those beside them; and these
    labels."""
    assert isinstance(items.inputs, Texts)
    rows = items.inputs.readable
    if labels is not None:
        _check.same_length("labels", len(labels), "the texts", len(items))
        known, labels = np.arange(len(rows)), np.asarray(labels)[rows]
    elif items.labels is None:
        _check.refuse(
            "Training needs to know what is relevant: labels of the texts, or queries with qrels. "
            "rankbits fit makes bits of texts alone."
        )
    else:
        labels = items.labels[rows]
        known = np.flatnonzero(labels >= 0 if labels.ndim == 1 else labels.any(1))
    if len(known) < len(labels):
        say(f"left out: {len(labels) - len(known):,} texts without a label.")
    different = len(np.unique(labels[known], axis=0))
    if different < 2:
        _check.refuse(f"Training needs texts of at least two labels; got {different}.")
    return known, labels[known]


def _learn_labels(features: np.ndarray, labels: np.ndarray, config: TrainConfig) -> Task:
    source = hold_out(Examples(features, labels), config)
    validation = None
    if isinstance(source.held, Examples) and len(source.held):
        validation = Validation(source.train, source.held, binary=True, seed=config.seed)
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
        say(f"left out: {unknown:,} judgements of a query or a text that is not there.")
    return judgements


def _learn_judgements(
    features: np.ndarray, documents: int, judgements: Judgements, config: TrainConfig
) -> Task:
    pairs, held = split_judgements(judgements, config.validation, config.seed)
    examples = Examples(features, np.arange(len(features)))
    draw = make_draw(config.seed)
    held = shuffle(held, draw)[:QUERIES]
    validation = None
    if len(held):
        asked = [document for query in held.tolist() for document in judgements[query]]
        some = shuffle(np.arange(documents), draw)[:DATABASE]
        rows = np.union1d(asked, some).astype(np.int64)
        grades = grade_pairs(judgements, torch.from_numpy(held), torch.from_numpy(rows)).long()
        validation = Validation(
            examples.subset(rows), examples.subset(held), binary=True, grades=grades.numpy()
        )
    loss = JudgedLoss(config.loss, documents, judgements, **config.options or {})
    sampler = PairBatches(pairs, documents, config.batch_size, seed=config.seed)
    return Task(examples, validation, {"loss": loss, "sampler": sampler})


def _stack(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows of embeddings, or of tokens of different widths, below each other."""
    width = max(first.shape[1], second.shape[1])
    parts = [
        np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1)
        for part in (first, second)
    ]
    return np.concatenate(parts)


def _save_network(model: SentenceModel, folder: Path) -> None:
    """Write a sentence model, in place of the one that is there."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.model.save(str(unfinished), create_model_card=False)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(unfinished, folder)
