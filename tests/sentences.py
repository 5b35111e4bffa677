"""A sentence model of a few thousand random weights, made in a second, for tests of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PLAIN = ("a", "the", "is", "cat", "dog", "moon", "bone", "good", "for", "?", ".", "number")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = (*SPECIAL, *PLAIN, *DIGITS)
LONGEST = 16  # tokens, two of them special


def make_sentence_model(folder: Path, seed: int = 0) -> str:
    """Write a model of 16 dimensions, with a prompt for queries -> its folder."""
    pytest.importorskip("sentence_transformers", reason="texts need rankbits[text]")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    raw = folder / "bert"
    raw.mkdir(parents=True)
    (raw / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(str(raw / "vocab.txt")).save_pretrained(raw)
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = BertConfig(
        vocab_size=len(WORDS), num_attention_heads=2, max_position_embeddings=32, **shape
    )
    BertModel(config).save_pretrained(raw)
    modules = [Transformer(str(raw), max_seq_length=LONGEST), Pooling(16)]
    prompts = {"query": "the ", "document": ""}
    model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
    model.save(str(folder / "model"))
    return str(folder / "model")
