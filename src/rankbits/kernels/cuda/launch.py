"""How a kernel is launched: on the device of its tensors, and soon.

What runs on the host here is plain Python: ``triton.cdiv`` and its like may also be called in a
kernel, and take microseconds to find out that they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton

# since then a compiled kernel is called with all arguments of its function
DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)
WARPS = 4
_compiled: dict[tuple[Any, ...], Any] = {}


def on_device(x: torch.Tensor) -> AbstractContextManager[Any]:
    """The device of ``x`` made the current one; nothing to do where it is."""
    if not x.is_cuda or torch.cuda.current_device() == x.device.index:
        return nullcontext()
    return torch.cuda.device(x.device)


def divide_up(number: int, size: int) -> int:
    return -(-number // size)


def find_power(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    tensors: Sequence[torch.Tensor],
    numbers: tuple[int, ...],
    constants: dict[str, Any],
) -> None:
    """Launch a kernel whose arguments are tensors, then whole numbers, then constants by name.

    Triton looks at all arguments to find which of its compiled kernels they belong to, and that
    takes twice as long as the launch. Numbers make no difference here (the kernel must name them
    in ``do_not_specialize``), so the compiled kernel is kept by what is left: constants, dtypes
    and device. Tensors that do not start at a multiple of 16 bytes, and numbers past 32 bits, are
    rare and go the long way.
    """
    pointers = [t.data_ptr() for t in tensors]
    marks = 0
    for pointer in pointers:
        marks |= pointer
    usual = DIRECT and not marks & 15 and max(numbers) < 1 << 31
    fixed = tuple(constants.values())
    key = (kernel, tensors[0].device.index, fixed, *[t.dtype for t in tensors])
    compiled = _compiled.get(key) if usual else None
    with on_device(tensors[0]):
        if compiled is not None:
            compiled[(*grid, 1, 1)[:3]](*pointers, *numbers, *fixed)
            return
        compiled = kernel[grid](*tensors, *numbers, **constants, num_warps=WARPS)
    if usual:
        _compiled[key] = compiled
