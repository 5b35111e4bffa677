"""The memory of a device: what is said where it is full, and giving back what is not in use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rankbits import _check

WORDS = ("out of memory", "can't allocate memory")  # of a GPU's driver, and of torch on a CPU


def is_full(error: BaseException) -> bool:
    """Tell whether an error says that memory is full.

    >>> is_full(MemoryError()), is_full(RuntimeError("CUDA error: out of memory"))
    (True, True)
    >>> is_full(RuntimeError("shapes differ"))
    False
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


@contextmanager
def refuse_full_memory(device: str, advice: str) -> Iterator[None]:
    """Turn an error of full memory, which torch tells in a page of numbers, into one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_full(error):
            raise
        raise _check.Refusal(f"The memory of {device} is full: {advice}.") from error


def give_back() -> None:
    """Give the GPU memory that this process keeps for later back, so that others can have it."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
