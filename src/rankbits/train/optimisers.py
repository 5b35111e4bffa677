"""The optimiser, the learning rate at each step, and the alpha of tanh at each step."""

from __future__ import annotations

import math
from typing import Any

import torch

from rankbits.losses.protocol import takes_alpha
from rankbits.models import find_head, group_parameters
from rankbits.train.config import LossSettings, ScheduleSettings, TrainConfig

SPREAD = 0.5  # root mean square of alpha f in the first batch: tanh is neither flat nor linear
GROWTH = 40.0  # factor by which alpha grows where no end is given: TALR's 1 to 40


def make_optimiser(
    model: torch.nn.Module, loss: torch.nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """Make Adam, AdamW or SGD: the head and the loss's own parameters learn at multiples of ``lr``,
    the other layers at ``lr``.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    >>> optimiser = make_optimiser(model, torch.nn.Module(), TrainConfig(lr=0.1, head_multiple=10))
    >>> [(group["lr"], len(group["params"])) for group in optimiser.param_groups]
    [(0.1, 2), (1.0, 2)]
    """
    head = find_head(model)
    if config.freeze and head is not None:
        model.requires_grad_(False)
        head.requires_grad_(True)
    groups = group_parameters(model, config.lr, config.head_multiple)
    of_loss = [p for p in loss.parameters() if p.requires_grad]
    if of_loss:
        groups.append({"name": "loss", "params": of_loss, "lr": config.lr * config.loss_multiple})
    groups = [group | {"base": group["lr"]} for group in groups]
    # on a GPU one kernel updates all weights
    fused = True if all(p.is_cuda for group in groups for p in group["params"]) else None
    settings: dict[str, Any] = {"weight_decay": config.weight_decay, "fused": fused}
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, config.lr, momentum=config.momentum, **settings)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, config.lr, **settings)


def find_rate(config: ScheduleSettings, step: int, epoch: int, steps: int) -> float:
    """Find the factor of the learning rates at a step of ``steps``.

    >>> [round(find_rate(ScheduleSettings(schedule="cosine"), s, 0, 4), 2) for s in range(4)]
    [1.0, 0.85, 0.5, 0.15]
    """
    share = step / max(steps, 1)
    rising = min(1.0, (step + 1) / max(config.warmup * steps, 1))
    if config.schedule == "cosine":
        return rising * (1 + math.cos(math.pi * min(share, 1.0))) / 2
    if config.schedule == "step":
        return rising * config.step_factor ** (epoch // config.step_epochs)
    return rising


def choose_alpha(config: LossSettings, outputs: torch.Tensor) -> float:
    """Choose the alpha of the first step: that of ``config``, or the one that gives alpha times the
    ``outputs`` f of the first batch a root mean square of ``SPREAD``.

    The scale of f depends on the features. Where alpha f is tiny, all distances lie in one bin and
    all bits learn the same; where it is large, tanh is flat.

    >>> round(choose_alpha(LossSettings(), torch.tensor([[0.03, 0.04], [-0.03, 0.04]])), 3)
    14.142
    >>> choose_alpha(LossSettings(alpha=4), torch.zeros(2, 2))
    4
    """
    if config.alpha is not None:
        return config.alpha
    size = float(outputs.detach().float().square().mean().sqrt()) if outputs.numel() else 0.0
    alpha = SPREAD / size if size > 0 else 1.0
    return alpha if math.isfinite(alpha) else 1.0


def find_alpha(config: LossSettings, start: float, step: int, steps: int) -> float:
    """Find the alpha of tanh(alpha f) at a step: ``start``; or growing from there geometrically to
    ``alpha_end`` (TALR, appendix D); or ``start`` times HashNet's sqrt(1 + floor(step/200)).

    >>> config = LossSettings(continuation="grow", alpha_end=100)
    >>> [round(find_alpha(config, 1.0, s, 2), 3) for s in (0, 1, 2)]
    [1.0, 10.0, 100.0]
    """
    if config.continuation == "grow":
        growth = GROWTH if config.alpha_end is None else max(1.0, config.alpha_end / start)
        return start * growth ** min(1.0, step / max(steps, 1))
    if config.continuation == "hashnet":
        return start * math.sqrt(1 + step // 200)
    return start


def get_alpha(loss: Any) -> float | None:
    """Return the alpha of a loss; None for losses without a tanh, such as CEL and FastAP."""
    return loss.alpha if takes_alpha(loss) else None


def set_alpha(loss: Any, value: float) -> None:
    """Set the alpha of a loss, if it has one."""
    if takes_alpha(loss):
        loss.alpha = value


def set_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's learning rate to ``factor`` times its base."""
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor
