"""The Triton kernels on a CPU: Triton's interpreter runs their programs one by one, with numpy.

    TRITON_INTERPRET=1 python -m pytest tests/interpreted

``tests/test_triton.py`` runs this in a process of its own: Triton reads the variable where it
defines a kernel, so no process can both interpret kernels and compile them. Each launch is written
as a line of JSON to the file that RANKBITS_LAUNCHES names, and is then compiled there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from rankbits.kernels import backend, histogram
from rankbits.kernels.cuda import counting
from rankbits.kernels.cuda import histogram as cuda_histogram


def count_ones(words: Any) -> Any:
    """``libdevice.popc`` of int32, which only a GPU has."""
    counts = np.bitwise_count(words.handle.data.view(np.uint32)).astype(np.int32)
    return tl.tensor(interpreter.TensorHandle(counts, tl.int32), words.type)


def describe(argument: Any) -> Any:
    """The dtype of a tensor; anything else as it is."""
    if isinstance(argument, torch.Tensor):
        return str(argument.dtype).removeprefix("torch.")
    return argument


@pytest.fixture(autouse=True, scope="session")
def interpret_everything() -> Iterator[None]:
    """Give the interpreter what it lacks, and write down each launch."""
    run = interpreter.InterpretedFunction.run
    patch_tensors, convert = interpreter._patch_lang_tensor, interpreter._implicit_cvt
    seen = set()

    def run_recorded(kernel: Any, *arguments: Any, **options: Any) -> Any:
        constants = {n: v for n, v in options.items() if n not in ("grid", "warmup")}
        name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"
        seen.add(json.dumps([name, [describe(a) for a in arguments], constants]))
        return run(kernel, *arguments, **options)

    def patch_index(tensor: Any, scope: Any) -> None:
        """Triton 3.6 makes an int of an array of one number, which numpy 2.4 refuses."""
        patch_tensors(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def convert_float(argument: Any) -> Any:
        """A number reaches a compiled kernel as float32; the interpreter keeps float64."""
        if not isinstance(argument, float):
            return convert(argument)
        handle = interpreter.TensorHandle(np.array([argument], np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "run", run_recorded)
        patch.setattr(interpreter, "_implicit_cvt", convert_float)
        patch.setattr(interpreter, "_patch_lang_tensor", patch_index)
        patch.setattr(counting, "libdevice", SimpleNamespace(popc=count_ones))
        yield
    if path := os.environ.get("RANKBITS_LAUNCHES"):
        with open(path, "w") as file:
            file.writelines(f"{line}\n" for line in sorted(seen))


@pytest.fixture
def in_triton() -> Callable[[], AbstractContextManager[None]]:
    """A context in which tensors on the CPU go to the Triton kernels."""

    @contextmanager
    def send_to_triton() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "uses_triton", lambda x: True)
            patch.setattr(histogram, "_choose_module", lambda x: cuda_histogram)
            yield

    return send_to_triton
