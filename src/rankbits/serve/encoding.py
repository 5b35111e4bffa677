"""How a question that is no code becomes one: by a quantizer, a trained run, or own functions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits.data.images import decode
from rankbits.quantizers import Quantizer, load
from rankbits.retriever import ABOUT, JUDGED, QUANTIZER, RUN
from rankbits.train import Run, load_run
from rankbits.types import Codes, pack


@dataclass(frozen=True)
class Encoder:
    """``vector``: (n, dim) float32 -> Codes; ``image``: an open file -> Codes; ``text``: str ->
    Codes. What is None cannot be asked. ``dims`` are the widths a vector may have."""

    vector: Callable[[np.ndarray], Codes] | None = None
    image: Callable[[Any], Codes] | None = None
    text: Callable[[str], Codes] | None = None
    dims: tuple[int, ...] = ()
    bits: int | None = None
    report: Path | None = None

    @property
    def accepts(self) -> tuple[str, ...]:
        return tuple(kind for kind in ("vector", "image", "text") if getattr(self, kind))


def read_encoder(path: str | os.PathLike[str]) -> Encoder:
    """The encoder of a quantizer's file, of a run's folder or of a saved retriever.

    A run that was trained on features takes those as vectors; any run and quantizer takes
    embeddings, which go through the quantizer alone. Runs trained on images take images.
    """
    where = Path(path)
    if where.is_file():
        return _of_quantizer(load(where))
    if (where / ABOUT).is_file():
        quantizer = load(where / QUANTIZER)
        run = load_run(where / RUN) if (where / RUN).is_dir() else None
        return _of_quantizer(quantizer) if run is None else _of_run(run, quantizer)
    run = load_run(where)
    made = _of_run(run, load(where / QUANTIZER) if (where / QUANTIZER).is_file() else None)
    judged = where / JUDGED
    return replace(made, report=judged if judged.is_file() else None)


def _of_quantizer(quantizer: Quantizer) -> Encoder:
    return Encoder(
        vector=quantizer.encode, dims=(int(quantizer.weight_.shape[1]),), bits=quantizer.bits_
    )


def _of_run(run: Run, quantizer: Quantizer | None) -> Encoder:
    """A run without a quantizer is one whose outputs' signs are the bits."""
    width = run.config.width if quantizer is None else int(quantizer.weight_.shape[1])
    bits = width if quantizer is None else quantizer.bits_
    encode = pack if quantizer is None else quantizer.encode
    features = run.inputs.kind == "features"
    one = threading.Lock()  # a network's mode is changed while it embeds

    def embedded(inputs: np.ndarray) -> Codes:
        with one:
            return encode(run.embed(inputs).embeddings)

    def of_vector(vectors: np.ndarray) -> Codes:
        if features and vectors.shape[1] == run.inputs.dim:
            return embedded(vectors)
        return encode(vectors)

    def of_image(file: Any) -> Codes:
        view = run.inputs.view(run.config.augment)
        assert view is not None
        return embedded(decode(file, view.stored, view.channels)[None])

    dims = (run.inputs.dim, width) if features else (width,)
    return Encoder(of_vector, None if features else of_image, None, dims, bits)


def agreed(encoder: Encoder, bits: int) -> Encoder:
    """Refuse an encoder whose codes are not those of the index."""
    if encoder.bits is not None and encoder.bits != bits:
        _check.refuse(f"The model makes codes of {encoder.bits} bits; the index holds {bits}.")
    return encoder
