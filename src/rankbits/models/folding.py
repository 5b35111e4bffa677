"""A convolution with its batch norm: two modules to learn by, one pass to embed by."""

from __future__ import annotations

import torch
from torch import nn


def normed(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """``norm(conv(x))``; where nothing is learned, on a CPU, as one convolution.

    A processor spends an embedding's time on passing over activations, and the norm is a pass: its
    scale and shift are multiplied into the weights instead, where those are fewer (they are not for
    the last stages of a single image). The result is the same but for rounding. Modules that have
    hooks are not fused, so that their hooks run.

    >>> conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    >>> x = torch.rand(2, 3, 8, 8)
    >>> with torch.no_grad():
    ...     torch.allclose(normed(conv, norm, x), norm(conv(x)), atol=1e-6)
    True
    """
    learned = norm.training or torch.is_grad_enabled()
    mean, variance = norm.running_mean, norm.running_var
    few = conv.weight[0].numel() * conv.stride[0] * conv.stride[1] < x.numel() // x.shape[1]
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in (conv, norm))
    plain = learned or hooked or not few or x.device.type != "cpu"
    if plain or mean is None or variance is None:
        found: torch.Tensor = norm(conv(x))
        return found
    scale = norm.weight * (variance + norm.eps).rsqrt()
    shift = norm.bias - mean * scale
    if conv.bias is not None:
        shift = shift + conv.bias * scale
    return conv._conv_forward(x, conv.weight * scale[:, None, None, None], shift)
