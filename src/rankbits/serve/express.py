"""A short path for the most frequent request: ``POST /search`` in one piece.

Its body goes from the parser into the batch and its answer from there to the socket, with no task,
no scope and no route in between: those would cost several times what a search costs once it is
batched. Whatever is unusual about a request (chunks, a large body, another host, a text to embed
first) takes the long way, where every refusal is worded; ids, headers, log and counts are the same.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rankbits.serve.guard import ADVICE, GONE, HEADERS, JSON, Guard, failure
from rankbits.serve.limits import Rejected
from rankbits.serve.service import Service
from rankbits.serve.wire import dumps

SHORT = 1 << 16  # bytes of a body
EVERY = b"".join(b"%s: %s\r\n" % pair for pair in (JSON, *HEADERS))
UNUSUAL = frozenset((b"expect", b"transfer-encoding", b"upgrade"))


class Turn:
    """What uvicorn knows of a request at work, as far as its connection asks."""

    response_started = response_complete = disconnected = more_body = False

    def __init__(self, keep_alive: bool, began: float, name: str) -> None:
        self.keep_alive, self.began, self.name = keep_alive, began, name
        self.message_event = asyncio.Event()


def express(long_way: type[HttpToolsProtocol], service: Service, guard: Guard) -> Any:
    """``long_way`` with the short way in front."""

    class Express(long_way):  # type: ignore[misc, valid-type]
        _parts: list[bytes] | None = None  # the body of a search on the short way

        def on_headers_complete(self) -> None:
            if self.url == b"/search" and self._usual():
                self._heading, self._seen = False, 0
                keep = self.parser.should_keep_alive() and self.parser.get_http_version() == "1.1"
                self.cycle = Turn(keep, perf_counter(), guard.name())
                self._parts = []
                return
            super().on_headers_complete()

        def _usual(self) -> bool:
            if self.parser.get_method() != b"POST" or guard.inside >= guard.limits.waiting:
                return False
            if self.cycle is not None and not self.cycle.response_complete:
                return False
            if not UNUSUAL.isdisjoint(name for name, _ in self.headers):
                return False
            try:
                return 0 < guard.checked_head(self.headers) <= SHORT
            except Rejected:
                return False

        def on_body(self, body: bytes) -> None:
            if self._parts is None:
                super().on_body(body)
            else:
                self._parts.append(body)

        def on_message_complete(self) -> None:
            if self._parts is None:
                super().on_message_complete()
                return
            raw, self._parts, self._open = b"".join(self._parts), None, False
            turn = self.cycle
            guard.inside += 1
            try:
                ask = service.parsed(raw)
                if ask.text is None:
                    service.batcher.put(ask, lambda found: self._tell(turn, found))
                else:
                    task = self.loop.create_task(service.answered(ask))
                    self.tasks.add(task)
                    task.add_done_callback(lambda done: self._told(turn, done))
            except Exception as error:
                self._tell(turn, error)

        def _told(self, turn: Turn, done: asyncio.Task) -> None:
            self.tasks.discard(done)
            if done.cancelled():
                self._tell(turn, RuntimeError("cancelled"))
            else:
                self._tell(turn, done.exception() or done.result())

        def _tell(self, turn: Turn, found: Any) -> None:
            status, extra, body = 200, b"", found
            if isinstance(found, BaseException):
                status, sentence = failure(found)
                guard.record(found, status, turn.name)
                advice = ADVICE.get(status, {}).items()
                extra = b"".join(f"{name}: {value}\r\n".encode() for name, value in advice)
                body = dumps({"error": sentence})
            guard.inside -= 1
            turn.response_complete = True
            if turn.disconnected or self.transport.is_closing():
                guard.done("POST", "/search", GONE, turn.began, turn.name)
                return
            close = b"" if turn.keep_alive else b"connection: close\r\n"
            self.transport.write(
                b"%s%s%sx-request-id: %s\r\ncontent-length: %d\r\n%s\r\n%s"
                % (STATUS_LINE[status], EVERY, extra, turn.name.encode(), len(body), close, body)
            )
            if not turn.keep_alive:
                self.transport.close()
            self.on_response_complete()
            guard.done("POST", "/search", status, turn.began, turn.name)

    return Express
