"""One run over several processes (torchrun), and what makes any of them stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist

from rankbits import _check


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is. A process alone is rank 0 of 1."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @staticmethod
    def join(device: torch.device) -> Processes:
        """The group torchrun started, or this process alone."""
        if not dist.is_available():
            return Processes(device)
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) == 1:
                return Processes(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Processes(device, dist.get_rank(), dist.get_world_size())

    def first(self, planned: int) -> int:
        """The place of this process's first row in the batch of all, of which it has
        ``planned``."""
        if self.world == 1:
            return 0
        sizes = torch.zeros(self.world, dtype=torch.long, device=self.device)
        sizes[self.rank] = planned
        dist.all_reduce(sizes)
        return int(sizes[: self.rank].sum())

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process: all must leave the loop at one step."""
        if self.world == 1:
            return flag
        found = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def average_buffers(self, model: torch.nn.Module) -> None:
        """Running statistics differ between processes; what is judged and kept is their mean."""
        if self.world > 1:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= self.world

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def device_of(name: str) -> torch.device:
    """The device a name means; under torchrun each process has its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        _check.refuse(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N'; got {name!r}.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            _check.refuse(f"device '{name}' was asked for, but torch finds no CUDA device.")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = device if device.index is not None else torch.device("cuda", local)
        torch.cuda.set_device(device)
    return device


class Stop:
    """Set by SIGTERM or Ctrl-C: the step is finished, the run saved, and the loop left.

    Ctrl-C stops the run; SIGTERM means the process, which must not go on with what comes after, so
    it is sent again to whoever listened before.
    """

    def __init__(self) -> None:
        self.why = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for signals (in the main thread: only there they come); a second Ctrl-C is not
        waited for."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def heard(number: int, frame: FrameType | None) -> None:
            if self.why and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.why = "SIGTERM" if number == signal.SIGTERM else "Ctrl-C"

        before = {s: signal.signal(s, heard) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self) -> None:
        if self.why == "SIGTERM":
            signal.raise_signal(signal.SIGTERM)
