"""Ray: join a cluster, and run a function over many parts in order."""

from __future__ import annotations

import gc
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rankbits import _check
from rankbits._progress import Meter
from rankbits.indexes.engines.opening import first_line, import_package

STARTS = 3  # times that Ray is started before its start counts as failed
RETRIES = 3  # times that a part is sent out again after its worker was lost


@contextmanager
def join_cluster(address: str) -> Iterator[Any]:
    """Connect to Ray: "local" starts a cluster here and stops it at the end, "auto" joins that of
    this machine, "ray://host:port" or "host:port" another. If this process has joined one already,
    that one is used."""
    ray = import_package("ray", "Ray", "ray")
    if not isinstance(address, str) or not re.fullmatch(
        r"local|auto|(ray://)?[^\s/:]+:\d+", address
    ):
        _check.refuse(
            "The address of Ray must be local, auto, host:port or ray://host:port; "
            f"got {address!r}."
        )
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {"include_dashboard": False} if address == "local" else {}
    for tries_left in reversed(range(STARTS)):
        running = _list_children()
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
            break
        except Exception as error:  # Ray raises a plain Exception when a start takes too long
            late = "timed out" in str(error).lower()
            if not late and not isinstance(error, (OSError, ValueError, RuntimeError)):
                raise
            _end_processes(_list_children() - running)
            # Ray gives its own processes half a minute to come up, which may be too little
            if not (tries_left and late):
                _check.refuse(f"Ray cannot be joined at {address}: {first_line(error)}.")
            ray.shutdown()
    try:
        yield ray
    finally:
        ray.shutdown()


def _list_children() -> set[Any]:
    """The child processes of this one; none if psutil, which comes with Ray, is missing."""
    try:
        import psutil
    except ImportError:
        return set()
    return set(psutil.Process().children())


def _end_processes(processes: set[Any]) -> None:
    """End the processes of a failed start, which Ray would leave running."""
    for process in processes:
        with suppress(Exception):  # it may have ended by itself
            process.kill()
            process.wait(10)
    ended = {process.pid for process in processes}
    for handle in gc.get_objects():  # Ray's handles; without poll, Python warns that they still run
        if issubclass(type(handle), subprocess.Popen) and handle.pid in ended:
            handle.poll()


def find_node(ray: Any, host: str) -> str:
    """Ray's id of the node at this address; refuse if there is none."""
    nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    if host not in nodes:
        _check.refuse(
            f"No node of this Ray cluster has the address {host}; it has {sorted(nodes)}."
        )
    return nodes[host]


def run_parts(
    ray: Any,
    function: Callable,
    parts: Sequence[tuple],
    what: str,
    host_of: Callable[[tuple], str | None] = lambda part: None,
) -> Iterator[Any]:
    """Run ``function(*part)`` for every part on the workers; yields results in the order of parts.

    A part runs on the node that ``host_of(part)`` names; None is any node. If a worker is lost, its
    part runs again. Twice as many parts as cores are out at a time, so that neither parts nor
    results pile up.
    """
    remote = ray.remote(max_retries=RETRIES)(function)

    def send(part: tuple) -> Any:
        host = host_of(part)
        if host is None:
            return remote.remote(*part)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        on_node = strategy(find_node(ray, host), soft=False)
        return remote.options(scheduling_strategy=on_node).remote(*part)

    errors = ray.exceptions
    lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError)
    window = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    out: deque[tuple[tuple, Any]] = deque()

    def next_result() -> Any:
        part, result = out.popleft()
        for again in (True, False):  # Ray itself has retried RETRIES times before it raises
            try:
                return ray.get(result)
            except lost:
                result = send(part) if again else None
            except errors.TaskUnschedulableError:
                _check.refuse(f"The node {host_of(part)} was lost, and the index on it.")
            except errors.RayTaskError as error:
                if isinstance(error.cause, _check.Refusal):
                    raise error.cause from None
                raise
        _check.refuse(f"A part lost every worker that took it up: {what} gives up.")

    with Meter(what, len(parts), "parts") as meter:
        for part in parts:
            out.append((part, send(part)))
            if len(out) >= window:
                yield next_result()
                meter.update(1)
        while out:
            yield next_result()
            meter.update(1)


def cut_spans(rows: int, size: int) -> list[slice]:
    """Cut ``rows`` rows into slices of at most ``size``.

    >>> cut_spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = _check.whole("rows", size, 1)
    return [slice(s, min(s + size, rows)) for s in range(0, rows, size)]
