"""Concurrent questions become one call of the kernels.

Nothing is delayed to fill a batch: whatever comes in while a batch is being worked on is the next
one. A lone question is answered at once; two hundred at a time cost little more than a few.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rankbits.serve.limits import reject


class Batcher:
    """``await ask(job)`` answers by ``work(jobs)``, called in a thread of its own for all that
    wait. ``work`` returns one answer for each job; an exception in place of an answer is raised for
    whoever asked.

    >>> batcher = Batcher(lambda jobs: [2 * job for job in jobs])
    >>> async def both():
    ...     return await asyncio.gather(batcher.ask(1), batcher.ask(2))
    >>> asyncio.run(both()), batcher.jobs
    ([2, 4], 2)
    """

    def __init__(
        self, work: Callable[[list[Any]], Sequence[Any]], most: int = 256, waiting: int = 2000
    ) -> None:
        self._work, self._most, self._limit = work, most, waiting
        self._waiting: deque[tuple[Any, Callable[[Any], object]]] = deque()
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
        if len(self._waiting) >= self._limit:
            reject(503, "Too many questions are waiting: ask again in a moment.")
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
            self._waiting.append((job, tell))
            begin, self._running = not self._running, True
        if begin:
            self.thread.submit(self._drain)

    def _drain(self) -> None:
        """Batch after batch while anything waits. The thread takes the next one itself: the loop,
        busy with the last answers and the next questions, would keep the kernels waiting."""
        while True:
            with self._lock:
                size = min(self._most, len(self._waiting))
                if not size:
                    self._running = False
                    return
                batch = [self._waiting.popleft() for _ in range(size)]
            self.batches += 1
            self.jobs += size
            try:
                answers = self._work([job for job, _ in batch])
            except BaseException as failure:
                answers = [failure] * size
            self._loop.call_soon_threadsafe(self._deliver, batch, answers)

    def _deliver(self, batch: list[tuple[Any, Callable]], answers: Sequence[Any]) -> None:
        self.sizes(len(batch))
        for (_, tell), answer in zip(batch, answers, strict=True):
            tell(answer)

    @property
    def mean(self) -> float:
        """The mean number of jobs in a batch."""
        return self.jobs / self.batches if self.batches else 0.0

    def close(self) -> None:
        self.thread.shutdown()
