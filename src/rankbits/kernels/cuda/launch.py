"""Where a kernel is launched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def on_device(x: torch.Tensor) -> AbstractContextManager[Any]:
    """The device of ``x`` made the current one; nothing to do where it is."""
    if not x.is_cuda or torch.cuda.current_device() == x.device.index:
        return nullcontext()
    return torch.cuda.device(x.device)
