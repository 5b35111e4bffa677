"""Start a run from its settings: read the data, make the network, loss and sampler, and train."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from rankbits import _check
from rankbits._files import data_root, lock_folder, sweep_unfinished
from rankbits._memory import refuse_full_memory
from rankbits._progress import print_line
from rankbits.data.batches import Batches
from rankbits.data.examples import Examples
from rankbits.data.protocol import Protocol
from rankbits.data.samplers import make_sampler
from rankbits.losses.named import make_loss
from rankbits.train.body import BODY, make_body, save_body
from rankbits.train.checkpoints import CHECKPOINT
from rankbits.train.config import TrainConfig
from rankbits.train.last_layer import start_at_components
from rankbits.train.loop import Trainer
from rankbits.train.memory import BatchLoss
from rankbits.train.optimisers import get_alpha, set_alpha
from rankbits.train.processes import Processes, choose_device
from rankbits.train.run import RUN, Run, build_model, choose_inputs, read_facts
from rankbits.train.source import Source, hold_out, read_source
from rankbits.train.validation import Validation

WORKERS = 8


def train(
    config: TrainConfig | None = None,
    *,
    examples: Examples | None = None,
    held: Examples | Validation | None = None,
    protocol: Protocol | None = None,
    sampler: str | Batches | None = None,
    model: str | torch.nn.Module | None = None,
    loss: str | Callable[..., torch.Tensor] | None = None,
    say: Callable[[str], None] | None = None,
    **changes: Any,
) -> Run:
    """Train a network with the settings of ``config``, changed by ``changes`` -> ``Run``.

    ``examples`` replace ``config.data`` (a share of them is held out, unless ``held`` is given),
    and so do the training rows of a ``protocol``. Instead of a name, ``model`` may be any module
    from inputs to (M, width), ``loss`` any callable of (embeddings, labels), and ``sampler`` any
    plan of batches. With ``config.out`` the run is kept in that folder, and the same call goes on
    with a run that was stopped or killed.

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
    if isinstance(sampler, str):
        changes["sampler"], sampler = sampler, None
    config = (config or TrainConfig()).with_changes(**changes)
    say = say or print_line
    alpha = get_alpha(loss)  # the caller's, restored after the run
    if alpha is not None and config.alpha is None:
        config = config.with_changes(alpha=alpha)
    try:
        with torch.random.fork_rng(), ExitStack() as stack:
            stack.enter_context(
                refuse_full_memory(str(choose_device(config.device)), _advise_chunk(config))
            )
            return _make_trainer(
                config, examples, held, protocol, sampler, model, loss, say, stack
            ).train_to_end()
    finally:
        if alpha is not None:
            set_alpha(loss, alpha)


def _advise_chunk(config: TrainConfig) -> str:
    size = min(config.chunk or config.batch_size, config.batch_size)
    text = f"a step holds {size:,} examples at a time"
    return f"{text}, with chunk = {size // 2} it holds half as many" if size > 1 else text


def _make_trainer(
    config: TrainConfig,
    examples: Examples | None,
    held: Examples | Validation | None,
    protocol: Protocol | None,
    sampler: Batches | None,
    model: torch.nn.Module | None,
    loss: Callable[..., torch.Tensor] | None,
    say: Callable[[str], None],
    stack: ExitStack,
) -> Trainer:
    processes = Processes.join(choose_device(config.device))
    folder = _make_folder(config, processes)
    if folder is not None and processes.rank == 0:  # no other run may use the folder meanwhile
        stack.enter_context(lock_folder(folder, wait=False))
        sweep_unfinished(folder)
    if examples is None:
        source = read_source(config, protocol)
    else:
        source = Source(examples, held) if held is not None else hold_out(examples, config)
    _check.not_empty("training set", len(source.train))
    if model is not None:
        config = config.with_changes(model="own")
    inputs = choose_inputs(source.train, config)
    if config.mirror and inputs.kind == "features" and not config.features:
        _check.refuse("mirror is for images; the data are features.")
    if model is None:
        model = build_model(config, inputs)
    loading: dict[str, Any] = {
        "workers": count_workers(config),
        "cache": data_root(config.root) / "decoded" if config.cache else None,
    }
    if config.last_layer == "principal" and not (folder and (folder / CHECKPOINT).is_file()):
        start_at_components(
            model, source.train, inputs.make_view(mirror=config.mirror),
            seed=config.seed, device=processes.device, **loading,
        )  # fmt: skip
        processes.copy_from_first(model)
    torch.manual_seed(config.seed)
    labels = source.train.labels
    options = config.options or {}
    if loss is None:
        loss = make_loss(config.loss, config.width, labels, **options)
        if "alpha" in options and get_alpha(loss) is not None:
            _check.refuse("alpha is a setting of the run; give it there, not in a loss's options.")
    if sampler is None:
        sampler = make_sampler(
            config.sampler, labels, source.train.categories, config.batch_size,
            per_class=config.per_class, batches_per_pair=config.batches_per_pair,
            together=config.together, seed=config.seed, rank=processes.rank, world=processes.world,
        )  # fmt: skip
    run = Run(model, config, inputs, folder, source.train.class_names)
    if processes.rank == 0:
        run.save_facts()
        if config.features and folder is not None:
            save_body(folder / BODY, make_body(config.features, config.side, config.mirror))
        rows = f"{len(source.train):,} to learn from"
        if source.held is not None:
            rows += f", {len(source.held):,} held out"
        weights = sum(p.numel() for p in model.parameters())
        say(f"{rows}; {config.loss} on {weights:,} weights, {len(sampler):,} batches an epoch")
    batch_loss = BatchLoss(loss, config.memory, config.hswd)
    return Trainer(
        run, source.train, source.held, sampler, batch_loss, processes, say=say, **loading
    )


def _make_folder(config: TrainConfig, processes: Processes) -> Path | None:
    """Make the run's folder, or refuse one that holds another run."""
    if not config.out:
        return None
    folder = Path(config.out)
    if folder.exists() and not folder.is_dir():
        _check.refuse(f"{folder} is a file; a run needs a folder.")
    if (folder / RUN).is_file():
        facts = read_facts(folder)["config"]
        if facts.get("model") == "own":
            del facts["model"]
        config.refuse_other(facts, folder)
    elif _holds_something(folder) and processes.rank == 0:
        _check.refuse(f"{folder} is not empty and holds no run; give another folder.")
    processes.wait()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _holds_something(folder: Path) -> bool:
    """Whether a folder holds more than hidden files, which a killed process may leave."""
    return folder.is_dir() and any(path.name[0] != "." for path in folder.iterdir())


def count_workers(config: TrainConfig) -> int:
    """Return the number of processes that decode images: ``config.workers``, or one fewer than the
    cores."""
    if config.workers is not None:
        return _check.whole("workers", config.workers, 0)
    return max(0, min(WORKERS, (os.cpu_count() or 1) - 1))
