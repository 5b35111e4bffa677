"""Batches read ahead of their use, so that the network never waits for a disk.

Arrays are gathered by a thread. Files are decoded by worker processes, once: pixels go into a
memory-mapped file that all workers and later epochs share. A file that does not decode leaves the
batch and is remembered by name.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from rankbits import _check
from rankbits.data.examples import Examples
from rankbits.data.images import ImageFiles, Unreadable, decode

AHEAD = 4
DECODED = 1


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of the examples, their inputs as stored, their labels, and their places among the
    ``planned`` rows that the sampler drew (a file that does not decode leaves a gap)."""

    rows: torch.Tensor
    inputs: torch.Tensor
    labels: torch.Tensor
    places: torch.Tensor
    planned: int

    def __len__(self) -> int:
        return len(self.rows)


class Pixels(Dataset):
    """Decoded files, uint8 (side, side, channels) each or ``None``; kept in ``folder`` if given."""

    def __init__(
        self, files: ImageFiles, side: int, channels: int, folder: Path | None = None
    ) -> None:
        self.files, self.side, self.channels = files, side, channels
        self.kept: np.memmap | None = None
        self.state: np.memmap | None = None
        if folder is not None and len(files):
            self._map(folder)

    def _map(self, folder: Path) -> None:
        """Map one file of pixels and one of states, named by the paths, sizes and times of the
        images."""
        digest = hashlib.sha256(f"{self.side} {self.channels}".encode())
        for path in self.files.paths:
            try:
                known = os.stat(path)
                digest.update(f"{path} {known.st_size} {known.st_mtime_ns}\n".encode())
            except OSError:
                digest.update(f"{path} missing\n".encode())
        name = folder / digest.hexdigest()[:24]
        shape = (len(self.files), self.side, self.side, self.channels)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.kept = _map_file(name.with_suffix(".pixels"), shape)
            self.state = _map_file(name.with_suffix(".state"), shape[:1])
        except OSError:  # without a cache the images are decoded again
            self.kept = self.state = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[int, np.ndarray | None, str]:
        if self.state is not None and self.kept is not None and self.state[row] == DECODED:
            return row, np.array(self.kept[row]), ""
        try:
            pixels = decode(str(self.files.paths[row]), self.side, self.channels)
        except Unreadable as sentence:
            return row, None, str(sentence)
        if self.state is not None and self.kept is not None:
            self.kept[row] = pixels
            self.state[row] = DECODED  # after the pixels: a killed worker leaves it unknown
        return row, pixels, ""


def _map_file(path: Path, shape: tuple[int, ...]) -> np.memmap:
    size = int(np.prod(shape))
    with open(path, "ab") as file:
        if file.tell() != size:
            file.truncate(size)  # sparse: takes the space that is written
    return np.memmap(path, np.uint8, "r+", shape=shape)


@dataclass
class Loader:
    """The batches of a sampler, in its order; ``failed`` are sentences on files left out. For a GPU
    each is on its way while the one before is worked on."""

    examples: Examples
    batches: Iterable[list[int]]
    side: int = 0
    channels: int = 3
    workers: int = 0
    cache: Path | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    failed: dict[int, str] = field(default_factory=dict)
    read: int = 0

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self._files() if self.examples.kind == "files" else self._arrays())
        return _send_ahead(batches, self.device) if self.device.type == "cuda" else batches

    def _arrays(self) -> Iterator[Batch]:
        inputs, labels = self.examples.inputs, torch.from_numpy(self.examples.labels)
        assert isinstance(inputs, np.ndarray)

        def gather(rows: list[int]) -> Batch:
            at = np.asarray(rows, np.int64)
            values = torch.from_numpy(np.ascontiguousarray(inputs[at]))
            if values.dtype != torch.uint8:
                values = values.to(torch.float32)
            chosen = torch.from_numpy(at)
            return self._pin(Batch(chosen, values, labels[chosen], torch.arange(len(at)), len(at)))

        return _read_ahead(gather, self.batches)

    def _files(self) -> Iterator[Batch]:
        assert isinstance(self.examples.inputs, ImageFiles)
        labels = torch.from_numpy(self.examples.labels)
        pixels = Pixels(self.examples.inputs, self.side, self.channels, self.cache)
        loader = DataLoader(
            pixels,
            batch_sampler=self.batches,  # type: ignore[arg-type]
            num_workers=self.workers,
            collate_fn=list,
            prefetch_factor=AHEAD if self.workers else None,
            worker_init_fn=ignore_signals,
        )
        for decoded in loader:
            self.failed.update({row: why for row, image, why in decoded if image is None})
            self.read += len(decoded)
            kept = [(place, *part[:2]) for place, part in enumerate(decoded) if part[1] is not None]
            if len(self.failed) == self.read > 0:
                first = next(iter(self.failed.values()))
                _check.refuse(f"None of the first {self.read:,} images can be read: {first}")
            places = torch.tensor([place for place, _, _ in kept], dtype=torch.long)
            rows = torch.tensor([row for _, row, _ in kept], dtype=torch.long)
            shape = (0, self.side, self.side, self.channels)
            images = np.stack([image for _, _, image in kept]) if kept else np.zeros(shape, "u1")
            yield self._pin(
                Batch(rows, torch.from_numpy(images), labels[rows], places, len(decoded))
            )

    def _pin(self, batch: Batch) -> Batch:
        if self.device.type == "cuda":  # pragma: no cover - needs a GPU
            inputs, labels = batch.inputs.pin_memory(), batch.labels.pin_memory()
            return replace(batch, inputs=inputs, labels=labels)
        return batch


def ignore_signals(worker: int) -> None:
    """Make a worker process ignore SIGTERM and SIGINT, which a shell sends to every process of a
    job. The main process decides when to stop, and its workers end with it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _read_ahead(
    gather: Callable[[list[int]], Batch], batches: Iterable[list[int]]
) -> Iterator[Batch]:
    """``gather`` of each batch, in a thread that keeps a few of them ready."""
    pool = ThreadPoolExecutor(1, "rankbits-loader")
    ready: deque[Future[Batch]] = deque()
    try:
        for rows in batches:
            ready.append(pool.submit(gather, rows))
            if len(ready) > AHEAD:
                yield ready.popleft().result()
        while ready:
            yield ready.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _send_ahead(  # pragma: no cover - needs a GPU
    batches: Iterator[Batch], device: torch.device
) -> Iterator[Batch]:
    """Batches with their inputs and labels on the device, sent by a stream of their own."""
    sending = torch.cuda.Stream(device)
    ready: deque[tuple[Batch, torch.cuda.Event]] = deque()

    def receive() -> Batch:
        batch, sent = ready.popleft()
        here = torch.cuda.current_stream(device)
        here.wait_event(sent)
        batch.inputs.record_stream(here)
        batch.labels.record_stream(here)
        return batch

    for batch in batches:
        with torch.cuda.stream(sending):
            inputs = batch.inputs.to(device, non_blocking=True)
            labels = batch.labels.to(device, non_blocking=True)
            ready.append((replace(batch, inputs=inputs, labels=labels), sending.record_event()))
        if len(ready) > 1:
            yield receive()
    while ready:
        yield receive()


def in_order(rows: int, size: int) -> list[list[int]]:
    """Every row once, in order, ``size`` at a time."""
    return [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]
