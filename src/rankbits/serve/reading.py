"""Requests of one socket, read: heads, bodies and trailers as they come, and what is wrong in them.

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
    """The side of a connection that reads. A whole request is told by ``on_message_complete``."""

    transport: Any
    deadline = stuck = inf  # when the client must have sent, and when it must have read
    held = unfinished = 0  # bytes of what is not answered; of the request that is half here

    def __init__(self, app: App, crowd: Crowd) -> None:
        self.app, self.crowd, self.limits = app, crowd, app.service.limits
        self.loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._begun = self._deaf = self._resuming = False  # half a request is here; all is dropped
        self._quiet = self._dropped = 0
        self._reset()

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing of its is being answered."""

    @abstractmethod
    def cut(self, refusal: Rejected) -> None:
        """Answer what is here, then this refusal, drop whatever else comes, and close."""

    def _reset(self) -> None:
        self._request: Request | None = None
        self._url, self._headers, self._parts = b"", {}, []  # type: ignore[var-annotated]
        self._overhead = self._size = 0
        self._wrong: Rejected | None = None  # what is wrong with the head, or with the trailers

    def data_received(self, data: bytes) -> None:
        if self._deaf:
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
        if self._begun and not self._deaf:
            self._check_unfinished()
        if self.crowd.held > self.limits.held_bytes:
            self.crowd.relieve()

    def _begin(self) -> None:
        if not self._begun:
            self._begun, self._quiet = True, 0
            self.deadline = self.loop.time() + self.limits.seconds

    def _count(self, size: int) -> None:
        """Count bytes that have come."""
        self.unfinished += size
        self._quiet += size  # since a part of a body came
        self._hold(size)

    def _hold(self, size: int) -> None:
        self.held += size
        self.crowd.held += size

    def _check_unfinished(self) -> None:
        """Refuse a request that is half here for its head."""
        refusal = self._wrong or (self._request.refusal if self._request is not None else None)
        if refusal is None and self._quiet > self.limits.head_bytes:
            refusal = self._refuse_length()
        if refusal is not None:
            self.cut(refusal)

    def _refuse_length(self) -> Rejected:
        return Rejected(431, f"A head may have at most {self.limits.head_bytes:,} bytes.")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1. The parser stops at the end of the head, so a new one is told how
        long the body is."""
        self._parser = httptools.HttpRequestParser(self)
        if self._request is not None:
            self._resuming = True
            framing = [(name, self._headers[name]) for name in FRAMING if name in self._headers]
            lines = b"".join(b"%s: %s\r\n" % pair for pair in framing)
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")
        if rest and not self._deaf:
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
        """A header, or a trailer, which counts and is not kept."""
        if self._resuming:
            return
        self._overhead += len(name) + len(value) + 4
        if self._overhead > self.limits.head_bytes:
            self._wrong = self._wrong or self._refuse_length()
        name = name.lower()
        if self._request is None and name in KEPT:
            if name in self._headers:
                sentence = f"A request may have one header {name.decode()}; got two."
                self._wrong = self._wrong or Rejected(400, sentence)
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._resuming or self._deaf:
            self._resuming = False
            return
        method = self._parser.get_method().decode()
        alive = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
        request = Request(method, self._url, self._headers, alive, name=self.app.next_name())
        request.refusal = self._wrong or self.app.admit(request)
        self._request = request
        waits = self._headers.get(b"expect", b"").lower() == b"100-continue"
        if waits and request.refusal is None and self.idle:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._quiet = 0
        self._size += len(body)
        self.deadline += len(body) / PACE
        request = self._request
        if request is None or request.refusal is not None:
            return
        if self._size > self.limits.body_bytes:
            request.refusal = self.app.too_large()
            self._parts.clear()
        else:
            self._parts.append(body)
