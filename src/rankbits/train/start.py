"""From settings to a run: read the data, build the network, the loss and the sampler, train."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits.data.arrays import read_array
from rankbits.data.examples import Examples
from rankbits.data.folders import read_examples
from rankbits.data.images import SUFFIXES
from rankbits.data.protocols import PROTOCOLS, Protocol, protocol, split_own
from rankbits.data.root import data_root
from rankbits.data.samplers import sampler
from rankbits.losses.named import named
from rankbits.train.config import TrainConfig
from rankbits.train.loop import Trainer
from rankbits.train.memory import BatchLoss
from rankbits.train.processes import Processes
from rankbits.train.run import RUN, Run, as_examples, build_model, inputs_of, read_facts

WORKERS = 8


@dataclass(frozen=True, eq=False)
class Source:
    """What is learned from and judged by: examples with the rows of each part."""

    train: Examples
    held: Examples | None
    protocol: Protocol | None = None


def read_source(config: TrainConfig) -> Source:
    """The examples that ``config.data`` names: a protocol, or a folder, table or file."""
    if not config.data:
        _check.refuse("data must be given: a folder of images, a table, an .npz or a protocol.")
    if not Path(config.data).exists():
        if config.data not in PROTOCOLS:
            near = _check.nearest(config.data, PROTOCOLS)
            _check.refuse(f"{config.data} is neither a file or folder nor a protocol{near}.")
        found = protocol(config.data, config.root, config.seed)
        held = found.validation
        train = found.train
        if held is None and config.validation:
            part = found.examples.subset(train)
            rows, others = split_own(part, config.validation, config.seed)
            train, held = train[rows], train[others]
        return Source(
            found.examples.subset(train),
            None if held is None else found.examples.subset(held),
            found,
        )
    return own_source(read_examples(config.data), config)


def read_inputs(path: str, part: str | None, config: TrainConfig) -> tuple[Examples, bool]:
    """Inputs to embed, and whether their labels are known.

    ``path``: an image, a folder of images (by class or flat), a table, features (.npy, .npz), or a
    protocol's name with the ``part`` of it.
    """
    where = Path(path)
    if not where.exists():
        if path not in PROTOCOLS:
            near = _check.nearest(path, PROTOCOLS)
            _check.refuse(f"{path} is neither a file or folder nor a protocol{near}.")
        parts = ("train", "queries", "database", "validation")
        named = _check.choice("part of a protocol", part, parts)
        found = protocol(path, config.root, config.seed)
        if getattr(found, named) is None:
            _check.refuse(f"{path} has no {named} rows.")
        return found.examples.subset(getattr(found, named)), True
    if part is not None:
        _check.refuse(f"part belongs to a protocol; {path} is a file or folder.")
    if where.suffix == ".npy":
        return as_examples(read_array(where)), False
    if where.suffix.lower() in SUFFIXES:
        return as_examples([where]), False
    if where.is_dir():
        flat = sorted(p for p in where.iterdir() if p.suffix.lower() in SUFFIXES)
        if flat:
            return as_examples(flat), False
    return read_examples(where), True


def own_source(examples: Examples, config: TrainConfig) -> Source:
    """Own examples, a share of them held out."""
    if not config.validation:
        return Source(examples, None)
    rows, held = split_own(examples, config.validation, config.seed)
    return Source(examples.subset(rows), examples.subset(held))


def train(
    config: TrainConfig | None = None,
    *,
    examples: Examples | None = None,
    held: Examples | None = None,
    model: str | torch.nn.Module | None = None,
    loss: str | Callable[..., torch.Tensor] | None = None,
    say: Callable[[str], None] | None = None,
    **changes: Any,
) -> Run:
    """Train as ``config`` says, with ``changes`` to it by name -> ``Run``.

    ``examples`` stand in for ``config.data`` (a share of them is held out, or ``held`` is given),
    ``model`` may be any module from inputs to (M, width), and ``loss`` any callable of
    (embeddings, labels), instead of a name. With ``config.out`` the run is kept in
    that folder, and the same call goes on with a run that was stopped or killed.

    >>> import rankbits as rb
    >>> from rankbits.data import Examples, digits
    >>> images, labels = digits()
    >>> own = Examples(images[:500].reshape(500, 64) / 16.0, labels[:500])
    >>> run = rb.train(examples=own, bits=16, epochs=3, lr=0.01, say=lambda line: None)
    >>> run.progress.step, run.progress.best > 0.3
    (6, True)
    """
    if isinstance(model, str):
        changes["model"], model = model, None
    if isinstance(loss, str):
        changes["loss"], loss = loss, None
    config = (config or TrainConfig()).with_changes(**changes)
    tell = say or (lambda line: print(line, file=sys.stderr, flush=True))
    with torch.random.fork_rng():
        return _trainer(config, examples, held, model, loss, tell).go()


def _trainer(
    config: TrainConfig,
    examples: Examples | None,
    held: Examples | None,
    model: torch.nn.Module | None,
    loss: Callable[..., torch.Tensor] | None,
    say: Callable[[str], None],
) -> Trainer:
    processes = Processes.join(device_of(config.device))
    folder = _folder(config, processes)
    if examples is None:
        source = read_source(config)
    else:
        source = Source(examples, held) if held is not None else own_source(examples, config)
    _check.not_empty("training set", len(source.train))
    if model is not None:
        config = config.with_changes(model="own")
    inputs = inputs_of(source.train, config)
    if model is None:
        model = build_model(config, inputs)
    torch.manual_seed(config.seed)
    options = {"alpha": config.alpha} if config.loss in ("tie-aware-ap", "tie-aware-ndcg") else {}
    labels = source.train.labels
    made = loss or named(config.loss, config.width, labels, **(options | (config.options or {})))
    batches = sampler(
        config.sampler,
        labels,
        source.train.categories,
        config.batch_size,
        per_class=config.per_class,
        batches_per_pair=config.batches_per_pair,
        seed=config.seed,
        rank=processes.rank,
        world=processes.world,
    )
    run = Run(model, config, inputs, folder, source.train.class_names)
    if processes.rank == 0:
        run.describe()
        rows = f"{len(source.train):,} to learn from"
        if source.held is not None:
            rows += f", {len(source.held):,} held out"
        weights = sum(p.numel() for p in model.parameters())
        say(f"{rows}; {config.loss} on {weights:,} weights, {len(batches):,} batches an epoch")
    return Trainer(
        run,
        source.train,
        source.held,
        batches,
        BatchLoss(made, config.memory, config.hswd),
        processes,
        workers_of(config),
        data_root(config.root) / "decoded" if config.cache else None,
        say,
    )


def _folder(config: TrainConfig, processes: Processes) -> Path | None:
    """The run's folder, made or found, and refused where it holds another run."""
    if not config.out:
        return None
    folder = Path(config.out)
    if folder.exists() and not folder.is_dir():
        _check.refuse(f"{folder} is a file; a run needs a folder.")
    if (folder / RUN).is_file():
        facts = read_facts(folder)["config"]
        facts.pop("model", None) if facts.get("model") == "own" else None
        config.refuse_other(facts, folder)
    elif folder.is_dir() and any(folder.iterdir()) and processes.rank == 0:
        _check.refuse(f"{folder} is not empty and holds no run; give another folder.")
    processes.wait()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def device_of(name: str) -> torch.device:
    """The device a name means; under torchrun each process has its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        _check.refuse(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N'; got {name!r}.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            _check.refuse(f"device '{name}' was asked for, but torch finds no CUDA device.")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = device if device.index is not None else torch.device("cuda", local)
        torch.cuda.set_device(device)
    return device


def workers_of(config: TrainConfig) -> int:
    """Processes that decode: as many as asked for, or the cores there are but one."""
    if config.workers is not None:
        return _check.whole("workers", config.workers, 0)
    return max(0, min(WORKERS, (os.cpu_count() or 1) - 1))
