"""A loss by its name, with what it must know of the training set filled in."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rankbits import _check
from rankbits.losses.balanced import DCH, WGLHH, HashNet
from rankbits.losses.discrete import ADSH
from rankbits.losses.fastap import FastAP
from rankbits.losses.mutual import MIHash
from rankbits.losses.pairs import CEL, DHN, DPSH
from rankbits.losses.proxies import HyP2
from rankbits.losses.talr import TieAwareAP, TieAwareNDCG
from rankbits.losses.triplets import DTSH

LOSSES: dict[str, type[torch.nn.Module]] = {
    "tie-aware-ap": TieAwareAP,
    "tie-aware-ndcg": TieAwareNDCG,
    "fastap": FastAP,
    "mihash": MIHash,
    "cel": CEL,
    "dpsh": DPSH,
    "dhn": DHN,
    "dch": DCH,
    "hashnet": HashNet,
    "wglhh": WGLHH,
    "hyp2": HyP2,
    "dtsh": DTSH,
    "adsh": ADSH,
}
OTHERS = "pml:"  # pytorch-metric-learning's losses, by their own names


def make_loss(name: str, bits: int, labels: Any, **options: Any) -> Callable[..., torch.Tensor]:
    """Make the loss called ``name`` for outputs of width ``bits`` and a training set with
    ``labels``.

    What a loss asks for and ``options`` do not give is taken from the training set: the number of
    classes (CEL, HyP2), the labels themselves (ADSH). ``"pml:MultiSimilarityLoss"`` is that loss of
    pytorch-metric-learning; one with a vector for each class (ProxyNCALoss) is told how many there
    are and sees them numbered from 0, as it wants them.

    >>> make_loss("cel", 16, [0, 1, 1, 2], penalty=0.01)
    CEL(delta=-0.25, penalty=0.01, variant='original')
    >>> make_loss("tie-aware-ap", 16, [0, 1, 1, 2], form="exact")
    TieAwareAP(form='exact', alpha=1.0, bins=None)
    """
    if str(name).startswith(OTHERS):
        return _make_of_another_library(name, bits, labels, options)
    kind = LOSSES[_check.choice("loss", name, tuple(LOSSES))]
    rows = _check.labels("labels", labels, len(labels), names=True)
    classes = rows.shape[1] if rows.ndim == 2 else len(np.unique(rows))
    facts = {"bits": bits, "classes": classes, "labels": rows}
    asked = inspect.signature(kind).parameters
    return _call(name, kind, {n: v for n, v in facts.items() if n in asked} | options)


def _call(name: str, kind: Callable[..., Any], options: dict[str, Any]) -> Any:
    """``kind(**options)``, or a refusal of an option that it does not take."""
    taken = inspect.signature(kind).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    for option in options:
        if option not in taken and not free:
            _check.refuse(f"Loss '{name}' has no option '{option}'{_check.nearest(option, taken)}.")
    return kind(**options)


def _make_of_another_library(
    name: str, bits: int, labels: Any, options: dict[str, Any]
) -> Callable[..., torch.Tensor]:
    try:
        library = importlib.import_module("pytorch_metric_learning.losses")
    except ImportError:
        _check.refuse(
            f"Loss '{name}' needs the package pytorch-metric-learning: "
            "pip install pytorch-metric-learning."
        )
    own_name = name.removeprefix(OTHERS)
    losses = [n for n in dir(library) if isinstance(getattr(library, n), type)]
    if own_name not in losses:
        _check.refuse(f"There is no loss '{name}'{_check.nearest(own_name, losses)}.")
    kind = getattr(library, own_name)
    classes = np.unique(_check.labels("labels", labels, len(labels), names=True))
    asked = inspect.signature(kind).parameters
    for option, value in (("num_classes", len(classes)), ("embedding_size", bits)):
        if option in asked and asked[option].default is asked[option].empty:
            options = {option: value} | options
    loss = _call(name, kind, options)
    return _Numbered(loss, classes) if options.get("num_classes") else loss


class _Numbered(torch.nn.Module):
    """``loss`` of classes numbered from 0, whatever their labels are."""

    classes: torch.Tensor

    def __init__(self, loss: torch.nn.Module, classes: np.ndarray) -> None:
        super().__init__()
        self.loss = loss
        self.register_buffer("classes", torch.from_numpy(classes), persistent=False)

    def forward(self, embeddings: torch.Tensor, labels: Any) -> torch.Tensor:
        own = torch.as_tensor(labels, device=self.classes.device)
        numbers = torch.searchsorted(self.classes, own).clamp_(max=len(self.classes) - 1)
        if not torch.equal(self.classes[numbers], own):
            _check.refuse("labels must be those of the training set; some are not.")
        return self.loss(embeddings, numbers.to(embeddings.device))
