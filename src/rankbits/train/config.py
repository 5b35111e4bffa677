"""The settings of a training run, in groups, each with its default; presets choose many at once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from rankbits import _check
from rankbits._option import DEVICE, option
from rankbits.data.augment import KINDS
from rankbits.evaluate.figures import check_figure

# settings that a resumed run may change: where and how long it runs, not what it computes
MAY_CHANGE = (
    "preset", "out", "root", "epochs", "steps", "patience", "workers", "cache",
    "checkpoint_minutes", "log_every", "tensorboard", "device",
)  # fmt: skip

# the first two are those of reproduce/: _fine-tuned.toml and best/_last-layer.toml
PRESETS: dict[str, dict[str, Any]] = {
    "fine-tune": {  # all layers of a network with ImageNet weights
        "model": "efficientnet-lite0", "weights": "imagenet", "augment": "strong",
        "optimizer": "adamw", "lr": 3e-4, "head_multiple": 10.0, "weight_decay": 0.05,
        "schedule": "cosine", "warmup": 0.05,
    },
    "frozen": {  # a last layer on the outputs of such a network, which are computed once
        "features": "efficientnet-lite0", "model": "linear",
        "optimizer": "adamw", "weight_decay": 0.05, "schedule": "cosine", "epochs": 40,
    },
    "from-scratch": {  # from random weights
        "augment": "shift", "optimizer": "adamw", "weight_decay": 0.05,
        "schedule": "cosine", "warmup": 0.05, "epochs": 60,
    },
}  # fmt: skip

LEAST = {
    "seed": 0, "batch_size": 2, "memory": 0, "epochs": 0, "steps": 0, "patience": 0,
    "validate_every": 1, "log_every": 1, "step_epochs": 1, "batches_per_pair": 1, "together": 1,
    "hidden": 1, "bits": 1, "dim": 1, "chunk": 1, "per_class": 1, "side": 1,
}  # fmt: skip
ABOVE_ZERO = ("lr", "head_multiple", "loss_multiple", "alpha", "alpha_end")
SHARES = ("validation", "warmup", "dropout")  # below 1
NOT_NEGATIVE = (
    *SHARES, "momentum", "weight_decay", "clip", "hswd", "step_factor", "checkpoint_minutes",
)  # fmt: skip
CHOICES: dict[str, tuple[str, ...]] = {
    "batch_norm": ("batch", "frozen"),
    "continuation": ("fixed", "grow", "hashnet"),
    "optimizer": ("adam", "adamw", "sgd"),
    "schedule": ("constant", "cosine", "step"),
    "amp": ("auto", "off", "bf16", "fp16"),
    "augment": KINDS,
    "preset": tuple(PRESETS),
    "hold_out": ("auto", "rows", "classes"),
    "last_layer": ("random", "principal"),
}


@dataclass(frozen=True)
class Settings:
    """A group of settings, checked when it is made; the help shows ``title`` above its flags."""

    title: ClassVar[str] = ""

    def __init_subclass__(cls, title: str = "") -> None:
        cls.title = title

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                _check_setting(field.name, value)


def _check_setting(name: str, value: Any) -> None:
    if name in LEAST:
        _check.whole(name, value, LEAST[name])
    if name in ABOVE_ZERO and _check.number(name, value) <= 0:
        _check.refuse(f"{name} must be above 0; got {value}.")
    if name in NOT_NEGATIVE and _check.number(name, value) < 0:
        _check.refuse(f"{name} must not be negative; got {value}.")
    if name in SHARES and value >= 1:
        _check.refuse(f"{name} is a share below 1; got {value}.")
    if name in CHOICES:
        _check.choice(name, value, CHOICES[name])


@dataclass(frozen=True)
class DataSettings(Settings, title="data"):
    """The data that a run learns from."""

    data: str | None = option(
        None, "a folder of images or texts, a table, an .npz, or a protocol's name"
    )
    root: str | None = option(None, "where the protocols' files lie (default: RANKBITS_DATA)")
    validation: float = option(0.1, "share of your data held out for validation; 0: none")
    hold_out: str = option("auto", "'rows' of each class, or 'classes', for kinds that are new")
    validate_by: str = option("mAP", "figure to choose weights by: mAP, hit@1, MAP@R, NDCG@10, ...")
    teachers: str | None = option(None, "runs that label images without labels: RUN,RUN")
    unlabelled: str | None = option(None, "those images (default: a protocol's database)")
    taught: float = option(0.8, "share of those images to learn from, the surest ones")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_figure("validate_by", self.validate_by)


@dataclass(frozen=True)
class NetworkSettings(Settings, title="network"):
    """The network, and the width of its embeddings."""

    model: str = option(
        "auto", "linear, mlp, conv, resnet50, timm:NAME, ...; of texts a sentence model"
    )
    weights: str | None = option(None, "'imagenet', or a file of weights to start from")
    bits: int | None = option(None, "outputs of a hash layer, one for each bit (default 64)")
    dim: int | None = option(None, "outputs of an embedding layer, instead of bits")
    hidden: int = option(256, "width of the layers of an mlp")
    dropout: float = option(0.0, "share of numbers dropped before the last layer (mlp: each)")
    last_layer: str = option("random", "its weights at first: 'random', or 'principal' components")
    freeze: bool = option(False, "train the head only")
    features: str | None = option(None, "a frozen network or run; its outputs are the inputs")

    @property
    def width(self) -> int:
        return self.dim or self.bits or 64

    @property
    def head(self) -> str:
        return "embedding" if self.dim else "hash"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is not None and self.dim is not None:
            _check.refuse("Give bits (a hash layer) or dim (an embedding layer), not both.")


@dataclass(frozen=True)
class ImageSettings(Settings, title="images"):
    """How the network sees images."""

    side: int | None = option(None, "side of the images the network sees")
    augment: str = option("none", "'none', 'flip', 'shift', 'crop', 'full' or 'strong'")
    mirror: bool = option(False, "an image's outputs are the mean of its own and its mirror's")
    workers: int | None = option(None, "processes that decode images (default: by cores)")
    cache: bool = option(True, "keep decoded images beside the data root, for the next epoch")


@dataclass(frozen=True)
class LossSettings(Settings, title="loss"):
    """The loss that training reduces."""

    loss: str = option("tie-aware-ap", "tie-aware-ap, fastap, cel, hyp2, ..., pml:NAME")
    options: dict[str, Any] | None = option(None, "options of the loss: form=exact")  # noqa: RUF009
    continuation: str = option("fixed", "alpha of tanh: 'fixed', 'grow' (to alpha_end), 'hashnet'")
    alpha: float | None = option(None, "alpha of tanh at the start (default: found from outputs)")
    alpha_end: float | None = option(None, "alpha at the end of a run that grows it (40 alpha)")
    hswd: float = option(0.0, "weight of the sliced-Wasserstein penalty")


@dataclass(frozen=True)
class BatchSettings(Settings, title="batches"):
    """Which examples a step sees."""

    batch_size: int = option(256, "examples in a step, over all processes")
    chunk: int | None = option(None, "examples in memory at a time: exact, in two passes")
    memory: int = option(0, "embeddings of past batches kept as database (cross-batch memory)")
    sampler: str = option("auto", "'shuffled', 'random' (whole classes), 'hard', 'vehicleid'")
    per_class: int | None = option(None, "examples of a class in a batch ('random' sampler)")
    batches_per_pair: int = option(5, "batches for each pair of categories ('hard' sampler)")
    together: int = option(2, "categories in a batch ('hard' sampler)")


@dataclass(frozen=True)
class OptimiserSettings(Settings, title="optimiser"):
    """What a step does with the gradient."""

    optimizer: str = option("adam", "'adam', 'adamw' (decay apart from the gradient) or 'sgd'")
    lr: float = option(1e-3, "learning rate")
    head_multiple: float = option(1.0, "learning rate of the last layer, in multiples of lr")
    loss_multiple: float = option(1.0, "learning rate of the loss's own parameters, likewise")
    momentum: float = option(0.9, "momentum of sgd")
    weight_decay: float = option(0.0, "weight decay")
    clip: float = option(0.0, "largest norm of the gradient; 0: no limit")


@dataclass(frozen=True)
class PassSettings(Settings, title="passes"):
    """How the network's forward and backward passes are computed."""

    batch_norm: str = option("batch", "'batch': statistics of each chunk; 'frozen': as loaded")
    amp: str = option("auto", "'off', 'bf16', 'fp16'; auto: bf16 on a GPU that has it")
    graphs: bool = option(False, "replay the network's passes as CUDA graphs: less to launch")
    compile: bool = option(False, "compile the network's passes: less memory to read and write")


