"""uvicorn's connection, with deadlines and a limit on the size of the head.

uvicorn ends idle connections only. This class also ends a connection that sends its head or body
too slowly, or does not read its answer. A client that has closed its sending side still gets its
answer.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rankbits.serve.limits import Limits
from rankbits.serve.wire import dumps

PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large",
           503: "Service Unavailable"}  # fmt: skip

PACE = 1 << 18  # bytes that earn a sender another while


def connection(limits: Limits, most: int) -> type[HttpToolsProtocol]:
    """The protocol for these limits, of which ``most`` may be open at once."""

    class Connection(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None
        _heading = True  # a head is awaited or half here,
        _open = True  # a request is not wholly here
        _seen = _got = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                self._end(503, "Too many connections are open: try again in a moment.")
                return
            self._await()

        def _await(self) -> None:
            if self._late is None:
                self._late = self.loop.call_later(limits.seconds, self._too_late)

        def _came(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _too_late(self) -> None:
            self._late = None
            self._end(408, f"A request must be here within {limits.seconds:g} seconds.")

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self._open:  # nearly always: a request comes in one piece
                if self._late is not None:
                    self._came()
                return
            self._got += len(data)
            if self._got >= PACE:
                self._got = 0
                self._came()
            self._await()
            if self._heading:
                self._seen += len(data)
                if self._seen > limits.head_bytes:
                    self._end(431, f"A head may have at most {limits.head_bytes:,} bytes.")

        def on_message_begin(self) -> None:
            self._got = 0
            self._heading = self._open = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._heading, self._seen = False, 0
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._open = False
            super().on_message_complete()

        def eof_received(self) -> bool | None:  # type: ignore[override]
            cycle = self.cycle
            if cycle is None or cycle.response_complete or self._open:
                return None
            cycle.keep_alive = False
            return True

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stuck is None:
                self._stuck = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stuck is not None:
                self._stuck.cancel()
                self._stuck = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._came()
            if self._stuck is not None:
                self._stuck.cancel()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self._end(400, "This is not a request of HTTP/1.1.")

        def _end(self, status: int, sentence: str) -> None:
            """Answer, unless an answer has begun, and close."""
            if self.transport.is_closing():
                return
            if (
                self.cycle is None
                or not self.cycle.response_started
                or self.cycle.response_complete
            ):
                body = dumps({"error": sentence})
                head = (
                    f"HTTP/1.1 {status} {PHRASES[status]}\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nx-request-id: {os.urandom(8).hex()}\r\n"
                    "connection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
            self.transport.close()

    return Connection
