"""The training loop: it reads batches, changes the weights, and saves what a run needs to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from rankbits import _check
from rankbits._progress import Meter
from rankbits.data.batches import Batches
from rankbits.data.examples import Examples
from rankbits.data.loading import Batch
from rankbits.losses import gather
from rankbits.models.heap import keep_memory
from rankbits.train import optimisers
from rankbits.train.advice import Advisor
from rankbits.train.checkpoints import fingerprint_data
from rankbits.train.embed import embed, make_loader
from rankbits.train.graphs import GraphedNetwork
from rankbits.train.log import Log
from rankbits.train.memory import BatchLoss
from rankbits.train.processes import Processes, Stop
from rankbits.train.run import Keeper, Run
from rankbits.train.step import (
    Replay,
    batch_gradient,
    choose_precision,
    derive_seed,
    precision,
    set_training_mode,
    sum_gradients,
)
from rankbits.train.validation import Validation


@dataclass(eq=False)
class Trainer:
    """Trains a run, from its start or its checkpoint to its end."""

    run: Run
    train: Examples
    held: Examples | Validation | None
    sampler: Batches
    loss: BatchLoss
    processes: Processes
    workers: int = 0
    cache: Path | None = None
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        config, device = self.run.config, self.processes.device
        self.config, self.device = config, device
        self.model = self.run.model.to(device)
        if device.type == "cuda" and self.run.inputs.kind == "images":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss.to(device)
        self.view = self.run.inputs.make_view(config.augment, config.mirror)
        self.optimiser = optimisers.make_optimiser(self.model, self.loss, config)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.amp = choose_precision(config.amp, device)
        self.passes: Callable[[torch.Tensor], torch.Tensor] = self.model
        if config.compile:
            # random numbers are torch's own, so that a chunk has the same ones in both its passes
            options = {"fallback_random": True}
            self.passes = torch.compile(self.model, dynamic=False, options=options)  # type: ignore[arg-type]
        self.network = self._make_graphs() if config.graphs else self._run_network
        set_training_mode(self.model, config)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.amp == "fp16")
        all_epochs = len(self.sampler) * config.epochs
        self.steps = min(all_epochs, config.steps or all_epochs)
        self.validation, held = None, self.held
        if isinstance(held, Validation):
            self.validation, held = held, held.queries
        elif held is not None and len(held):
            binary = config.head == "hash"
            self.validation = Validation(
                self.train, held, binary=binary, seed=config.seed, figure=config.validate_by
            )
        self.leads = self.processes.rank == 0
        data = "" if self.run.folder is None else fingerprint_data(self.train, held)
        self.keeper = Keeper(self.run, self.loss, self.optimiser, self.scaler, self.leads, data)
        self.log = Log(self.run.folder if self.leads else None, config.tensorboard)
        self.run.history = self.log.rows
        self.unchecked: list[tuple[int, torch.Tensor]] = []  # (step, loss), perhaps not finite
        self.mark = (time.monotonic(), 0)  # when the speed was last logged, and at what count
        self.silent_since = time.monotonic()
        self.note = ""
        self.stop = Stop()

    def train_to_end(self) -> Run:
        """Train to the end, or until Ctrl-C, and return the run with its best weights. After a
        SIGTERM the run is saved and the signal is raised again."""
        self._resume()
        progress, config = self.run.progress, self.config
        if progress.finished:
            self.say(f"{self.run.folder} is finished: {progress.step:,} steps.")
            return self._finish()
        memory = keep_memory() if self.device.type == "cpu" else nullcontext()
        with self.stop.listen(), memory:
            for epoch in range(progress.epoch, config.epochs):
                self._train_epoch(epoch)
                if self.stop.why:
                    break
                progress.epoch, progress.batch = epoch + 1, 0
                ended = progress.epoch == config.epochs or progress.step >= self.steps
                if ended or progress.epoch % config.validate_every == 0:
                    self._validate(ended)
                if ended:
                    break
                if 0 < config.patience <= progress.worse:
                    self.say(f"no better for {progress.worse} validations: ended.")
                    break
            progress.finished = not self.stop.why
            if self.validation is None and progress.finished:
                self.keeper.keep_best()
            self._save()
        self.log.close()
        if self.stop.why and self.leads:
            saved = f"saved at step {progress.step:,}; the same command goes on from there"
            self.say(f"{self.stop.why}: {saved if self.run.folder else 'stopped'}.")
        self.stop.pass_on()
        return self._finish()

    def _train_epoch(self, epoch: int) -> None:
        progress, config = self.run.progress, self.config
        if progress.step >= self.steps:  # the run was killed between its last step and its end
            return
        batches = self.sampler.at(epoch, progress.batch)
        set_training_mode(self.model, config)
        loader = make_loader(self.train, batches, self.view, self.device, self.workers, self.cache)
        begun, self.mark = time.monotonic(), (time.monotonic(), progress.examples)
        meter = Meter(
            f"epoch {epoch + 1}/{config.epochs}", len(self.sampler), "batches", done=progress.batch,
            shown=self.leads, say=self.say, silent_since=self.silent_since,
        )  # fmt: skip
        with meter:
            for batch in loader:
                value = self.take_step(batch, epoch)
                progress.examples += len(batch) * self.processes.world
                if progress.step % config.log_every == 0:
                    self._log_step(value, epoch)
                elif self.device.type == "cpu":
                    self._check_losses()
                meter.update(1, self.note)
                now = time.monotonic()
                progress.seconds, begun = progress.seconds + now - begun, now
                if now - self.keeper.saved >= 60 * config.checkpoint_minutes:
                    self._save()
                if self.processes.any(bool(self.stop.why)):
                    self.stop.why = self.stop.why or "Another process was stopped"
                    break
                if progress.step >= self.steps:
                    break
        self.silent_since = meter.silent_since
        self.run.failed = tuple(loader.failed.values())
        if self.run.failed and epoch == 0 and self.leads:
            self.say(f"{len(self.run.failed):,} images are left out; first: {self.run.failed[0]}")

    def take_step(self, batch: Batch, epoch: int) -> torch.Tensor:
        """Take one step of the optimiser, on one batch; return the loss."""
        progress, config = self.run.progress, self.config
        rate = optimisers.find_rate(config, progress.step, epoch, self.steps)
        optimisers.set_rate(self.optimiser, rate)
        inputs, labels = batch.inputs.to(self.device), batch.labels.to(self.device)
        first = self.processes.find_first(batch.planned)
        changes = self._draw_changes(first + batch.places)

        def embed_part(start: int, stop: int) -> torch.Tensor:
            part = inputs[start:stop]
            if self.view is not None:
                part = self.view.see_changed(part, changes[start:stop])
            return self.network(part)

        def compute_loss(z: torch.Tensor) -> torch.Tensor:
            if progress.alpha is None:
                progress.alpha = optimisers.choose_alpha(config, gather(z.detach(), labels)[0])
            alpha = optimisers.find_alpha(config, progress.alpha, progress.step, self.steps)
            optimisers.set_alpha(self.loss.loss, alpha)
            return self.loss(z, labels, batch.rows)

        self.optimiser.zero_grad(set_to_none=not config.graphs)
        replay = Replay(self.model, config.seed, progress.step)
        value, _ = batch_gradient(
            embed_part, len(batch), compute_loss, replay, chunk=config.chunk, first=first,
            own=list(self.loss.parameters()), scale=self.scaler.scale,
        )  # fmt: skip
        sum_gradients(self.trained)
        self.scaler.unscale_(self.optimiser)
        if config.clip:
            torch.nn.utils.clip_grad_norm_([*self.trained, *self.loss.parameters()], config.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.loss.remember()
        progress.step += 1
        progress.batch += 1
        self.unchecked.append((progress.step, value))
        after_epoch = getattr(self.loss.loss, "after_epoch", None)
        if after_epoch is not None and progress.batch == len(self.sampler):
            after_epoch(self._embed_rows, derive_seed(config.seed, progress.step))
        return value

    def _run_network(self, inputs: torch.Tensor) -> torch.Tensor:
        with precision(self.amp, self.device):
            return self.passes(inputs)

    def _make_graphs(self) -> GraphedNetwork:
        if self.device.type != "cuda":
            _check.refuse(f"graphs = true needs a CUDA device; this run is on {self.device.type}.")
        return GraphedNetwork(self.model, lambda: precision(self.amp, self.device), self.passes)

    def _embed_rows(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs of those training rows that can be read, and their numbers."""
        examples = self.train.subset(rows.numpy())
        embedded = embed(self.model, examples, self.view, device=self.device, amp=self.amp)
        outputs = torch.from_numpy(embedded.embeddings).to(self.device)
        return outputs, rows[torch.from_numpy(embedded.rows)].to(self.device)

    def _draw_changes(self, places: torch.Tensor) -> torch.Tensor:
        """Draw the random changes of the batch of all processes; return those of this process's
        images."""
        if self.view is None:
            return torch.empty(0)
        seed = derive_seed(self.config.seed, self.run.progress.step)
        return self.view.draw(self.config.batch_size, seed)[places]

    def _check_losses(self) -> None:
        """Refuse to go on after a loss that is not finite, so that bad weights are not saved."""
        for step, value in self.unchecked:
            if not torch.isfinite(value):
                folder = self.run.folder
                saved = f" {folder} still holds the last good checkpoint." if folder else ""
                _check.refuse(
                    f"The loss is {float(value)} at step {step:,}; a lower lr than "
                    f"{self.config.lr:g}, or amp = 'off', may help.{saved}"
                )
        self.unchecked.clear()

    def _log_step(self, value: torch.Tensor, epoch: int) -> None:
        self._check_losses()
        progress = self.run.progress
        now = time.monotonic()
        speed = (progress.examples - self.mark[1]) / max(now - self.mark[0], 1e-9)
        self.mark = (now, progress.examples)
        self.log.write({
            "step": progress.step, "epoch": epoch + 1, "loss": float(value),
            "lr": self.optimiser.param_groups[0]["lr"],
            "alpha": optimisers.get_alpha(self.loss.loss),
            "examples_per_second": round(speed, 1),
        })  # fmt: skip
        best = "" if progress.best is None else f", {self.config.validate_by} {progress.best:.4f}"
        self.note = f"loss {float(value):.4f}, {speed:,.0f} examples/s{best}"

    def _validate(self, last: bool) -> None:
        self._check_losses()
        if self.validation is None:
            return
        progress = self.run.progress
        self.processes.average_buffers(self.model)
        result = self.validation.judge(
            self.model, self.view, self.device, amp=self.amp, workers=self.workers,
            cache=self.cache, progress=self.leads,
        )  # fmt: skip
        row = {f"validation_{name}": figure for name, figure in result.figures.items()}
        more = {"constant_bits": result.constant_bits}
        self.log.write({"step": progress.step, "epoch": progress.epoch, **row, **more})
        if self.leads:
            self.say(f"epoch {progress.epoch}: validation {result}")
            advisor = Advisor(self.config, self.run.inputs.kind, result.chance, result.rows)
            for line in advisor.advise(self.log.rows, last):
                self.say(line)
            self.silent_since = time.monotonic()
        progress.worse += 1
        if progress.best is None or result.chosen > progress.best:
            progress.best, progress.best_step, progress.worse = result.chosen, progress.step, 0
            self.keeper.keep_best()

    def _save(self) -> None:
        self._check_losses()
        self.keeper.save()

    def _resume(self) -> None:
        """Go on from the checkpoint in the folder, if there is one."""
        folder, progress = self.run.folder, self.keeper.resume()
        if progress is not None:
            # a finished run goes on where epochs were added, unless patience ended it
            more = progress.step < self.steps and not self.config.patience
            progress.finished = progress.finished and not more
            if not progress.finished and self.leads:
                self.say(f"going on from step {progress.step:,} of {folder}")
        self.log.open(self.run.progress.step)
        self.run.history = self.log.rows

    def _finish(self) -> Run:
        self.processes.wait()
        return self.keeper.load_best()
