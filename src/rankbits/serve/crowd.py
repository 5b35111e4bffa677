"""All connections together: how many there may be, what they may hold, and who is late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rankbits.serve.connection import Connection

if TYPE_CHECKING:
    from rankbits.serve.app import App

TICK = 0.2  # seconds between two looks at the deadlines, and that a line of the log may wait


class Crowd:
    """The connections of a service, at most ``most``. Where all places are taken, the newest takes
    that of the one that has been waited for longest."""

    def __init__(self, app: App, most: int) -> None:
        self.app, self.most = app, most
        self.open: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}  # have nothing to be answered; in that order
        self.tasks: set[asyncio.Task] = set()
        self.held = 0  # bytes of requests that are not answered yet
        self.closing = False

    def meet(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self.app, self)

    def enter(self, connection: Connection) -> bool:
        """Take a connection in; False where there is no place for it."""
        if len(self.open) >= self.most:
            if not self.waiting:
                return False
            first = next(iter(self.waiting))
            self.leave(first)
            first.transport.abort()
        self.open.add(connection)
        self.waiting[connection] = None
        return True

    def leave(self, connection: Connection) -> None:
        self.open.discard(connection)
        self.waiting.pop(connection, None)

    def relieve(self) -> None:
        """Refuse those that hold most, until an eighth of what all may hold is free again."""
        enough = self.app.service.limits.held_bytes * 7 // 8
        for worst in sorted(self.open, key=lambda connection: connection.held, reverse=True):
            if self.held <= enough:
                return
            worst.give_up()

    async def watch(self) -> None:
        """End those that are late, and write the log, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK)
            self.app.log.flush()
            now = loop.time()
            for late in [c for c in self.open if c.deadline <= now or c.stuck <= now]:
                late.end_late(now)

    async def finish(self, seconds: float) -> None:
        """Answer the requests that are wholly here, for so long, and close all connections."""
        self.closing = True
        for connection in list(self.open):
            connection.finish()
        end = asyncio.get_running_loop().time() + seconds
        while self.open and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.open):
            connection.transport.abort()
