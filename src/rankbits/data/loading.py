"""Read batches ahead of their use, so that the network does not wait for a disk.

A thread gathers the rows of arrays. Worker processes decode each image file once: its pixels go
into a memory-mapped file that all workers and later epochs share. A file that cannot be decoded is
left out of its batch, and the loader keeps a sentence about it.
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
    ``planned`` rows that the sampler drew (a file that cannot be decoded leaves a gap)."""

    rows: torch.Tensor
    inputs: torch.Tensor
    labels: torch.Tensor
    places: torch.Tensor
    planned: int

    def __len__(self) -> int:
        return len(self.rows)


class Pixels(Dataset):
    """The pixels of image files, uint8 (side, side, channels) each, or None for a file that cannot
    be decoded; kept in ``folder`` if there is one."""

    def __init__(
        self, files: ImageFiles, side: int, channels: int, folder: Path | None = None
    ) -> None:
        self.files, self.side, self.channels = files, side, channels
        self.kept: np.memmap | None = None
        self.state: np.memmap | None = None
        if folder is not None and len(files):
            self._map_cache(folder)

    def _map_cache(self, folder: Path) -> None:
        """Map a file of pixels and one of states; their name is a digest of the paths, sizes and
        times of the images."""
        digest = hashlib.sha256(f"{self.side} {self.channels}".encode())
        for path in self.files.paths:
            try:
                status = os.stat(path)
                digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
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
            self.state[row] = DECODED  # after the pixels, in case the worker is killed in between
        return row, pixels, ""


def _map_file(path: Path, shape: tuple[int, ...]) -> np.memmap:
    size = int(np.prod(shape))
    with open(path, "ab") as file:
        if file.tell() != size:
            file.truncate(size)  # a sparse file: only what is written takes space
    return np.memmap(path, np.uint8, "r+", shape=shape)


@dataclass
class Loader:
    """The batches of a sampler, in its order; ``failed`` has a sentence for each row left out. Each
    batch is sent to a GPU while the one before it is used."""

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
        files = self.examples.kind == "files"
        batches = self._decode_files() if files else self._gather_arrays()
        return _send_ahead(batches, self.device) if self.device.type == "cuda" else batches

    def _gather_arrays(self) -> Iterator[Batch]:
        inputs, labels = self.examples.inputs, torch.from_numpy(self.examples.labels)
        assert isinstance(inputs, np.ndarray)

        def gather(numbers: list[int]) -> Batch:
            rows = torch.tensor(numbers, dtype=torch.int64)
            values = torch.from_numpy(np.ascontiguousarray(inputs[rows.numpy()]))
            if values.dtype != torch.uint8:
                values = values.to(torch.float32)
            return self._pin(Batch(rows, values, labels[rows], torch.arange(len(rows)), len(rows)))

        return _read_ahead(gather, self.batches)

    def _decode_files(self) -> Iterator[Batch]:
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
            if len(self.failed) == self.read > 0:
                first = next(iter(self.failed.values()))
                _check.refuse(f"None of the first {self.read:,} images can be read: {first}")
            readable = [place for place, (_, image, _) in enumerate(decoded) if image is not None]
            places = torch.tensor(readable, dtype=torch.long)
            rows = torch.tensor([decoded[place][0] for place in readable], dtype=torch.long)
            images = np.zeros((0, self.side, self.side, self.channels), np.uint8)
            if readable:
                images = np.stack([decoded[place][1] for place in readable])
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
    job. The main process decides when to stop, and then its workers end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _read_ahead(
    gather: Callable[[list[int]], Batch], batches: Iterable[list[int]]
) -> Iterator[Batch]:
    """Call ``gather`` for each batch in a thread that keeps a few results ready."""
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
    """Batches with their inputs and labels on the device; a separate CUDA stream sends them."""
    sending = torch.cuda.Stream(device)
    ready: deque[tuple[Batch, torch.cuda.Event]] = deque()

    def receive() -> Batch:
        batch, sent = ready.popleft()
        current = torch.cuda.current_stream(device)
        current.wait_event(sent)
        batch.inputs.record_stream(current)
        batch.labels.record_stream(current)
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


def batch_in_order(rows: int, size: int) -> list[list[int]]:
    """Every row once, in order, ``size`` at a time."""
    return [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]
