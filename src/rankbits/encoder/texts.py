"""How an encoder of texts reads its inputs, and how it saves the name of its sentence model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankbits import _check
from rankbits._files import sync_files, sync_folder, write_whole
from rankbits.data.arrays import FORMS
from rankbits.data.items import Items, read_items
from rankbits.data.tables import TABLES
from rankbits.data.texts import SUFFIXES, Texts, make_texts
from rankbits.models.sentences import SentenceModel, open_sentence_model

SENTENCES = "sentences.json"
NETWORK = "network-"  # begins the name of a folder, inside the encoder's, of a trained model


def take_texts(inputs: Any, columns: Sequence[str] = ()) -> Any:
    """Read strings, a file or folder, or one sentence as items; other inputs are returned as they
    are. A string means a file if one of that name exists, or if it ends like the name of one."""
    if isinstance(inputs, str) and not _is_file(inputs):
        inputs = [inputs]
    if isinstance(inputs, (str, os.PathLike)):
        return read_items(inputs, texts=True, columns=columns)
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OUT":
        inputs = inputs.reshape(-1).tolist()
    if isinstance(inputs, (list, tuple)) and any(isinstance(value, str) for value in inputs):
        return Items(make_texts(inputs), np.arange(len(inputs)))
    return inputs


def read_texts(name: str, texts: Any, columns: Sequence[str] = ()) -> Items:
    """Read strings, a file or folder, or one sentence as items; refuses anything else."""
    items = take_texts(texts, columns)
    if not isinstance(items, Items) or not isinstance(items.inputs, Texts):
        got = texts if isinstance(texts, (str, os.PathLike)) else type(texts).__name__
        _check.refuse(f"{name} must be strings, or a file of them; got {got}.")
    return items


def _is_file(text: str) -> bool:
    ending = Path(text).suffix.lower()
    looks_like_file = ending in (*SUFFIXES, *TABLES, *FORMS) and len(text.split()) == 1
    return looks_like_file or os.path.exists(text)


def save_model_name(path: Path, model: SentenceModel, columns: Sequence[str]) -> None:
    """Write the name of an encoder's sentence model, a digest of its weights, and the columns of a
    table that are its text. The weights are not copied."""
    facts = {"model": model.name, **model.settings(), "columns": list(columns)}
    text = (json.dumps(facts, indent=2) + "\n").encode()
    write_whole(path, lambda file: file.write(text))


def save_model(folder: Path, model: SentenceModel) -> SentenceModel:
    """Write a trained model into an encoder's folder -> the model under its name there. The name
    has the digest of the weights: the model that the encoder uses so far stays as it is."""
    named = SentenceModel(model.model, NETWORK + SentenceModel(model.model, "").digest)
    unfinished = folder / f".{named.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    model.model.save(str(unfinished), create_model_card=False)
    sync_files(unfinished)
    if not (folder / named.name).exists():
        os.replace(unfinished, folder / named.name)
        sync_folder(folder)
    return named


def remove_other_models(folder: Path, model: SentenceModel) -> None:
    """Remove the trained models that an encoder's folder has, except the one that it now uses."""
    for path in (*folder.glob(f"{NETWORK}*"), *folder.glob(f".{NETWORK}*")):
        if path.name != model.name:
            shutil.rmtree(path, ignore_errors=True)


def load_model(path: Path, device: str) -> tuple[SentenceModel, tuple[str, ...]]:
    """Open the model whose name ``save_model_name`` wrote -> the model, and the columns. The name
    of a model inside the encoder's folder may be its path there."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
        name, weights, longest = str(facts["model"]), str(facts["weights"]), facts["longest"]
        columns = tuple(map(str, facts["columns"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        _check.refuse(f"{path} is damaged or does not name a sentence model.")
    inside = path.parent / name
    model = open_sentence_model(inside if inside.is_dir() else name, device)
    if model.digest != weights:
        _check.refuse(
            f"The sentence model {name} has the weights {model.digest}; this encoder was made with "
            f"{weights}: give it that model again."
        )
    if model.longest != longest:
        model.model.max_seq_length = longest
    return model, columns
