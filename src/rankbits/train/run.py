"""A run: a trained network in a folder with its weights, settings and log."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits._files import write_whole
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles, measure
from rankbits.data.texts import Texts
from rankbits.models import make_embedder
from rankbits.models.convolution import SIDE
from rankbits.train.checkpoints import (
    CHECKPOINT,
    WEIGHTS,
    Progress,
    load_checkpoint,
    load_state,
    load_tensors,
    save_checkpoint,
    save_tensors,
)
from rankbits.train.config import TrainConfig
from rankbits.train.embed import Embedded, embed
from rankbits.train.log import read_log

RUN = "run.json"
SMALL = 64  # images up to this side suit the small network, which sees them at their own size
LARGE = 224


@dataclass(frozen=True)
class Inputs:
    """What a network reads. ``kind`` is "features", ``dim`` of them; "images" with ``channels``, at
    ``side`` pixels; or "texts", which a sentence model turns into ``dim`` numbers."""

    kind: str
    dim: int = 0
    side: int = 0
    channels: int = 0

    def make_view(self, augment: str = "none", mirror: bool = False) -> View | None:
        """Make the view of images; None for other kinds."""
        if self.kind != "images":
            return None
        return View(self.side, self.channels, augment, mirror)


def choose_inputs(examples: Examples, config: TrainConfig) -> Inputs:
    """Choose how the network of ``config`` reads these examples.

    The small network sees small images at their own size, if it can be so small; large networks
    see 224 x 224 pixels.
    """
    if isinstance(examples.inputs, Texts):
        _check.refuse("Texts are trained on by rankbits.texts.train_texts, not here.")
    if isinstance(examples.inputs, np.ndarray) and examples.kind == "features":
        return Inputs("features", dim=examples.inputs.shape[1])
    image_side = measure_side(examples)
    channels = 3 if isinstance(examples.inputs, ImageFiles) else examples.inputs.shape[3]
    small = choose_model(config, image_side) == "conv"
    side = config.side or (max(SIDE, min(image_side, SMALL)) if small else LARGE)
    return Inputs("images", side=side, channels=channels if small else 3)


def measure_side(examples: Examples) -> int:
    """Measure the shorter side of images; of files, that of the first that can be read."""
    files = examples.inputs
    if isinstance(files, np.ndarray):
        return min(files.shape[1:3])
    assert isinstance(files, ImageFiles)
    _check.not_empty("examples", len(examples))
    for path in files.paths[:100]:
        try:
            return min(measure(str(path)))
        except _check.Refusal as refusal:
            reason = str(refusal)
    _check.refuse(f"None of the first {min(100, len(files))} images can be read: {reason}")


def choose_model(config: TrainConfig, side: int = 0) -> str:
    """Return the network's name. 'auto' is a linear layer for features (side 0), the small network
    for small images, and a large network for others."""
    if config.model != "auto":
        return config.model
    return "linear" if side == 0 else "conv" if side <= SMALL else "efficientnet-lite0"


def build_model(config: TrainConfig, inputs: Inputs) -> torch.nn.Module:
    """Build the network of a configuration; its random weights follow from the seed."""
    torch.manual_seed(config.seed)
    name = choose_model(config, inputs.side)
    options: dict[str, Any] = {"dropout": config.dropout}
    if inputs.kind == "features":
        options["inputs"] = inputs.dim
    else:
        options["channels"] = inputs.channels
    if name == "mlp":
        options |= {"hidden": (config.hidden,), "features": config.hidden}
    return make_embedder(name, config.width, config.head, config.weights, **options)


@dataclass(eq=False)
class Run:
    """A trained network, with everything that is needed to use it.

    ``history`` holds the rows of ``log.jsonl``. ``progress.best`` is the best validation, and
    the weights are those that reached it (without validation, the last).

    >>> config = TrainConfig(bits=4)
    >>> run = Run(build_model(config, Inputs("features", dim=3)), config, Inputs("features", dim=3))
    >>> run.embed(np.ones((2, 3), np.float32)).embeddings.shape
    (2, 4)
    """

    model: torch.nn.Module
    config: TrainConfig
    inputs: Inputs
    folder: Path | None = None
    class_names: tuple[str, ...] = ()
    progress: Progress = field(default_factory=Progress)
    history: list[dict[str, Any]] = field(default_factory=list)
    failed: tuple[str, ...] = ()

    def embed(self, examples: Any, *, mirror: bool | None = None, **options: Any) -> Embedded:
        """Embed examples, an array of features or images, or paths of image files.

        ``mirror``: whether outputs are the mean of an image's own and its mirror's; by default the
        run's setting. ``options`` are those of :func:`rankbits.train.embed.embed`.
        """
        if not isinstance(examples, Examples):
            examples = make_examples(examples)
        if (self.inputs.kind == "features") != (examples.kind == "features"):
            _check.refuse(f"The run was trained on {self.inputs.kind}; got {examples.kind}.")
        if examples.kind == "features" and examples.inputs.shape[1] != self.inputs.dim:
            _check.refuse(
                f"Inputs must have the run's {self.inputs.dim} features; "
                f"got {examples.inputs.shape[1]}."
            )
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        view = self.inputs.make_view(
            self.config.augment, self.config.mirror if mirror is None else mirror
        )
        return embed(self.model, examples, view, device=device, **options)

    @property
    def model_name(self) -> str:
        """The name of the network, also where the settings say 'auto'."""
        return choose_model(self.config, self.inputs.side)

    def save_facts(self) -> None:
        """Write ``run.json``: all that ``load_run`` needs besides the weights."""
        if self.folder is None:
            return
        facts = {
            "config": self.config.facts(),
            "inputs": asdict(self.inputs),
            "class_names": list(self.class_names),
        }
        text = json.dumps(facts, indent=2) + "\n"
        write_whole(self.folder / RUN, lambda file: file.write(text.encode()))

    def save_weights(self) -> None:
        """Write the weights, where the run has a folder."""
        if self.folder is not None:
            tensors = self.model.state_dict()
            save_tensors(self.folder / WEIGHTS, "model", tensors, asdict(self.progress))


@dataclass(eq=False)
class Keeper:
    """Saves and loads the state of a run in its folder; without a folder it keeps the best weights
    in memory.

    ``writes``: whether this process writes; of several processes one writes and all read.
    """

    run: Run
    loss: torch.nn.Module
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    writes: bool
    data: str = ""  # the fingerprint of the training data
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    saved: float = field(default_factory=time.monotonic)

    def keep_best(self) -> None:
        """Keep the present weights as the best."""
        if self.writes:
            self.run.save_weights()
        if self.run.folder is None:
            self.best = {n: t.detach().clone() for n, t in self.run.model.state_dict().items()}

    def load_best(self) -> Run:
        """Give the network its best weights, and evaluation mode."""
        run = self.run
        weights = run.folder / WEIGHTS if run.folder else None
        if weights is not None and weights.is_file():
            load_state(run.model, load_tensors(weights, "model")[0], weights)
        elif self.best:
            run.model.load_state_dict(self.best)
        run.model.eval()
        return run

    def save(self) -> None:
        """Write the checkpoint."""
        self.saved = time.monotonic()
        run = self.run
        if run.folder is not None and self.writes:
            facts: dict[str, Any] = {"scaler": self.scaler.state_dict()}
            facts |= {"config": run.config.facts(), "data": self.data}
            save_checkpoint(run.folder, run.model, self.loss, self.optimiser, run.progress, facts)

    def resume(self) -> Progress | None:
        """Load the checkpoint in the folder, if there is one, and return its progress."""
        run = self.run
        if run.folder is None or not (run.folder / CHECKPOINT).is_file():
            return None
        progress, facts = load_checkpoint(run.folder, run.model, self.loss, self.optimiser)
        run.config.refuse_other(facts["config"], run.folder)
        if facts.get("data", self.data) != self.data:
            _check.refuse(f"{run.folder} was trained on other data; give those, or another folder.")
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(facts["scaler"])
        run.progress = progress
        return progress


def make_examples(value: Any) -> Examples:
    """Make unlabelled examples of an array, or of one or more paths of images."""
    if isinstance(value, (str, Path)):
        value = [value]
    if isinstance(value, Sequence) and len(value) > 0 and isinstance(value[0], (str, Path)):
        value = ImageFiles(np.array(list(map(str, value))))
    inputs = value if isinstance(value, ImageFiles) else _check.array("inputs", value)
    return Examples(inputs, np.zeros(len(inputs), np.int64))


def read_facts(folder: Path) -> dict[str, Any]:
    """Read ``run.json``, or refuse a folder that has none."""
    path = folder / RUN
    if not path.is_file():
        _check.refuse(f"{folder} is not a run: it has no {RUN}.")
    try:
        facts = json.loads(path.read_text("utf-8"))
        return {name: facts[name] for name in ("config", "inputs", "class_names")}
    except (ValueError, KeyError, TypeError, RecursionError):
        _check.refuse(f"{path} is damaged or not a run's description.")


def load_run(folder: str | Path, model: torch.nn.Module | None = None, device: str = "cpu") -> Run:
    """Load a run, ready to embed. ``model`` is needed where the run trained your own network.

    >>> import tempfile
    >>> from rankbits import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     own = Examples(np.eye(4, dtype=np.float32), [0, 0, 1, 1])
    ...     _ = train(examples=own, validation=0, bits=4, epochs=1, out=f"{folder}/run", say=id)
    ...     load_run(f"{folder}/run").progress.step
    1
    """
    where = Path(folder)
    facts = read_facts(where)
    try:
        config = TrainConfig().with_changes(**facts["config"])
        inputs = Inputs(**facts["inputs"])
    except TypeError:
        _check.refuse(f"{where / RUN} is damaged or not a run's description.")
    if model is None:
        if config.model == "own":
            _check.refuse(f"{where} holds the weights of your own network; give it as model.")
        model = build_model(config.with_changes(weights=None), inputs)
    path = where / WEIGHTS
    if not path.is_file():
        _check.refuse(f"{where} has no weights yet ({WEIGHTS} is written at the first validation).")
    tensors, progress = load_tensors(path, "model")
    load_state(model, tensors, path)
    model.to(device).eval()
    names = tuple(facts["class_names"])
    return Run(model, config, inputs, where, names, Progress(**progress), read_log(where))
