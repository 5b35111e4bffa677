"""Commands that learn: train a network, and embed with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from rankbits._check import refuse
from rankbits._files import write_arrays
from rankbits._option import option
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles
from rankbits.train.config import TrainConfig


@dataclass(frozen=True)
class Train(TrainConfig):
    """Train a network as a TOML file says, or flags: rankbits train run.toml --bits 32."""

    name: ClassVar[str] = "train"
    places: ClassVar[tuple[str, ...]] = ()
    config_place: ClassVar[bool] = True

    quantizer: str = option("none", "fitted to the outputs at the end: itq, h2q, supervised")
    judge: bool = option(False, "embed the protocol's queries and database, and judge them")

    def work(self) -> None:
        from rankbits.retriever import finish
        from rankbits.train import train

        if not self.data or not self.out:
            refuse("Give the data and the run's folder: rankbits train --data FOLDER -o RUN.")
        config = TrainConfig().with_changes(
            **{n: v for n, v in self.facts().items() if n not in ("quantizer", "judge")}
        )
        run = train(config)
        if not run.progress.finished:
            raise KeyboardInterrupt  # so that no shell goes on to what needs the run
        best = run.progress.best
        said = "" if best is None else f", validation mAP {best:.4f}"
        print(f"{self.out}: {run.progress.step:,} steps{said}")
        if self.quantizer != "none" or self.judge:
            report = finish(run, self.quantizer, judge=self.judge)
            if report is not None:
                print(report)


def as_in_training(examples: Examples, names: tuple[str, ...]) -> np.ndarray:
    """Labels numbered as the run's classes are, by name; classes it has not seen come after."""
    theirs = examples.class_names
    if not names or not theirs or names == theirs:
        return examples.labels
    new = [name for name in theirs if name not in names]
    number = {name: i for i, name in enumerate([*names, *new])}
    if examples.labels.ndim == 1:
        return np.array([number[name] for name in theirs])[examples.labels]
    found = np.zeros((len(examples), len(number)), bool)
    found[:, [number[name] for name in theirs]] = examples.labels
    return found


@dataclass(frozen=True)
class Embed:
    """Embed images or features with a trained run; labels that the inputs have go along."""

    name: ClassVar[str] = "embed"
    places: ClassVar[tuple[str, ...]] = ("run", "inputs")

    run: str | None = option(None, "the folder rankbits train wrote")
    inputs: str | None = option(None, "a folder of images, a table, or an .npz of features")
    out: str | None = option(None, "where the embeddings are written: .npz or .safetensors", "o")
    part: str | None = option(None, "of a protocol: train, queries, database or validation")
    batch_size: int = option(256, "inputs at a time")
    workers: int = option(0, "processes that decode images")
    device: str = option("auto", "'cpu', 'cuda', 'cuda:1'; auto: a GPU if there is one")

    def work(self) -> None:
        from rankbits.train import load_run
        from rankbits.train.processes import device_of
        from rankbits.train.source import read_inputs

        if not self.run or not self.inputs or not self.out:
            refuse("Give the run, the inputs and where to write: rankbits embed RUN INPUTS -o X.")
        if Path(self.out).suffix not in (".npz", ".safetensors"):
            refuse(f"{self.out} must end in .npz or .safetensors.")
        run = load_run(self.run, device=str(device_of(self.device)))
        examples, labelled = read_inputs(self.inputs, self.part, run.config)
        found = run.embed(examples, batch_size=self.batch_size, workers=self.workers, progress=True)
        columns = {"embeddings": found.embeddings}
        if labelled:
            labels = as_in_training(examples, run.class_names)[found.rows]
            columns["labels"] = labels.astype(np.uint8) if labels.ndim == 2 else labels
        if isinstance(examples.inputs, ImageFiles) and Path(self.out).suffix == ".npz":
            columns["paths"] = examples.inputs.paths[found.rows]
        write_arrays(self.out, "embeddings", {}, columns)
        for sentence in found.failed[:10]:
            print(f"left out: {sentence}", file=sys.stderr)
        rows, width = found.embeddings.shape
        left = f", {len(found.failed):,} left out" if found.failed else ""
        print(f"{rows:,} x {width} embeddings{left} -> {self.out}")
