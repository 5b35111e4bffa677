"""Make a loss by its name, with what it needs to know about the training set."""

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
PML = "pml:"  # before the name of a loss of pytorch-metric-learning


def make_loss(name: str, bits: int, labels: Any, **options: Any) -> Callable[..., torch.Tensor]:
    """Make the loss called ``name`` for outputs of width ``bits`` and a training set with
    ``labels``.

    Where a loss needs them and ``options`` do not give them, the number of classes (CEL, HyP2) or
    the labels (ADSH) are taken from the training set. ``"pml:MultiSimilarityLoss"`` is that loss of
    pytorch-metric-learning; a loss with a vector for each class (ProxyNCALoss) gets the number of
    classes, and labels that count from 0.

    >>> make_loss("cel", 16, [0, 1, 1, 2], penalty=0.01)
    CEL(delta=-0.25, penalty=0.01, variant='original')
    >>> make_loss("tie-aware-ap", 16, [0, 1, 1, 2], form="exact")
    TieAwareAP(form='exact', alpha=1.0, bins=None)
    """
    if str(name).startswith(PML):
        return _make_library_loss(name, bits, labels, options)
    kind = LOSSES[_check.choice("loss", name, tuple(LOSSES))]
    rows = _check.labels("labels", labels, len(labels), names=True)
    classes = rows.shape[1] if rows.ndim == 2 else len(np.unique(rows))
    facts = {"bits": bits, "classes": classes, "labels": rows}
    parameters = inspect.signature(kind).parameters
    return _build(name, kind, {n: v for n, v in facts.items() if n in parameters} | options)


def _build(name: str, kind: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return ``kind(**options)``; refuse an option that it does not take."""
    parameters = inspect.signature(kind).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for option in options:
        if option not in parameters and not takes_any:
            nearest = _check.suggest(option, parameters)
            _check.refuse(f"Loss '{name}' has no option '{option}'{nearest}.")
    return kind(**options)


def _make_library_loss(
    name: str, bits: int, labels: Any, options: dict[str, Any]
) -> Callable[..., torch.Tensor]:
    try:
        library = importlib.import_module("pytorch_metric_learning.losses")
    except ImportError:
        _check.refuse(
            f"Loss '{name}' needs the package pytorch-metric-learning: "
            "pip install pytorch-metric-learning."
        )
    class_name = name.removeprefix(PML)
    losses = [n for n in dir(library) if isinstance(getattr(library, n), type)]
    if class_name not in losses:
        _check.refuse(f"There is no loss '{name}'{_check.suggest(class_name, losses)}.")
    kind = getattr(library, class_name)
    classes = np.unique(_check.labels("labels", labels, len(labels), names=True))
    parameters = inspect.signature(kind).parameters
    for option, value in (("num_classes", len(classes)), ("embedding_size", bits)):
        if option in parameters and parameters[option].default is inspect.Parameter.empty:
            options = {option: value} | options
    loss = _build(name, kind, options)
    return _Numbered(loss, classes) if options.get("num_classes") else loss


class _Numbered(torch.nn.Module):
    """Computes ``loss`` with classes numbered from 0, whatever their labels are."""

    classes: torch.Tensor

    def __init__(self, loss: torch.nn.Module, classes: np.ndarray) -> None:
        super().__init__()
        self.loss = loss
        self.register_buffer("classes", torch.from_numpy(classes), persistent=False)

    def forward(self, embeddings: torch.Tensor, labels: Any) -> torch.Tensor:
        labels = torch.as_tensor(labels, device=self.classes.device)
        numbers = torch.searchsorted(self.classes, labels).clamp_(max=len(self.classes) - 1)
        if not torch.equal(self.classes[numbers], labels):
            _check.refuse("labels must be those of the training set; some are not.")
        return self.loss(embeddings, numbers.to(embeddings.device))
