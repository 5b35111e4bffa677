"""Concurrent questions become one call of the kernels.

Nothing is delayed to fill a batch: whatever comes in while a batch is being worked on is the next
one. A lone question is answered at once; two hundred at a time cost little more than a few. Large
questions wait in a line of their own, a few of them in each batch, so that they hold up nobody.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rankbits.serve.limits import reject

LARGE = 100  # a job that costs more waits in the line of large ones
ROOM = 16_384  # what the large jobs of one batch may cost together

Entry = tuple[Any, Callable[[Any], object]]


class Batcher:
    """``await ask(job)`` answers by ``work(jobs)``, called in a thread of its own for all that
    wait. ``work`` returns one answer for each job; an exception in place of an answer is raised for
    whoever asked. ``cost`` says how large a job is: the number of its results.

    >>> batcher = Batcher(lambda jobs: [2 * job for job in jobs])
    >>> async def both():
    ...     return await asyncio.gather(batcher.ask(1), batcher.ask(2))
    >>> asyncio.run(both()), batcher.jobs
    ([2, 4], 2)
    """

    def __init__(
        self,
        work: Callable[[list[Any]], Sequence[Any]],
        most: int = 256,
        waiting: int = 2000,
        cost: Callable[[Any], int] = lambda job: 1,
    ) -> None:
        self._work, self._most, self._limit, self._cost = work, most, waiting, cost
        self._small: deque[Entry] = deque()
        self._large: deque[Entry] = deque()
        self.thread = ThreadPoolExecutor(1, "rankbits-search")
        self._loop: asyncio.AbstractEventLoop
        self._running, self._lock = False, threading.Lock()
        self.batches = self.jobs = 0
        self.sizes: Callable[[int], object] = lambda size: None

    async def ask(self, job: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()

        def tell(reply: Any) -> None:
            if answer.done():  # whoever asked has gone
                return
            if isinstance(reply, BaseException):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)

        self.put(job, tell)
        return await answer

    def put(self, job: Any, tell: Callable[[Any], object]) -> None:
        """Have ``tell`` called with the answer, or the exception, by the running loop."""
        large = self._cost(job) > LARGE
        line = self._large if large else self._small
        if len(line) >= (self._limit // 2 if large else self._limit):
            reject(503, "Too many questions are waiting: ask again in a moment.")
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
            line.append((job, tell))
            begin, self._running = not self._running, True
        if begin:
            self.thread.submit(self._drain)

    def _drain(self) -> None:
        """Batch after batch while anything waits. The thread takes the next one itself: the loop,
        busy with the last answers and the next questions, would keep the kernels waiting."""
        while True:
            with self._lock:
                batch = self._take()
                self._running = bool(batch)
            if not batch:
                return
            self.batches += 1
            self.jobs += len(batch)
            try:
                answers = self._work([job for job, _ in batch])
            except BaseException as failure:
                answers = [failure] * len(batch)
            self._loop.call_soon_threadsafe(self._deliver, batch, answers)

    def _take(self) -> list[Entry]:
        """The next batch: small jobs first, but an eighth of it is for large ones."""
        kept = self._most // 8 if self._large else 0
        small = min(len(self._small), max(1, self._most - kept))
        batch = [self._small.popleft() for _ in range(small)]
        room = ROOM
        while self._large and room > 0 and len(batch) < self._most:
            batch.append(self._large.popleft())
            room -= self._cost(batch[-1][0])
        return batch

    def _deliver(self, batch: list[Entry], answers: Sequence[Any]) -> None:
        self.sizes(len(batch))
        for (_, tell), answer in zip(batch, answers, strict=True):
            tell(answer)

    @property
    def mean(self) -> float:
        """The mean number of jobs in a batch."""
        return self.jobs / self.batches if self.batches else 0.0

    def close(self) -> None:
        self.thread.shutdown()
