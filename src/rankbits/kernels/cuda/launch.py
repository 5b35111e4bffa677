"""Launch kernels on the device of their tensors, with little delay.

Arithmetic on the host is plain Python: ``triton.cdiv`` and the like can also be called in a kernel,
and take microseconds to find out that they are not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton

# versions whose compiled kernels can be called directly as below; others go through Triton
DIRECT = (3, 3) <= tuple(int(part) for part in triton.__version__.split(".")[:2]) <= (3, 6)
WARPS = 4


def use_device(x: torch.Tensor) -> AbstractContextManager[Any]:
    """A context in which the device of ``x`` is the current one."""
    if not x.is_cuda or torch.cuda.current_device() == x.device.index:
        return nullcontext()
    return torch.cuda.device(x.device)


def divide_up(number: int, size: int) -> int:
    return -(-number // size)


def find_power(number: int) -> int:
    """The least power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()


class Launch:
    """A kernel with its grid, numbers and constants: call it with tensors, again and again.

    The kernel's arguments are tensors, then ``numbers``, then ``constants`` by name. Triton looks
    at all of them to find the compiled kernel, which takes several times as long as the launch. The
    same numbers and constants mean the same kernel, so it is kept here, by device and dtypes.
    Triton launches where a tensor does not start at a multiple of 16 bytes.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        numbers: tuple[int | float, ...],
        constants: dict[str, Any],
    ) -> None:
        self.kernel, self.numbers, self.constants = kernel, numbers, constants
        self.grid = (*grid, 1, 1)[:3]
        self.rest = (*numbers, *constants.values())
        self.compiled: dict[Any, Any] = {}

    def __call__(self, *tensors: torch.Tensor) -> None:
        pointers = [t.data_ptr() for t in tensors]
        marks = 0
        for pointer in pointers:
            marks |= pointer
        device = tensors[0].get_device()
        key = (device, *[t.dtype for t in tensors])
        compiled = None if marks & 15 else self.compiled.get(key)
        if compiled is not None and torch.cuda.current_device() == device:
            compiled.run(
                *self.grid, torch._C._cuda_getCurrentRawStream(device), compiled.function,
                compiled.packed_metadata, None, None, None, *pointers, *self.rest,
            )  # fmt: skip
            return
        with use_device(tensors[0]):
            compiled = self.kernel[self.grid](
                *tensors, *self.numbers, **self.constants, num_warps=WARPS
            )
        if DIRECT and not marks & 15:
            self.compiled[key] = compiled
