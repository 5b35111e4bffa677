"""The settings of losses, and the modules that hold them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from rankbits import _check
from rankbits.losses.histogram import outside_graphs

VARIANTS = ("original", "h2q")


def check_weight(name: str, value: Any) -> float:
    """Return the weight of a term; refuse a negative number."""
    weight = _check.number(name, value)
    if weight < 0:
        _check.refuse(f"{name} must not be negative; got {weight}.")
    return weight


def check_above_zero(name: str, value: Any) -> float:
    number = _check.number(name, value)
    if number <= 0:
        _check.refuse(f"{name} must be above zero; got {number}.")
    return number


def check_share(name: str, value: Any) -> float | None:
    """Return a share of pairs, or None, which means that of the batch."""
    if value is not None and not 0 < _check.number(name, value) < 1:
        _check.refuse(f"{name} must lie between 0 and 1; got {value}.")
    return value  # type: ignore[no-any-return]


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "alpha": check_above_zero,
    "beta": check_weight,
    "bits": lambda name, value: _check.whole(name, value, 1),
    "classes": lambda name, value: _check.whole(name, value, 1),
    "delta": _check.number,
    "gamma": check_above_zero,
    "margin": lambda name, value: None if value is None else _check.number(name, value),
    "penalty": check_weight,
    "similar_share": check_share,
    "variant": lambda name, value: _check.choice(name, value, VARIANTS),
}


def check_setting(name: str, value: Any) -> Any:
    """Return a setting of a hashing loss in the form that losses use, or refuse it."""
    return CHECKS[name](name, value)


class LossModule(torch.nn.Module):
    """A loss function with its settings: ``DCH(gamma=3)(z, y)`` is ``dch_loss(z, y, gamma=3)``.

    A class takes the settings of its ``function`` with their defaults, unless it has its own
    ``__init__``. They are checked, kept as attributes and shown by ``repr``.
    """

    function: ClassVar[Callable[..., torch.Tensor]]

    def __init_subclass__(cls) -> None:
        if "__init__" not in vars(cls):
            parameters = inspect.signature(cls.function).parameters.values()
            settings = [p for p in parameters if p.name in CHECKS]
            cls.__signature__ = inspect.Signature(settings)  # type: ignore[attr-defined]

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__()
        signature = getattr(type(self), "__signature__", None)
        if signature is not None:
            bound = signature.bind(*values, **settings)
            bound.apply_defaults()
            settings = bound.arguments
        self.names = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, check_setting(name, value))

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.names}

    @outside_graphs
    def forward(
        self, embeddings: torch.Tensor, labels: Any = None, *, affinity: Any = None
    ) -> torch.Tensor:
        return type(self).function(embeddings, labels, affinity=affinity, **self.settings)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
