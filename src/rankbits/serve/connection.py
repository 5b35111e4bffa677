"""HTTP/1.1 on one socket.

httptools parses. Every connection has one deadline for whatever it must send next: its first byte,
the rest of a head, of a body or of the trailers after it, another request. Only bytes of a body
move the deadline; bytes of anything else, and empty lines between requests, do not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import httptools

from rankbits.serve.limits import Rejected
from rankbits.serve.wire import Reply, Request, refuse

if TYPE_CHECKING:
    from rankbits.serve.app import App
    from rankbits.serve.crowd import Crowd

IDLE = 30.0  # seconds that a connection is kept without a request
PACE = 1 << 16  # bytes of a body that give their sender another second
WASTED = 64 << 20  # bytes after a refusal that are read and dropped, so that the sender reads it
PIPELINED = 100  # requests that may wait on one connection
WEIGHT = 1024  # bytes that a waiting request is reckoned to cost beside its own
GONE = 499  # in the log only: the client has closed the connection
FRAMING = (b"content-length", b"transfer-encoding")
KEPT = frozenset((b"host", b"authorization", b"content-type", b"expect", *FRAMING))


class Connection(asyncio.Protocol):
    """One client. Requests are answered one after the other, in the order in which they came."""

    transport: Any
    deadline = stuck = inf  # when the client must have sent, and when it must have read
    unfinished = 0  # bytes of the request that is half here

    def __init__(self, app: App, crowd: Crowd) -> None:
        self.app, self.crowd, self.limits = app, crowd, app.service.limits
        self.loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._at_work: Request | None = None
        self._begun = self._served = False  # a request is half here; one was answered
        self._deaf = self._cut_off = False  # what comes is dropped; the client may still be sending
        self._paused = self._resuming = False
        self._held = self._quiet = self._dropped = self._unsent = 0
        self._reset()

    def _reset(self) -> None:
        self._request: Request | None = None
        self._url, self._headers, self._parts = b"", {}, []  # type: ignore[var-annotated]
        self._overhead = self._size = 0
        self._wrong: Rejected | None = None  # what is wrong with the head, or with the trailers

    @property
    def idle(self) -> bool:
        """Whether nothing of its is being answered."""
        return self._at_work is None and not self._queue

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.deadline = self.loop.time() + self.limits.seconds
        if not self.crowd.enter(self):
            reply = refuse(Rejected(503, "Too many connections are open: try again in a moment."))
            transport.write(reply.to_bytes(self.app.next_name(), close=True))
            transport.close()

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
        self._held += size
        self.crowd.held += size

    def _check_unfinished(self) -> None:
        """Refuse a request that is half here for its head or for what it holds."""
        refusal = self._wrong or (self._request.refusal if self._request is not None else None)
        if refusal is None and self._quiet > self.limits.head_bytes:
            refusal = self._refuse_length()
        if refusal is not None:
            self.cut(refusal)
        elif self.crowd.held > self.limits.held_bytes:
            self.crowd.relieve()

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

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._deaf:
            return
        length = self._headers.get(b"content-length", b"0").strip().lstrip(b"0")
        with_body = bool(length) or b"transfer-encoding" in self._headers
        if self._parser.should_upgrade() and with_body and request.method != "CONNECT":
            return  # only its head is here, whatever the parser says
        request.refusal = self._wrong or request.refusal
        request.body = b"".join(self._parts)
        self._hold(WEIGHT)
        request.held, self.unfinished = self.unfinished + WEIGHT, 0
        self._begun, self.deadline = False, inf
        self._reset()
        self._deaf = not request.keep_alive
        self._queue.append(request)
        self.crowd.waiting.pop(self, None)
        if len(self._queue) > PIPELINED:
            self.cut(Rejected(503, f"At most {PIPELINED} requests may wait on one connection."))
        self._answer()

    def _answer(self) -> None:
        closing = self.transport.is_closing()
        while self._queue and self._at_work is None and not self._paused and not closing:
            request = self._queue.popleft()
            if request.refusal is not None:
                self._send(request, refuse(request.refusal))
            else:
                self._at_work = request
                task = self.loop.create_task(self._work(request))
                self.crowd.tasks.add(task)
                task.add_done_callback(self.crowd.tasks.discard)

    async def _work(self, request: Request) -> None:
        reply = await self.app.respond(request)
        self._at_work = None
        self._send(request, reply)
        self._answer()

    def _send(self, request: Request, reply: Reply) -> None:
        self._hold(-request.held)
        if self.transport.is_closing():
            self.app.note(request, GONE)
            return
        last = not self._queue and (not request.keep_alive or self.crowd.closing)
        head_only = request.method == "HEAD"
        self.transport.write(reply.to_bytes(request.name, close=last, head_only=head_only))
        self.app.note(request, reply.status)
        self._served = True
        if self._queue:
            return
        self.crowd.waiting[self] = None
        if last:
            self._deaf, self.deadline = True, self.loop.time() + self.limits.seconds
            if self._cut_off:  # the client is still sending: let it read this before the end
                self.transport.write_eof()
            else:
                self.transport.close()
        elif not self._begun:
            self.deadline = self.loop.time() + IDLE

    def cut(self, refusal: Rejected) -> None:
        """Answer what is here, then this refusal, drop whatever else comes, and close."""
        if self._deaf or self.transport.is_closing():
            return
        request = self._request or Request(name=self.app.next_name())
        request.refusal, request.keep_alive = refusal, False
        self._hold(-self.unfinished)
        self.unfinished = 0
        self._reset()
        self._deaf = self._cut_off = True
        self._begun, self.deadline = False, inf
        self._queue.append(request)
        self._answer()

    def end_late(self, now: float) -> None:
        """End a connection whose deadline has passed."""
        if self.transport.is_closing() or self._cut_off or self.stuck <= now:
            self.transport.abort()
        elif self._served and not self._begun:
            self.transport.close()
        else:
            sentence = f"A request must be here within {self.limits.seconds:g} seconds."
            self.cut(Rejected(408, sentence))

    def finish(self) -> None:
        """Close after the requests that are wholly here."""
        if self.idle:
            self.transport.close()
        self._deaf = True

    def eof_received(self) -> bool:
        """A client that has sent all its requests still gets its replies."""
        if self.idle:
            return False
        last: Any = self._queue[-1] if self._queue else self._at_work
        self._deaf, last.keep_alive = True, False
        return True

    def pause_writing(self) -> None:
        """The client does not read: start no other answer, and count what waits for it."""
        self._paused, self.stuck = True, self.loop.time() + self.limits.seconds
        self._unsent = self.transport.get_write_buffer_size()
        self._hold(self._unsent)
        if self.crowd.held > self.limits.held_bytes:
            self.transport.abort()

    def resume_writing(self) -> None:
        self._hold(-self._unsent)
        self._paused, self.stuck, self._unsent = False, inf, 0
        self._answer()

    def connection_lost(self, error: Exception | None) -> None:
        for request in [*self._queue, *([self._request] if self._request else [])]:
            self.app.note(request, GONE)
        self._queue.clear()
        self._hold((self._at_work.held if self._at_work else 0) - self._held)
        self.unfinished = self._unsent = 0
        self._parser = None  # it refers to this object
        self.crowd.leave(self)
