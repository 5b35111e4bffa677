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


def chosen(natural: str) -> str:
    """``RANKBITS_BACKEND`` where it is set, else the backend natural to the data."""
    forced = os.environ.get("RANKBITS_BACKEND")
    return _check.choice("RANKBITS_BACKEND", forced, BACKENDS) if forced else natural


@functools.cache
def load(name: str, room: str) -> ModuleType:
    """The module of this name in a backend's room; asked for in every call of a loss."""
    return importlib.import_module(f"rankbits.kernels.{name}.{room}")


def load_loops(room: str) -> ModuleType:
    """The module of this name for loops that know no GPU: in numba, or the reference if forced."""
    return load("reference" if chosen("cpu") == "reference" else "cpu", room)


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def threads() -> int:
    """The user's setting: ``torch.set_num_threads``, OMP_NUM_THREADS or NUMBA_NUM_THREADS.

    Not ``numba.get_num_threads``: it starts numba's own threads, which resets torch's count.
    """
    import numba

    return max(1, min(torch.get_num_threads(), vars(numba.config)["NUMBA_NUM_THREADS"]))


def run_tasks(function: Callable[[Task], Any], tasks: Sequence[Task]) -> list[Any]:
    """``function`` over ``tasks`` on the user's number of threads; kernels let go of the GIL.

    A pool of our own, not numba's parallel loops: those may not be entered from two threads at
    once, and a service does just that.
    """
    count = min(threads(), len(tasks))
    if count <= 1:
        return [function(task) for task in tasks]
    with _lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="rankbits")
    return list(pool.map(function, tasks))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
