"""Every choice of a training run, with its default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rankbits import _check
from rankbits._option import option
from rankbits.data.augment import KINDS

# what may differ between a run and its resumption: where and how long, not what is computed
MAY_CHANGE = (
    "out", "root", "epochs", "steps", "patience", "workers", "cache", "checkpoint_minutes",
    "log_every", "tensorboard", "device",
)  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """What ``rankbits train run.toml`` reads, and what ``rb.train`` takes by name.

    >>> TrainConfig(bits=32, loss="cel").head
    'hash'
    >>> TrainConfig(dim=128, loss="fastap").width
    128
    """

    # what is learned from, and where the run goes
    data: str | None = option(None, "a folder of images, a table, an .npz, or a protocol's name")
    out: str | None = option(None, "the run's folder: weights, log, checkpoint", "o")
    root: str | None = option(None, "where the protocols' files lie (default: RANKBITS_DATA)")
    validation: float = option(0.1, "share of your data held out for validation; 0: none")
    teachers: str | None = option(None, "runs that label images without labels: RUN,RUN")
    unlabelled: str | None = option(None, "those images (default: a protocol's database)")
    taught: float = option(0.8, "share of those images to learn from, the surest ones")
    seed: int = option(0, "seed of all random choices")

    # the network
    model: str = option("auto", "linear, mlp, conv, efficientnet-lite0, resnet50, timm:NAME, ...")
    weights: str | None = option(None, "'imagenet', or a file of weights to start from")
    bits: int | None = option(None, "outputs of a hash layer, one for each bit (default 64)")
    dim: int | None = option(None, "outputs of an embedding layer, instead of bits")
    hidden: int = option(256, "width of the layers of an mlp")
    dropout: float = option(0.0, "share of numbers dropped before the last layer (mlp: each)")
    freeze: bool = option(False, "train the head only")
    features: str | None = option(None, "a frozen network or run; its outputs are the inputs")
    batch_norm: str = option("batch", "'batch': statistics of each chunk; 'frozen': as loaded")

    # the objective
    loss: str = option("tie-aware-ap", "tie-aware-ap, fastap, cel, hyp2, ..., pml:NAME")
    options: dict[str, Any] | None = option(None, "options of the loss: form=exact")  # noqa: RUF009
    continuation: str = option("fixed", "alpha of tanh: 'fixed', 'grow' (to alpha_end), 'hashnet'")
    alpha: float | None = option(None, "alpha of tanh at the start (default: found from outputs)")
    alpha_end: float | None = option(None, "alpha at the end of a run that grows it (40 alpha)")
    hswd: float = option(0.0, "weight of the sliced-Wasserstein penalty")

    # batches
    batch_size: int = option(256, "examples in a step, over all processes")
    chunk: int | None = option(None, "examples in memory at a time: exact, in two passes")
    memory: int = option(0, "embeddings of past batches kept as database (cross-batch memory)")
    sampler: str = option("auto", "'shuffled', 'random' (whole classes), 'hard', 'vehicleid'")
    per_class: int | None = option(None, "examples of a class in a batch ('random' sampler)")
    batches_per_pair: int = option(5, "batches for each pair of categories ('hard' sampler)")

    # steps
    optimizer: str = option("adam", "'adam', 'adamw' (decay apart from the gradient) or 'sgd'")
    lr: float = option(1e-3, "learning rate of the body")
    head_multiple: float = option(1.0, "learning rate of the last layer, in multiples of lr")
    loss_multiple: float = option(1.0, "learning rate of the loss's own parameters, likewise")
    momentum: float = option(0.9, "momentum of sgd")
    weight_decay: float = option(0.0, "weight decay")
    schedule: str = option("constant", "'constant', 'cosine' or 'step'")
    warmup: float = option(0.0, "share of the run in which the rate rises from 0")
    step_epochs: int = option(10, "epochs between steps of the 'step' schedule")
    step_factor: float = option(0.1, "what a step multiplies the rate by")
    clip: float = option(0.0, "largest norm of the gradient; 0: no limit")
    epochs: int = option(20, "passes over the sampler")
    steps: int = option(0, "steps after which a run ends before its epochs do; 0: never")
    patience: int = option(0, "validations without a better one before stopping; 0: never")
    validate_every: int = option(1, "epochs between validations")
    amp: str = option("auto", "'off', 'bf16', 'fp16'; auto: bf16 on a GPU that has it")

    # images
    side: int | None = option(None, "side of the images the network sees")
    augment: str = option("none", "'none', 'flip', 'shift', 'crop', 'full' or 'strong'")
    mirror: bool = option(False, "an image's outputs are the mean of its own and its mirror's")
    workers: int | None = option(None, "processes that decode images (default: by cores)")
    cache: bool = option(True, "keep decoded images beside the data root, for the next epoch")

    # keeping
    checkpoint_minutes: float = option(10.0, "minutes between checkpoints; 0: after every step")
    log_every: int = option(10, "steps between lines of log.jsonl")
    tensorboard: bool = option(True, "write TensorBoard's files too, where it is installed")
    device: str = option("auto", "'cpu', 'cuda', 'cuda:1'; auto: a GPU if there is one")

    @property
    def width(self) -> int:
        return self.dim or self.bits or 64

    @property
    def head(self) -> str:
        return "embedding" if self.dim else "hash"

    def __post_init__(self) -> None:
        if self.bits is not None and self.dim is not None:
            _check.refuse("Give bits (a hash layer) or dim (an embedding layer), not both.")
        for name, least in (
            ("seed", 0), ("batch_size", 2), ("memory", 0), ("epochs", 0), ("steps", 0),
            ("patience", 0), ("validate_every", 1), ("log_every", 1), ("step_epochs", 1),
            ("batches_per_pair", 1), ("hidden", 1),
        ):  # fmt: skip
            _check.whole(name, getattr(self, name), least)
        for name in ("bits", "dim", "chunk", "per_class", "side"):
            if getattr(self, name) is not None:
                _check.whole(name, getattr(self, name), 1)
        given = [name for name in ("alpha", "alpha_end") if getattr(self, name) is not None]
        for name in ("lr", "head_multiple", "loss_multiple", *given):
            if _check.number(name, getattr(self, name)) <= 0:
                _check.refuse(f"{name} must be above 0; got {getattr(self, name)}.")
        for name in (
            "momentum", "weight_decay", "warmup", "clip", "hswd", "dropout",
            "step_factor", "checkpoint_minutes", "validation",
        ):  # fmt: skip
            if _check.number(name, getattr(self, name)) < 0:
                _check.refuse(f"{name} must not be negative; got {getattr(self, name)}.")
        for name in ("validation", "warmup", "dropout"):
            if getattr(self, name) >= 1:
                _check.refuse(f"{name} is a share below 1; got {getattr(self, name)}.")
        for name, allowed in (
            ("batch_norm", ("batch", "frozen")),
            ("continuation", ("fixed", "grow", "hashnet")),
            ("optimizer", ("adam", "adamw", "sgd")),
            ("schedule", ("constant", "cosine", "step")),
            ("amp", ("auto", "off", "bf16", "fp16")),
            ("augment", KINDS),
        ):
            _check.choice(name, getattr(self, name), allowed)

    def facts(self) -> dict[str, Any]:
        """Every field by name, as JSON holds it."""
        return dataclasses.asdict(self)

    def with_changes(self, **changes: Any) -> TrainConfig:
        known = [f.name for f in dataclasses.fields(TrainConfig)]
        for name in changes:
            if name not in known:
                _check.refuse(f"TrainConfig has no '{name}'{_check.nearest(name, known)}.")
        return TrainConfig(**{**self.facts(), **changes})

    def refuse_other(self, facts: dict[str, Any], where: Any) -> None:
        """Refuse to go on with a run that was made with other settings."""
        for name, value in self.facts().items():
            if name not in MAY_CHANGE and name in facts and facts[name] != value:
                _check.refuse(
                    f"{where} was made with {name} = {facts[name]!r}, not {value!r}; give another "
                    "folder, or the same settings to go on with it."
                )
