"""Ray, as far as it is needed here: join a cluster, run a function over parts, in order."""

from __future__ import annotations

import gc
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm import tqdm

from rankbits import _check
from rankbits.indexes.engines.opening import first_line, import_package

STARTS = 3  # times that Ray is started before its start counts as failed
RETRIES = 3  # times that a part is sent out again after its worker was lost


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Ray at ``address``: "local" starts one here and stops it, "auto" joins the cluster of this
    machine, "ray://host:port" or "host:port" another. One that is joined already is used."""
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
    here = {"include_dashboard": False} if address == "local" else {}
    for tries_left in reversed(range(STARTS)):
        running = _children()
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **here)
            break
        except Exception as error:  # a start that takes too long is a plain Exception there
            late = "timed out" in str(error).lower()
            if not late and not isinstance(error, (OSError, ValueError, RuntimeError)):
                raise
            _end(_children() - running)
            # one of Ray's own processes may not come up within the half minute that Ray gives it
            if not (tries_left and late):
                _check.refuse(f"Ray cannot be joined at {address}: {first_line(error)}.")
            ray.shutdown()
    try:
        yield ray
    finally:
        ray.shutdown()


def _children() -> set[Any]:
    """The processes that this one has started, as far as psutil, which Ray brings, can tell."""
    try:
        import psutil
    except ImportError:
        return set()
    return set(psutil.Process().children())


def _end(processes: set[Any]) -> None:
    """End what a failed start has left running: Ray forgets it until this process ends."""
    for process in processes:
        with suppress(Exception):  # it may have ended meanwhile
            process.kill()
            process.wait(10)
    ended = {process.pid for process in processes}
    for handle in gc.get_objects():  # Ray's handles, which Python would report as still running
        if issubclass(type(handle), subprocess.Popen) and handle.pid in ended:
            handle.poll()


def find_node(ray: Any, host: str) -> str:
    """Ray's id of the living node that has this address."""
    nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    if host not in nodes:
        _check.refuse(f"No node of this Ray cluster has the address {host}: {sorted(nodes)} do.")
    return nodes[host]


def mapped(
    ray: Any,
    function: Callable,
    parts: Iterable[tuple],
    what: str,
    total: int | None = None,
    host_of: Callable[[tuple], str | None] = lambda part: None,
) -> Iterator[Any]:
    """``function(*part)`` for every part, somewhere or on the node that ``host_of(part)`` names;
    results in the order of the parts.

    A worker that is lost costs its part another run, here or elsewhere, not the job. Twice as many
    parts as cores are out at a time, so that neither parts nor results pile up.
    """
    remote = ray.remote(max_retries=RETRIES)(function)

    def send(part: tuple) -> Any:
        host = host_of(part)
        if host is None:
            return remote.remote(*part)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        there = strategy(find_node(ray, host), soft=False)
        return remote.options(scheduling_strategy=there).remote(*part)

    errors = ray.exceptions
    lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError)
    window = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    out: deque[tuple[tuple, Any]] = deque()

    def next_result() -> Any:
        part, result = out.popleft()
        for again in (True, False):  # Ray itself has tried RETRIES times before it says so
            try:
                return ray.get(result)
            except lost:
                result = send(part) if again else None
            except errors.TaskUnschedulableError:
                _check.refuse(f"The node {host_of(part)} was lost, and what it keeps with it.")
            except errors.RayTaskError as error:
                if isinstance(error.cause, _check.Refusal):
                    raise error.cause from None
                raise
        _check.refuse(f"Every worker was lost that took up one of the parts: {what} gives up.")

    with tqdm(total=total, unit=" parts", desc=what, disable=None) as bar:
        for part in parts:
            out.append((part, send(part)))
            if len(out) >= window:
                yield next_result()
                bar.update()
        while out:
            yield next_result()
            bar.update()


def spans(rows: int, size: int) -> list[slice]:
    """Slices of at most ``size`` rows that make up all.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = _check.whole("rows", size, 1)
    return [slice(s, min(s + size, rows)) for s in range(0, rows, size)]
