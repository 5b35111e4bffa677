"""Start the last layer at the principal components of what it reads.

A last layer with random weights mixes the features at random, so that a run begins by losing what
the network knows. What is lost for kinds that it does not learn from, it does not learn again:
such a layer ranks new kinds worse than the features themselves. Principal components keep most of
that (docs/training.md has the figures).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rankbits import _check
from rankbits.data.augment import View
from rankbits.data.examples import Examples
from rankbits.models import find_head
from rankbits.quantizers.orthogonal import random_rotation
from rankbits.quantizers.principal import Moments
from rankbits.train.embed import embed

MOST = 10_000  # examples that the components are found from


def start_at_components(
    model: nn.Module,
    examples: Examples,
    view: View | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    **options: Any,
) -> None:
    """Set the last layer to the principal components of what reaches it from ``examples``.

    They are turned by a random rotation, so that all outputs vary alike, centred, and made as large
    as the weights that they replace. ``options`` are those of :func:`rankbits.train.embed.embed`.

    >>> from rankbits.models import make_embedder
    >>> model = make_embedder("linear", 1, "embedding", inputs=2)
    >>> line = np.outer(np.arange(5), [3, 4]) + [0, 9]
    >>> start_at_components(model, Examples(line.astype(np.float32), np.zeros(5)))
    >>> weight = model.head.weight.detach().abs()
    >>> (weight / weight.norm()).numpy().round(4)
    array([[0.6, 0.8]], dtype=float32)
    """
    head = find_head(model)
    if not isinstance(head, nn.Linear):
        _check.refuse(
            "last_layer = 'principal' needs a network whose last layer is linear, as model.head."
        )
    moments = Moments()
    hook = head.register_forward_pre_hook(lambda _, inputs: _add(moments, inputs[0]))
    try:
        embed(model.to(device), _take_evenly(examples), view, device=device, **options)
    finally:
        hook.remove()
    mean, directions = moments.find_directions()
    if directions.shape[1] == 0:
        _check.refuse("last_layer = 'principal' needs examples that differ; all are the same.")
    components = directions[:, : head.out_features].T
    # for more outputs than components the columns that are kept make a tight frame
    turn = random_rotation(head.out_features, torch.Generator().manual_seed(seed), torch.float64)
    weight = turn[:, : len(components)] @ components
    with torch.no_grad():
        before = head.weight.double().square().mean().sqrt().cpu()
        weight *= before / weight.square().mean().sqrt()
        head.weight.copy_(weight)
        if head.bias is not None:
            head.bias.copy_(-(weight @ mean))


def _add(moments: Moments, features: torch.Tensor) -> None:
    moments.add(features.detach().float())


def _take_evenly(examples: Examples) -> Examples:
    """At most ``MOST`` of the examples, evenly spaced."""
    if len(examples) <= MOST:
        return examples
    return examples.subset(np.linspace(0, len(examples) - 1, MOST).astype(np.int64))
