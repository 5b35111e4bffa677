"""A convolution and its batch norm: two modules in training, one pass when embedding."""

from __future__ import annotations

import torch
from torch import nn


def convolve_normed(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """Compute ``norm(conv(x))``: on a CPU, without gradients, as one convolution.

    On a CPU most of the time goes into passing over activations, and the norm is such a pass. Its
    scale and shift are multiplied into the weights instead, where there are fewer weights than
    activations (not in the last stages of a single image). The result is the same but for rounding.
    Modules that have hooks are not fused, so that their hooks run.

    >>> conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    >>> x = torch.rand(2, 3, 8, 8)
    >>> with torch.no_grad():
    ...     torch.allclose(convolve_normed(conv, norm, x), norm(conv(x)), atol=1e-6)
    True
    """
    learned = norm.training or torch.is_grad_enabled()
    mean, variance = norm.running_mean, norm.running_var
    few = conv.weight[0].numel() * conv.stride[0] * conv.stride[1] < x.numel() // x.shape[1]
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in (conv, norm))
    plain = learned or hooked or not few or x.device.type != "cpu"
    if plain or mean is None or variance is None:
        outputs: torch.Tensor = norm(conv(x))
        return outputs
    scale = norm.weight * (variance + norm.eps).rsqrt()
    shift = norm.bias - mean * scale
    if conv.bias is not None:
        shift = shift + conv.bias * scale
    return conv._conv_forward(x, conv.weight * scale[:, None, None, None], shift)
