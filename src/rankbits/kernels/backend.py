"""Which backend a call uses, and how many threads."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
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

    The caller's thread works too, and each of the others is asked once, not once for each task: to
    wake a thread takes as long as a small task. After an exception no further task is begun, and it
    is raised when those that run have ended. Numba's parallel loops would not do: two threads may
    not enter them at once, as a service does.
    """
    count = min(count_threads(), len(tasks))
    if count <= 1:
        return [function(task) for task in tasks]
    with _lock:
        pool = _pools.get(count)
        if pool is None:
            pool = _pools[count] = ThreadPoolExecutor(count - 1, thread_name_prefix="rankbits")
    results: list[Any] = [None] * len(tasks)
    waiting = deque(range(len(tasks)))

    def work() -> None:
        while waiting:
            try:
                place = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                results[place] = function(tasks[place])
            except BaseException:
                waiting.clear()
                raise

    helpers = [pool.submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        running = [helper for helper in helpers if not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()
    return results


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
