"""Save and load the state of a run, in one file that is written whole or not at all.

A run keeps no state in a random number generator: what a step draws depends on the seed and the
step alone. So the weights, the optimiser's tensors, the loss's tensors (proxies, memory) and a few
counts are the whole state, and a resumed run equals one that was never stopped.
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
SAMPLE = 1024  # rows of an array that its fingerprint reads


@dataclass
class Progress:
    """How far a run has come."""

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


def fingerprint_data(*parts: Examples | None) -> str:
    """Return 16 digits that are the same for the same examples: they depend on all labels, on a
    sample of the numbers, and on the names of files and their folders, but not on where these
    lie."""
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
    arrays, bfloat16 = {}, []
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            bfloat16.append(name)
            plain = plain.view(torch.int16)
        arrays[name] = plain.numpy()
    header = {"facts": json.dumps(facts), "bfloat16": json.dumps(bfloat16)}
    write_arrays(path, kind, header, arrays, form=".safetensors")


def load_tensors(path: Path, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Load the tensors and facts that ``save_tensors`` saved."""
    header, arrays = read_arrays(path, kind)
    try:
        bfloat16 = set(json.loads(header["bfloat16"]))
        facts = json.loads(header["facts"])
    except (KeyError, ValueError, RecursionError):
        _check.refuse(f"{path} is not a rankbits {kind} file.")
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return {n: t.view(torch.bfloat16) if n in bfloat16 else t for n, t in tensors.items()}, facts


def save_checkpoint(
    folder: Path,
    model: torch.nn.Module,
    loss: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    facts: dict[str, Any],
) -> None:
    """Save everything that a run needs to go on."""
    tensors = {f"model.{n}": t for n, t in model.state_dict().items()}
    tensors |= {f"loss.{n}": t for n, t in loss.state_dict().items()}
    numbers: dict[str, Any] = {}
    for index, values in optimiser.state_dict()["state"].items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimiser.{index}.{name}"] = value
            elif value is not None:
                numbers[f"{index}.{name}"] = value
    facts = {"progress": asdict(progress), "optimiser": numbers, **facts}
    save_tensors(folder / CHECKPOINT, "checkpoint", tensors, facts)


def load_checkpoint(
    folder: Path,
    model: torch.nn.Module,
    loss: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
) -> tuple[Progress, dict[str, Any]]:
    """Load what ``save_checkpoint`` saved."""
    path = folder / CHECKPOINT
    tensors, facts = load_tensors(path, "checkpoint")
    load_state(model, _select(tensors, "model."), path)
    loss_tensors = _select(tensors, "loss.")
    for name, buffer in loss.named_buffers():
        saved = loss_tensors.get(name)
        if saved is not None and buffer.shape != saved.shape:  # a memory grows during a run
            module, _, attribute = name.rpartition(".")
            setattr(loss.get_submodule(module), attribute, saved.to(buffer.device))
    load_state(loss, loss_tensors, path)
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**_select(tensors, "optimiser."), **facts["optimiser"]}.items():
        index, _, entry = name.partition(".")
        state.setdefault(int(index), {})[entry] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    return Progress(**facts["progress"]), facts


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    path = folder / CHECKPOINT
    return path.is_file() and bool(load_tensors(path, "checkpoint")[1]["progress"]["finished"])


def load_state(module: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Load tensors into a module; refuse those that do not fit it."""
    state = module.state_dict()
    for name in state:
        if name not in tensors:
            _check.refuse(f"{path} has no '{name}': it was made with another model.")
        if state[name].shape != tensors[name].shape:
            _check.refuse(
                f"{path} has '{name}' of shape {tuple(tensors[name].shape)}, but the model's has "
                f"{tuple(state[name].shape)}."
            )
    for name in tensors:
        if name not in state:
            _check.refuse(f"{path} has '{name}', which the model does not have.")
    module.load_state_dict(tensors)


def _select(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the tensors whose names begin with ``prefix``, named without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
