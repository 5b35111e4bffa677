"""The last layer, which turns features into the numbers that are compared, and small networks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from rankbits import _check


class HashHead(nn.Linear):
    """(M, features) -> (M, bits), whose signs are the bits: weights N(0, .01), no bias at first.

    H2Q's experiments start from these weights. They keep the outputs small, where tanh is steep.

    >>> HashHead(8, 4)(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, features: int, bits: int) -> None:
        super().__init__(_check.whole("features", features, 1), _check.whole("bits", bits, 1))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.01)
        nn.init.zeros_(self.bias)


class EmbeddingHead(nn.Linear):
    """(M, features) -> (M, dim): FastAP's embedding layer, not normalised (the losses do that).

    >>> EmbeddingHead(8, 4)(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, features: int, dim: int) -> None:
        super().__init__(_check.whole("features", features, 1), _check.whole("dim", dim, 1))


def check_dropout(dropout: float) -> float:
    """Return ``dropout``; refuse a number that is not at least 0 and less than 1."""
    if not 0 <= _check.number("dropout", dropout) < 1:
        _check.refuse(f"dropout must be at least 0 and less than 1; got {dropout!r}.")
    return dropout


class MLP(nn.Sequential):
    """(M, inputs) -> (M, out): linear layers of widths ``hidden`` with ReLU between them.

    Without ``hidden`` it is one linear layer. ``dropout`` is applied before every layer.

    >>> MLP(8, 4, hidden=(16,))(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self, inputs: int, out: int, hidden: Sequence[int] = (256,), dropout: float = 0.0
    ) -> None:
        check_dropout(dropout)
        widths = [_check.whole("inputs", inputs, 1)]
        widths += [_check.whole("hidden", width, 1) for width in hidden]
        widths += [_check.whole("out", out, 1)]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.ReLU()] if layers else []
            layers += [nn.Dropout(dropout)] if dropout else []
            layers.append(nn.Linear(before, after))
        super().__init__(*layers)
        self.features = widths[-1]


class Features(nn.Module):
    """Return features (M, inputs) unchanged: the backbone of linear hash functions.

    >>> Features(8)(torch.ones(2, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.features = _check.whole("inputs", inputs, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self.features:
            _check.refuse(
                f"Inputs must have shape (M, {self.features}); got {tuple(inputs.shape)}."
            )
        return inputs
