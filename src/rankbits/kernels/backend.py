"""Which backend a call uses, and how many threads."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypeVar

import torch

from rankbits import _check

BACKENDS = ("reference", "cpu", "cuda")
Task = TypeVar("Task")

_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def choose_backend(natural: str) -> str:
    """The backend that ``RANKBITS_BACKEND`` names; where it is not set, ``natural``."""
    forced = os.environ.get("RANKBITS_BACKEND")
    return _check.choice("RANKBITS_BACKEND", forced, BACKENDS) if forced else natural


@functools.cache
def load(name: str, room: str) -> ModuleType:
    """The module ``room`` of backend ``name``; cached, for every call of a loss asks for it."""
    return importlib.import_module(f"rankbits.kernels.{name}.{room}")


def load_loops(room: str) -> ModuleType:
    """The module ``room`` of loops that have no GPU version: numba, or the reference if forced."""
    return load("reference" if choose_backend("cpu") == "reference" else "cpu", room)


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def uses_triton(x: torch.Tensor) -> bool:
    """Whether calls on ``x`` run in Triton."""
    return x.is_cuda and has_triton() and choose_backend("cuda") == "cuda"


def count_threads() -> int:
    """The threads that ``torch.set_num_threads``, OMP_NUM_THREADS and NUMBA_NUM_THREADS allow.

    ``numba.get_num_threads`` is not called: it starts numba's own threads, which resets torch's
    count.
    """
    import numba

    return max(1, min(torch.get_num_threads(), vars(numba.config)["NUMBA_NUM_THREADS"]))


def run_tasks(function: Callable[[Task], Any], tasks: Sequence[Task]) -> list[Any]:
    """Call ``function`` on each task, on all threads that the user allows; kernels free the GIL.

    Numba's parallel loops would not do: two threads may not enter them at once, as a service does.
    """
    count = min(count_threads(), len(tasks))
    if count <= 1:
        return [function(task) for task in tasks]
    with _lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="rankbits")
    return list(pool.map(function, tasks))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
