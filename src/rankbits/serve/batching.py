"""Answer concurrent searches by one call of the kernels.

Nothing is delayed to fill a batch: what comes in while one batch is answered is the next batch. A
lone search is answered at once; two hundred at a time cost little more than a few. Large searches
wait in a line of their own, and each batch takes a few of them, so that they delay no small one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rankbits.serve.limits import reject

LARGE = 100  # a job that costs more waits in the line of large jobs
ROOM = 16_384  # what the large jobs of one batch may cost together

Entry = tuple[Any, Callable[[Any], object]]


class Batcher:
    """Collects jobs and answers them in batches: ``await ask(job)`` returns the answer of ``job``.

    ``work(jobs)`` runs in one thread and returns one answer for each job; an exception in place of
    an answer is raised by ``ask``. ``cost`` says how large a job is: the number of its results.

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
            if answer.done():  # the request was cancelled
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
            reject(503, "Too many searches are waiting: try again in a moment.")
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
            line.append((job, tell))
            begin, self._running = not self._running, True
        if begin:
            self.thread.submit(self._drain)

    def _drain(self) -> None:
        """Answer batch after batch while any job waits. The thread itself takes the next batch: the
        event loop, busy with answers and new requests, would keep the kernels waiting."""
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
        """Take the next batch: small jobs first, but an eighth of it is for large ones."""
        reserved = self._most // 8 if self._large else 0
        small = min(len(self._small), max(1, self._most - reserved))
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
