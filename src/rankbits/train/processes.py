"""One run over several processes (torchrun), and the signals that stop it."""

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
    """The rank of this process and the number of processes. A process alone is rank 0 of 1."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @staticmethod
    def join(device: torch.device) -> Processes:
        """Join the processes that torchrun started; without torchrun, this process is alone."""
        if not dist.is_available():
            return Processes(device)
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) == 1:
                return Processes(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Processes(device, dist.get_rank(), dist.get_world_size())

    def find_first(self, planned: int) -> int:
        """Find the place of this process's first row in the batch of all processes; ``planned`` is
        the number of this process's rows."""
        if self.world == 1:
            return 0
        sizes = torch.zeros(self.world, dtype=torch.long, device=self.device)
        sizes[self.rank] = planned
        dist.all_reduce(sizes)
        return int(sizes[: self.rank].sum())

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is set in any process, so that all leave the loop at the same step."""
        if self.world == 1:
            return flag
        flags = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def average_buffers(self, model: torch.nn.Module) -> None:
        """Replace running statistics, which differ between processes, by their mean."""
        if self.world > 1:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= self.world

    def copy_from_first(self, model: torch.nn.Module) -> None:
        """Give all processes the weights of the first."""
        if self.world > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def choose_device(name: str) -> torch.device:
    """Return the device of a name; under torchrun each process has its own GPU."""
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
    """Remembers a SIGTERM or Ctrl-C, so that the loop finishes its step, saves the run and ends.

    Ctrl-C stops the run only. SIGTERM asks the whole process to end, so ``pass_on`` raises it again
    for the handler that was there before.
    """

    def __init__(self) -> None:
        self.why = ""

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Listen for signals, in the main thread only, because no other thread gets them. A second
        Ctrl-C interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if self.why and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.why = "SIGTERM" if number == signal.SIGTERM else "Ctrl-C"

        before = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self) -> None:
        """Raise a remembered SIGTERM again."""
        if self.why == "SIGTERM":
            signal.raise_signal(signal.SIGTERM)