@dataclass(frozen=True)
class ScheduleSettings(Settings, title="schedule"):
    """How long a run goes on, and its rate at each step."""

    epochs: int = option(20, "passes over the sampler")
    steps: int = option(0, "steps after which a run ends before its epochs do; 0: never")
    patience: int = option(0, "validations without a better one before stopping; 0: never")
    validate_every: int = option(1, "epochs between validations")
    schedule: str = option("constant", "'constant', 'cosine' or 'step'")
    warmup: float = option(0.0, "share of the run in which the rate rises from 0")
    step_epochs: int = option(10, "epochs between steps of the 'step' schedule")
    step_factor: float = option(0.1, "what a step multiplies the rate by")


@dataclass(frozen=True)
class RunSettings(Settings, title="run"):
    """Where a run is kept and computed."""

    out: str | None = option(None, "the run's folder: weights, log, checkpoint", "o")
    seed: int = option(0, "seed of all random choices")
    device: str = option("auto", DEVICE)
    checkpoint_minutes: float = option(10.0, "minutes between checkpoints; 0: after every step")
    log_every: int = option(10, "steps between lines of log.jsonl")
    tensorboard: bool = option(True, "write TensorBoard's files too, where it is installed")


# the groups stand in reverse because a dataclass takes the fields of its last base first
@dataclass(frozen=True, init=False)
class TrainConfig(
    RunSettings,
    ScheduleSettings,
    PassSettings,
    OptimiserSettings,
    BatchSettings,
    LossSettings,
    ImageSettings,
    NetworkSettings,
    DataSettings,
):
    """All settings of a run: what ``rankbits train run.toml`` reads and ``rb.train`` takes by name.

    A ``preset`` chooses many at once; other settings replace its choices. Whole groups of settings
    are accepted too.

    >>> TrainConfig(bits=32, loss="cel").head
    'hash'
    >>> config = TrainConfig(preset="fine-tune", lr=1e-4)
    >>> config.optimizer, config.lr, config.weights
    ('adamw', 0.0001, 'imagenet')
    >>> TrainConfig(NetworkSettings(dim=128), ScheduleSettings(epochs=5), seed=1).width
    128
    """

    preset: str | None = option(None, "settings that suit 'fine-tune', 'frozen' or 'from-scratch'")

    def __init__(self, *groups: Settings, **settings: Any) -> None:
        for group in reversed(groups):
            settings = dataclasses.asdict(group) | settings
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in settings:
            if name not in defaults:
                _check.refuse(f"TrainConfig has no '{name}'{_check.suggest(name, defaults)}.")
        for name, value in (defaults | read_preset(settings.get("preset")) | settings).items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def facts(self) -> dict[str, Any]:
        """Return every field by name, in the form that JSON holds."""
        return dataclasses.asdict(self)

    def with_changes(self, **changes: Any) -> TrainConfig:
        """Return these settings with ``changes``; a preset among them replaces what it chooses."""
        return TrainConfig(**self.facts() | read_preset(changes.get("preset")) | changes)

    def with_preset(self, name: str) -> TrainConfig:
        """Return these settings, with the preset's choices where they still have their defaults."""
        defaults = TrainConfig().facts()
        changed = {n: value for n, value in self.facts().items() if value != defaults[n]}
        return TrainConfig(**changed | {"preset": name})

    def refuse_other(self, facts: dict[str, Any], where: Any) -> None:
        """Refuse to go on with a run that was made with other settings."""
        for name, value in self.facts().items():
            if name not in MAY_CHANGE and name in facts and facts[name] != value:
                _check.refuse(
                    f"{where} was made with {name} = {facts[name]!r}, not {value!r}; give another "
                    "folder, or the same settings to go on with it."
                )


def read_preset(name: str | None) -> dict[str, Any]:
    """Return the settings that a preset chooses; none where ``name`` is None."""
    return {} if name is None else PRESETS[_check.choice("preset", name, tuple(PRESETS))]
