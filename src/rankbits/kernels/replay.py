"""Small histogram losses over classes, replayed as CUDA graphs.

A small batch spends its time on launches: the CPU starts each kernel, and between them Python
chooses backends and makes tensors. A graph of the whole loss and its gradient is started at once.
What is left is to copy the batch in and the gradient out.

A graph holds addresses, so each kind of batch (shape, types, formula, stream) has its own, with its
own memory. It is recorded when the same kind has come several times; the graphs that were used last
are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import torch

from rankbits.kernels import backend
from rankbits.kernels.histogram import KEEP, Pairs, Setting, histogram_loss
from rankbits.kernels.rows import scale_rows, scale_rows_backward

FIRST = 3  # batches of a kind that are computed without a graph
MOST = 16  # kinds that are remembered

_recordings: dict[Hashable, Recording | int] = {}  # or how often the kind has come so far
_lock = threading.Lock()


class Recording:
    """The graph of a loss over batches of one shape, and of its gradient at the rows.

    ``relaxed``: rows are tanh of what is copied in, so that alpha is no part of the graph;
    otherwise they are scaled to unit length. One caller at a time fills the memory.
    """

    def __init__(
        self, x: torch.Tensor, labels: torch.Tensor, setting: Setting, relaxed: bool
    ) -> None:
        self.setting, self.alpha = setting, 1.0 if relaxed else None
        self.lock = threading.Lock()
        with torch.no_grad():
            self.x = x.detach().clone(memory_format=torch.contiguous_format)
            self.labels = labels.clone(memory_format=torch.contiguous_format)
            self.one = x.new_ones(())
            here, side = torch.cuda.current_stream(x.device), torch.cuda.Stream(x.device)
            side.wait_stream(here)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(side):
                self._compute()  # what is prepared once is prepared before the recording
                # threads that load data may use the GPU meanwhile
                self.graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self.loss, self.slopes = self._compute()
                finally:
                    self.graph.capture_end()
            here.wait_stream(side)

    def _compute(self) -> tuple[torch.Tensor, torch.Tensor]:
        rows = scale_rows(self.x, self.alpha)
        loss, at_rows, _ = histogram_loss(
            rows, rows, self._pair, self.setting, to_x=True, to_y=False, same=True
        )
        assert at_rows is not None
        return loss, scale_rows_backward(at_rows, self.x, rows, self.alpha, self.one)

    def _pair(self, start: int, stop: int) -> Pairs:
        return pair_classes(self.labels, start, stop)

    def run(
        self, x: torch.Tensor, labels: torch.Tensor, alpha: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and its gradient at x, in memory of their own."""
        with self.lock:
            if alpha is None or alpha == 1:
                self.x.copy_(x)
            else:
                torch.mul(x, alpha, out=self.x)
            self.labels.copy_(labels)
            self.graph.replay()
            loss = self.loss.clone()
            if alpha is None or alpha == 1:
                return loss, self.slopes.clone()
            return loss, self.slopes * alpha


def pair_classes(labels: torch.Tensor, start: int, stop: int) -> Pairs:
    """Pair rows ``start`` to ``stop`` with all rows; classes are alike where they are equal, and a
    row skips itself."""
    left = labels[start:stop]

    def grade() -> torch.Tensor:
        raise AssertionError("Kernels read the classes, not the grades.")

    return Pairs(grade, (left, labels), start)


def find_recording(
    x: torch.Tensor, labels: torch.Tensor, setting: Setting, relaxed: bool
) -> Recording | None:
    """Find the graph of a loss of two grades whose rows are queries and items, with a class each;
    None where it cannot be replayed, or has not come often enough."""
    if not _can_record(x, labels):
        return None
    key = (
        setting.formula, setting.bins, relaxed, x.shape, x.dtype, labels.dtype, x.device,
        torch.cuda.current_stream(x.device), find_precision(),
    )  # fmt: skip
    return _recall(key, lambda: Recording(x, labels, setting, relaxed))


def _recall(key: Hashable, record: Callable[[], Recording]) -> Recording | None:
    """The recording of a kind, made when the kind has come more than ``FIRST`` times."""
    with _lock:
        seen = _recordings.pop(key, 0)  # put back below, so that the kind used last stands last
        if isinstance(seen, int):
            seen = record() if seen == FIRST else seen + 1
        _recordings[key] = seen
        if len(_recordings) > MOST:
            del _recordings[next(iter(_recordings))]
    return None if isinstance(seen, int) else seen


def find_precision() -> str:
    """The precision of products of float32 on a GPU, by the newer of torch's two settings, which
    follows the older one."""
    newer = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return torch.get_float32_matmul_precision() if newer is None else str(newer)


def _can_record(x: torch.Tensor, labels: torch.Tensor) -> bool:
    rows = x.shape[0]
    return (
        x.is_cuda
        and 0 < rows * rows <= KEEP
        and labels.shape == (rows,)
        and labels.device == x.device
        and not labels.is_floating_point()
        and backend.uses_triton(x)
        and not torch.cuda.is_current_stream_capturing()
    )
