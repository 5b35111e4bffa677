"""Read an encoder from its folder, from the folder of a run, or from the file of a quantizer."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits.encoder.encoder import Encoder
from rankbits.encoder.folder import ABOUT, FILES, QUANTIZER, VERSION
from rankbits.encoder.replacing import finish_replacing
from rankbits.encoder.texts import SENTENCES, load_model
from rankbits.quantizers import Quantizer
from rankbits.quantizers import load as load_quantizer
from rankbits.train.body import BODY, load_body
from rankbits.train.processes import choose_device
from rankbits.train.run import RUN, Inputs, Run, load_run


def load(
    path: str | os.PathLike[str], network: torch.nn.Module | None = None, device: str = "cpu"
) -> Encoder | Quantizer:
    """Read an encoder's folder, or the file of a quantizer. ``network`` is needed if the encoder
    was trained with your own. The network is put on ``device``: "cpu", "cuda", "cuda:1", or "auto",
    a GPU if there is one.

    >>> import tempfile
    >>> from rankbits import Sign
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Encoder.of(Sign().fit(torch.eye(4))).save(f"{folder}/signs.encoder")
    ...     load(f"{folder}/signs.encoder")
    Encoder(vectors of 4 -> 4 bits)
    """
    where = Path(path)
    return load_encoder(where, network, device) if where.is_dir() else load_quantizer(where)


def load_encoder(
    path: str | os.PathLike[str], network: torch.nn.Module | None = None, device: str = "cpu"
) -> Encoder:
    """Read an encoder from a folder, a run, or the file of a quantizer."""
    where = Path(path)
    if where.is_file():
        return Encoder.of(load_quantizer(where))
    if not where.exists():
        _check.refuse(f"{where} does not exist; rankbits train or fit makes an encoder.")
    finish_replacing(where, (ABOUT, *FILES))
    quantizer = None
    if (where / QUANTIZER).is_file():
        quantizer = load_quantizer(where / QUANTIZER)
    device = str(choose_device(device))
    if (where / RUN).is_file() and not (where / SENTENCES).is_file():
        return make_run_encoder(load_run(where, network, device), quantizer)
    reads, names = _read_about(where)
    if (where / SENTENCES).is_file():
        model, columns = load_model(where / SENTENCES, device)
        return Encoder(reads, model, quantizer, None, names, where, columns)
    if not (where / BODY).is_file():
        if quantizer is None:
            _check.refuse(f"{where} is not a whole encoder: it has no {QUANTIZER}.")
        return Encoder(reads, quantizer=quantizer, class_names=names, folder=where)
    body = load_body(where / BODY)
    return Encoder(reads, body.network.to(device), quantizer, body.view, names, where)


def make_run_encoder(run: Run, quantizer: Quantizer | None = None) -> Encoder:
    """The encoder of a trained run. If the run was trained on the outputs of a frozen network, the
    encoder reads images through that network."""
    names, folder = run.class_names, run.folder
    if folder is not None and (folder / BODY).is_file():
        body = load_body(folder / BODY)
        network = torch.nn.Sequential(OrderedDict(body=body.network, model=run.model))
        return Encoder(body.reads, network, quantizer, body.view, names, folder)
    view = run.inputs.make_view(run.config.augment, run.config.mirror)
    return Encoder(run.inputs, run.model, quantizer, view, names, folder)


def _read_about(folder: Path) -> tuple[Inputs, tuple[str, ...]]:
    """What an encoder reads, and the names of the classes it was trained on."""
    path = folder / ABOUT
    if not path.is_file():
        _check.refuse(f"{folder} is not an encoder: it has no {ABOUT}.")
    try:
        about: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if about["version"] != VERSION:
            _check.refuse(f"{path} has layout {about['version']}; this version reads {VERSION}.")
        return Inputs(**about["reads"]), tuple(map(str, about.get("class_names", ())))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, _check.Refusal):
            raise
        _check.refuse(f"{path} is damaged or not an encoder's description.")
