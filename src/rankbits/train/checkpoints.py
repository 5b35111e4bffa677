"""Save and load the state of a run, in one file that is written whole or not at all.

A run keeps no state in a random number generator: what a step draws is a function of the seed and
the step. So the weights, the optimiser's tensors, the loss's own tensors (proxies, memory) and a
few counts are the whole state, and a resumed run equals one that was never stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import read_arrays, write_arrays
from rankbits.data.examples import Examples, hash_rows
from rankbits.data.images import ImageFiles
from rankbits.data.texts import Texts

CHECKPOINT, WEIGHTS = "checkpoint.safetensors", "model.safetensors"


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # within the epoch
    best: float | None = None
    best_step: int = 0
    worse: int = 0  # validations since the best
    finished: bool = False
    seconds: float = 0.0
    examples: int = 0
    alpha: float | None = None  # of the first step


SAMPLE = 1024  # rows whose numbers say whether data are the same


def fingerprint_data(*parts: Examples | None) -> str:
    """The same 16 digits for the same examples: all labels and file names, and some of the numbers.
    Files may lie elsewhere by now."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        if part is None:
            continue
        inputs = part.inputs
        digest.update(f"{len(part)} {part.labels.dtype} {part.labels.shape}".encode())
        digest.update(part.labels.tobytes())
        if isinstance(inputs, ImageFiles):
            digest.update("\n".join("/".join(Path(p).parts[-2:]) for p in inputs.paths).encode())
        elif isinstance(inputs, Texts):
            digest.update(hash_rows(inputs).tobytes())
        else:
            rows = np.unique(np.linspace(0, len(inputs) - 1, SAMPLE).astype(int))
            digest.update(f"{inputs.dtype} {inputs.shape}".encode())
            digest.update(inputs[rows].tobytes())
    return digest.hexdigest()


def save_tensors(
    path: Path, kind: str, tensors: Mapping[str, torch.Tensor], facts: dict[str, Any]
) -> None:
    """Save tensors of any dtype with facts. numpy has no bfloat16, so its bits are saved as
    int16."""
    arrays, halves = {}, []
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            halves.append(name)
            plain = plain.view(torch.int16)
        arrays[name] = plain.numpy()
    spelled = {"facts": json.dumps(facts), "bfloat16": json.dumps(halves)}
    write_arrays(path, kind, spelled, arrays, form=".safetensors")


def load_tensors(path: Path, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    spelled, arrays = read_arrays(path, kind)
    try:
        halves = set(json.loads(spelled["bfloat16"]))
        facts = json.loads(spelled["facts"])
    except (KeyError, ValueError, RecursionError):
        _check.refuse(f"{path} is not a rankbits {kind} file.")
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return {n: t.view(torch.bfloat16) if n in halves else t for n, t in tensors.items()}, facts


def save_checkpoint(
    folder: Path,
    model: torch.nn.Module,
    loss: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    facts: dict[str, Any],
) -> None:
    """Save everything that a run needs to go on."""
    state = optimiser.state_dict()["state"]
    tensors = {f"model.{n}": t for n, t in model.state_dict().items()}
    tensors |= {f"loss.{n}": t for n, t in loss.state_dict().items()}
    plain: dict[str, Any] = {}
    for index, values in state.items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimiser.{index}.{name}"] = value
            elif value is not None:
                plain[f"{index}.{name}"] = value
    whole = {"progress": asdict(progress), "optimiser": plain, **facts}
    save_tensors(folder / CHECKPOINT, "checkpoint", tensors, whole)


def load_checkpoint(
    folder: Path,
    model: torch.nn.Module,
    loss: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
) -> tuple[Progress, dict[str, Any]]:
    """Load what ``save_checkpoint`` saved."""
    path = folder / CHECKPOINT
    tensors, facts = load_tensors(path, "checkpoint")
    put(model, _under(tensors, "model."), path)
    own = _under(tensors, "loss.")
    for name, buffer in loss.named_buffers():
        if name in own and buffer.shape != own[name].shape:  # a memory fills as the run goes
            where, _, last = name.rpartition(".")
            setattr(loss.get_submodule(where), last, own[name].to(buffer.device))
    put(loss, own, path)
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**_under(tensors, "optimiser."), **facts["optimiser"]}.items():
        index, _, what = name.partition(".")
        state.setdefault(int(index), {})[what] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    return Progress(**facts["progress"]), facts


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a run that came to its end."""
    path = folder / CHECKPOINT
    return path.is_file() and bool(load_tensors(path, "checkpoint")[1]["progress"]["finished"])


def put(module: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Load a state, or say in a sentence why it does not fit."""
    own = module.state_dict()
    for name in own:
        if name not in tensors:
            _check.refuse(f"{path} has no '{name}': it was made with another model.")
        if own[name].shape != tensors[name].shape:
            _check.refuse(
                f"{path} has '{name}' of shape {tuple(tensors[name].shape)}, but the model's has "
                f"{tuple(own[name].shape)}."
            )
    for name in tensors:
        if name not in own:
            _check.refuse(f"{path} has '{name}', which the model does not have.")
    module.load_state_dict(tensors)


def _under(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
