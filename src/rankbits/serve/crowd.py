"""All connections together: how many there may be, how much they may hold, which are late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rankbits.serve.connection import Connection

if TYPE_CHECKING:
    from rankbits.serve.app import App

TICK = 0.2  # seconds between two checks of the deadlines, and the longest that a log line waits


class Crowd:
    """The connections of a service, at most ``most``. When there are that many, a new one replaces
    the one that has had nothing to answer for longest."""

    def __init__(self, app: App, most: int) -> None:
        self.app, self.most = app, most
        self.open: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}  # nothing to answer, the longest such first
        self.tasks: set[asyncio.Task] = set()
        self.held = 0  # bytes of requests that are not answered yet
        self.closing = False

    def make_connection(self) -> Connection:
        """Make the protocol of a new connection."""
        return Connection(self.app, self)

    def enter(self, connection: Connection) -> bool:
        """Add a connection; False where there is no room for it."""
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
        """Refuse the connections that hold most, until an eighth of the limit is free again."""
        enough = self.app.service.limits.held_bytes * 7 // 8
        for worst in sorted(self.open, key=lambda connection: connection.held, reverse=True):
            if self.held <= enough:
                return
            worst.give_up()

    async def watch(self) -> None:
        """End late connections and write the log, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK)
            self.app.log.flush()
            now = loop.time()
            for late in [c for c in self.open if min(c.deadline, c.read_deadline) <= now]:
                late.end_late(now)

    async def finish(self, seconds: float) -> None:
        """Answer complete requests for up to ``seconds``, then close all connections."""
        self.closing = True
        for connection in list(self.open):
            connection.finish()
        end = asyncio.get_running_loop().time() + seconds
        while self.open and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.open):
            connection.transport.abort()
