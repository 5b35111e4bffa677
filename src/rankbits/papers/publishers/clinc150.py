"""CLINC150 (S. Larson et al., 2019): 22,500 short texts of 150 intents in 10 domains.

``clinc150/data_full.json`` and ``domains.json`` as published; texts without an intent are left out.
``clinc150/minilm.npz`` holds the texts as unit vectors of MiniLM-L6-v2: ``SCRIPT`` writes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._files import read_arrays
from rankbits.data.examples import Examples
from rankbits.papers.publishers import published

PARTS = ("train", "val", "test")
KIND = "text embeddings"
SCRIPT = "python reproduce/embed_texts.py MODEL_FOLDER"
SUMS = {
    "data_full.json": "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
    "domains.json": "b947b579d3b8e74b06f93b01083d8efaff2888b43a3e362533bd88a6e1211b3a",
}


def read(root: Path) -> published.Dataset:
    """Read embeddings float32 with intents as classes and domains as categories.

    Parts ``train``, ``val``, ``test``, and ``once``: rows whose embedding no earlier row has.
    """
    texts, intents, sizes = read_texts(root)
    intents_of = _read_json(root / "clinc150" / "domains.json")
    domain_of = {intent: domain for domain in intents_of for intent in intents_of[domain]}
    features = _read_embeddings(root, texts)
    labels, class_names = published.number_names(intents)
    categories, category_names = published.number_names([domain_of[intent] for intent in intents])
    first = np.unique(features, axis=0, return_index=True)[1]
    return published.Dataset(
        Examples(features, labels, categories, class_names, category_names),
        {**published.split_in_order(**sizes), "once": np.sort(first)},
    )


def read_texts(root: Path) -> tuple[list[str], list[str], dict[str, int]]:
    """Read the texts in the publisher's order, the intent of each, and how many each part has."""
    parts = _read_json(root / "clinc150" / "data_full.json")
    texts, intents = zip(*(pair for part in PARTS for pair in parts[part]), strict=True)
    return list(texts), list(intents), {part: len(parts[part]) for part in PARTS}


def hash_texts(texts: list[str]) -> str:
    """Hash texts in their order, to tell whether embeddings are of these texts.

    >>> hash_texts(["a", "b"]) == hash_texts(["b", "a"])
    False
    """
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _read_json(path: Path) -> Any:
    """Read a JSON file after its sum has shown that it is the publisher's."""
    raw = published.read_bytes(path, "the file of CLINC150")
    published.check_sum(path, raw, SUMS)
    return json.loads(raw)


def _read_embeddings(root: Path, texts: list[str]) -> np.ndarray:
    path = root / "clinc150" / "minilm.npz"
    if not path.is_file():
        published.refuse_missing(path, f"what '{SCRIPT}' writes")
    facts, arrays = read_arrays(path, KIND)
    rows = arrays.get("embeddings")
    if rows is None or rows.ndim != 2 or rows.dtype.kind != "f" or len(rows) != len(texts):
        _check.refuse(f"{path} must hold 'embeddings', {len(texts):,} rows; '{SCRIPT}' writes it.")
    if facts.get("texts") != hash_texts(texts):
        _check.refuse(f"{path} holds embeddings of other texts; '{SCRIPT}' writes these.")
    return _check.finite(f"embeddings of {path}", rows.astype(np.float32))
