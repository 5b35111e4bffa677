"""Encoder: how inputs are read, a network, a quantizer, and a fingerprint of it all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.images import SUFFIXES, decode
from rankbits.data.items import Items, read_items
from rankbits.data.texts import Texts
from rankbits.encoder.folder import FILES, QUANTIZER, copy_file, make_folder, write_encoder
from rankbits.encoder.texts import SENTENCES, save_model_name, take_texts
from rankbits.models.sentences import SentenceModel
from rankbits.quantizers import Quantizer
from rankbits.train.body import BODY
from rankbits.train.embed import Embedded, embed
from rankbits.train.run import RUN, Inputs, make_examples
from rankbits.train.sentences import embed_texts
from rankbits.types import Codes, Questions, pack

ASKS = ("codes", "questions")


@dataclass(eq=False)
class Encoder:
    """Inputs -> embeddings -> bits, always the same way.

    ``reads`` says what an input is: a vector of a width, an image of a size or a text. ``network``
    turns inputs into embeddings; None if the inputs are embeddings already. ``quantizer`` turns
    embeddings into bits; None if the signs of the network's outputs are the bits. ``view`` says how
    images are cropped, and whether they are seen mirrored too. ``folder`` is where the encoder is
    saved. ``columns`` names the columns of a table that are its text.

    >>> from rankbits import Projection
    >>> x = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    >>> encoder = Encoder(Inputs("features", dim=8), quantizer=Projection(4).fit(x))
    >>> encoder
    Encoder(vectors of 8 -> 4 bits)
    >>> encoder.encode(x).fingerprint == encoder.fingerprint
    True
    """

    reads: Inputs
    network: torch.nn.Module | None = None
    quantizer: Quantizer | None = None
    view: View | None = None
    class_names: tuple[str, ...] = ()
    folder: Path | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.network is None and self.quantizer is None:
            _check.refuse("An encoder needs a network or a quantizer, or both.")
        if self.network is not None:
            self.network.eval()
        if self.view is None:
            self.view = self.reads.make_view()

    @classmethod
    def of(cls, quantizer: Quantizer) -> Encoder:
        """An encoder that reads embeddings and has only a fitted quantizer."""
        dim = quantizer.n_features_in_ if quantizer.bits_ else 0
        return cls(Inputs("features", dim=dim), quantizer=quantizer)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that ``rb.load`` reads; an encoder that has a folder is copied."""
        sentences = isinstance(self.network, SentenceModel)
        if self.network is not None and self.folder is None and not sentences:
            _check.refuse("Only rb.train(out=...) can save a network of your own.")
        where = make_folder(folder)
        writers: dict[str, Callable[[Path], object]] = {}
        if self.folder is not None and where.resolve() != self.folder.resolve():
            names = [name for name in FILES if (self.folder / name).is_file()]
            writers |= {name: partial(copy_file, self.folder / name) for name in names}
        elif self.quantizer is not None:
            writers[QUANTIZER] = self.quantizer.save
        if isinstance(self.network, SentenceModel):
            writers[SENTENCES] = partial(save_model_name, model=self.network, columns=self.columns)
        for name in (BODY, RUN, SENTENCES):
            if where != self.folder and name not in writers and (where / name).is_file():
                _check.refuse(f"{where} holds an encoder with a network; give another folder.")
        write_encoder(where, writers, self.reads, self.class_names)
        self.folder = self.folder or where

    def __repr__(self) -> str:
        return f"Encoder({self.describe_inputs()} -> {self.bits} bits)"

    def describe_inputs(self) -> str:
        if self.reads.kind == "features":
            return f"vectors of {self.reads.dim}"
        if self.reads.kind == "texts":
            return "texts"
        return f"images at {self.reads.side} x {self.reads.side}"

    @cached_property
    def bits(self) -> int:
        """The number of bits of a code."""
        if self.quantizer is not None:
            return self.quantizer.bits_
        if isinstance(self.network, SentenceModel):
            return self.network.dim
        shape = (self.reads.channels, self.reads.side, self.reads.side)
        empty = torch.zeros(1, *(shape if self.reads.kind == "images" else (self.reads.dim,)))
        assert self.network is not None
        with torch.no_grad():
            return int(self.network(empty.to(self.device)).shape[1])

    @cached_property
    def dim(self) -> int:
        """The width of an embedding."""
        if self.quantizer is not None:
            return self.quantizer.n_features_in_
        return self.bits

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        weights = () if self.network is None else self.network.parameters()
        return next((weight.device for weight in weights), torch.device("cpu"))

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits: a digest of the weights and of all settings that change a bit."""
        if self.network is None:
            assert self.quantizer is not None
            return self.quantizer.fingerprint
        settings: dict[str, Any] = asdict(self.reads)
        weights = self.network.state_dict()
        if isinstance(self.network, SentenceModel):
            settings, weights = settings | self.network.settings(), {}
        if self.view is not None:
            settings |= {"stored": self.view.stored, "mirror": self.view.mirror}
        digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8)
        digest_tensors(digest, weights)
        digest.update(("signs" if self.quantizer is None else self.quantizer.fingerprint).encode())
        return digest.hexdigest()

    def embed(self, inputs: Any, **options: Any) -> np.ndarray:
        """Embeddings (n, dim), float32, of inputs: a file or folder, paths, or an array of vectors
        or images; an encoder of texts also takes a sentence or a list of sentences. An input that
        cannot be read is refused. ``options``: ``batch_size``, ``workers``, ``progress``, and
        ``queries=True`` for a sentence model that has a separate prompt for queries."""
        embedded = self.embed_readable(inputs, **options)
        if embedded.failed:
            _check.refuse(embedded.failed[0])
        return embedded.embeddings

    def embed_readable(self, inputs: Any, *, queries: bool = False, **options: Any) -> Embedded:
        """Embed the inputs that can be read -> their embeddings and rows, and a sentence about each
        of the others; arguments as in ``embed``."""
        examples = self._make_examples(inputs)
        if self.network is None:
            vectors = _check.finite("inputs", np.asarray(examples.inputs))
            return Embedded(vectors.astype(np.float32, copy=False), np.arange(len(vectors)))
        if isinstance(self.network, SentenceModel):
            assert isinstance(examples.inputs, Texts)
            options.pop("workers", None)  # workers decode images
            return embed_texts(self.network, examples.inputs, queries=queries, **options)
        return embed(self.network, examples, self.view, device=self.device, **options)

    def encode(self, inputs: Any, **options: Any) -> Codes:
        """``Codes`` of inputs; arguments as in ``embed``."""
        return self.encode_embeddings(self.embed(inputs, **options))

    def encode_embeddings(self, embeddings: Any) -> Codes:
        """``Codes`` of embeddings (n, dim) that this encoder's network made."""
        codes = pack(embeddings) if self.quantizer is None else self.quantizer.encode(embeddings)
        return Codes(codes.packed, codes.bits, self.fingerprint)

    def ask(self, inputs: Any, **options: Any) -> Questions:
        """``Questions`` of inputs: queries that keep their floats; arguments as in ``embed``."""
        return self.ask_embeddings(self.embed(inputs, queries=True, **options))

    def ask_embeddings(self, embeddings: Any) -> Questions:
        """``Questions`` of embeddings (n, dim) that this encoder's network made."""
        if self.quantizer is None:
            return Questions(embeddings, fingerprint=self.fingerprint)
        return replace(self.quantizer.ask(embeddings), fingerprint=self.fingerprint)

    def make_queries(self, embeddings: Any, ask: str | None = None) -> Codes | Questions:
        """Turn embeddings (n, dim) into queries of an index: ``ask="codes"`` or ``"questions"``;
        None: what the quantizer prefers."""
        if _check.choice("ask", self.asks_with if ask is None else ask, ASKS) == "questions":
            return self.ask_embeddings(embeddings)
        return self.encode_embeddings(embeddings)

    @property
    def asks_with(self) -> str:
        """What an index turns queries into, ``"codes"`` or ``"questions"``."""
        return "codes" if self.quantizer is None else self.quantizer.asks_with

    def encode_image(self, file: Any) -> Codes:
        """``Codes`` of one image: a path or an open file."""
        return self.encode_embeddings(self.embed_image(file))

    def embed_image(self, file: Any) -> np.ndarray:
        """The embedding (1, dim) of one image: a path or an open file."""
        if self.view is None:
            _check.refuse(f"This encoder reads {self.describe_inputs()}; got an image.")
        return self.embed(decode(file, self.view.stored, self.view.channels)[None])

    def _make_examples(self, inputs: Any) -> Examples:
        if self.reads.kind == "texts":
            inputs = take_texts(inputs, self.columns)
        if isinstance(inputs, (str, os.PathLike)):
            inputs = read_items(inputs)
        if isinstance(inputs, Items):
            inputs = inputs.examples
        if not isinstance(inputs, Examples):
            one_vector = not isinstance(inputs, (list, tuple)) and np.ndim(inputs) == 1
            if one_vector and self.reads.kind == "features":
                inputs = np.asarray(inputs)[None]
            inputs = make_examples(inputs)
        self._check_kind(inputs)
        return inputs

    def _check_kind(self, examples: Examples) -> None:
        """Refuse inputs of another kind than this encoder reads, and vectors of another width."""
        reads = self.describe_inputs()
        kind = "images" if examples.kind == "files" else examples.kind
        if kind != self.reads.kind:
            images = f"images ({', '.join(SUFFIXES[:3])}, ...)"
            got = {"features": "vectors", "images": images}.get(kind, kind)
            _check.refuse(f"This encoder reads {reads}; got {got}.")
        rows = examples.inputs
        if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] != self.reads.dim:
            _check.refuse(f"This encoder reads {reads}; got vectors of {rows.shape[1]}.")


def digest_tensors(digest: hashlib.blake2b, tensors: dict[str, torch.Tensor]) -> None:
    """Add names, kinds and values of tensors to a digest."""
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
