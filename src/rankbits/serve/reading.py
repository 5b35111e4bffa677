"""Read the requests of one socket: heads, bodies and trailers as they come.

httptools parses. Only bytes of a body move the deadline of a connection; bytes of anything else,
and empty lines between requests, do not.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Any

import httptools

from rankbits.serve.limits import PACE, WASTED, Rejected
from rankbits.serve.wire import Request

if TYPE_CHECKING:
    from rankbits.serve.app import App
    from rankbits.serve.crowd import Crowd

FRAMING = (b"content-length", b"transfer-encoding")
KEPT = frozenset((b"host", b"authorization", b"content-type", b"expect", *FRAMING))


class Reading(asyncio.Protocol, ABC):
    """The side of a connection that reads. The parser calls ``on_message_complete`` at the end of
    a request."""

    transport: Any
    deadline = read_deadline = inf  # of what the client sends, and of the answer that it reads
    held = unfinished = 0  # bytes that are not answered, and those of an incomplete request

    def __init__(self, app: App, crowd: Crowd) -> None:
        self.app, self.crowd, self.limits = app, crowd, app.service.limits
        self.loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._begun = False  # a part of a request is here
        self._dropping = False  # whatever comes is read and dropped
        self._resuming = False  # a new parser is told the head again
        self._since_body = self._dropped = 0
        self._reset()

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether no request of this connection waits for its answer."""

    @abstractmethod
    def cut(self, refusal: Rejected) -> None:
        """Answer the complete requests, send this refusal, drop whatever else comes, and close."""

    def _reset(self) -> None:
        self._request: Request | None = None
        self._url, self._headers, self._parts = b"", {}, []  # type: ignore[var-annotated]
        self._overhead = self._size = 0
        self._wrong: Rejected | None = None  # the fault of the head, or of the trailers

    def data_received(self, data: bytes) -> None:
        if self._dropping:
            self._dropped += len(data)
            if self._dropped > WASTED:
                self.transport.abort()
            return
        self._begin()
        self._count(len(data))
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.cut(Rejected(400, "This is not a request of HTTP/1.1."))
        if self._begun and not self._dropping:
            self._check_unfinished()
        if self.crowd.held > self.limits.held_bytes:
            self.crowd.relieve()

    def _begin(self) -> None:
        if not self._begun:
            self._begun, self._since_body = True, 0
            self.deadline = self.loop.time() + self.limits.seconds

    def _count(self, size: int) -> None:
        """Count bytes that were received."""
        self.unfinished += size
        self._since_body += size
        self._hold(size)

    def _hold(self, size: int) -> None:
        self.held += size
        self.crowd.held += size

    def _check_unfinished(self) -> None:
        """Refuse an incomplete request whose head is wrong or too long."""
        refusal = self._wrong or (self._request.refusal if self._request is not None else None)
        if refusal is None and self._since_body > self.limits.head_bytes:
            refusal = self._too_long
        if refusal is not None:
            self.cut(refusal)

    @property
    def _too_long(self) -> Rejected:
        return Rejected(431, f"A head may have at most {self.limits.head_bytes:,} bytes.")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1. The parser stops at the end of the head, so a new one gets the headers
        that say how long the body is."""
        self._parser = httptools.HttpRequestParser(self)
        if self._request is not None:
            self._resuming = True
            framing = [(name, self._headers[name]) for name in FRAMING if name in self._headers]
            lines = b"".join(b"%s: %s\r\n" % pair for pair in framing)
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")
        if rest and not self._dropping:
            self._count(-len(rest))
            self.data_received(rest)

    def on_message_begin(self) -> None:
        if not self._resuming:
            self._begin()
            self._reset()

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self._url += url
            self._overhead += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. The bytes of a trailer count too, but it is not kept."""
        if self._resuming:
            return
        self._overhead += len(name) + len(value) + 4
        if self._overhead > self.limits.head_bytes:
            self._wrong = self._wrong or self._too_long
        name = name.lower()
        if self._request is None and name in KEPT:
            if name in self._headers:
                sentence = f"A request may have one header {name.decode()}; got two."
                self._wrong = self._wrong or Rejected(400, sentence)
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._resuming or self._dropping:
            self._resuming = False
            return
        method = self._parser.get_method().decode()
        alive = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
        request = Request(method, self._url, self._headers, alive, id=self.app.make_id())
        request.refusal = self._wrong or self.app.admit(request)
        self._request = request
        waits = self._headers.get(b"expect", b"").lower() == b"100-continue"
        if waits and request.refusal is None and self.idle:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._since_body = 0
        self._size += len(body)
        self.deadline += len(body) / PACE
        request = self._request
        if request is None or request.refusal is not None:
            return
        if self._size > self.limits.body_bytes:
            request.refusal = self.app.too_large
            self._parts.clear()
        else:
            self._parts.append(body)
