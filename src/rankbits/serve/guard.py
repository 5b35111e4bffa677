"""The outermost layer: every request gets an id, a bounded body, safe headers, a line in the log,
and, whatever goes wrong inside, one sentence.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from time import perf_counter
from typing import Any

from rankbits.serve.answers import Unavailable
from rankbits.serve.limits import Limits, Rejected, reject
from rankbits.serve.logs import Log
from rankbits.serve.meters import Meters
from rankbits.serve.wire import dumps

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
JSON = (b"content-type", b"application/json")
METHODS = frozenset(("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"))
ADVICE = {
    401: {"www-authenticate": "Bearer"},
    413: {"connection": "close"},
    503: {"retry-after": "1"},
}
WASTED = 64 << 20  # bytes of a refused body that are read away, so that its sender reads why
GONE = 499  # in the log only: whoever asked has gone
FAILED = "Something went wrong here; the log has more under the id of this request."
DOWN = "The index cannot do that at present; the log has more under the id of this request."


class Gone(BaseException):
    """The client has closed the connection. Not an Exception, which the routes would answer."""


def failure(error: BaseException) -> tuple[int, str]:
    """Status and sentence of whatever was raised."""
    if isinstance(error, Rejected):
        return error.status, str(error)
    if isinstance(error, Unavailable):
        return 503, DOWN
    return 500, FAILED


class Guard:
    """An ASGI application around another. ``hosts``: names that a request may be addressed to, so
    that a page elsewhere whose name was pointed at this machine reads nothing; None: any."""

    def __init__(
        self,
        app: Any,
        limits: Limits,
        log: Log,
        meters: Meters,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self.app, self.limits, self.log = app, limits, log
        self.meters, self.hosts = meters, hosts
        self.inside = 0
        prefix = os.urandom(4).hex()
        self._names = (f"{prefix}{n:08x}" for n in count())

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1003})
            else:
                await self.app(scope, receive, send)
            return
        began, name = perf_counter(), self.name()
        answer = Answer(send, name)
        self.inside += 1
        try:
            await self._answered(scope, receive, answer)
        except Gone:
            answer.status = answer.status or GONE
        except Exception as error:
            status, sentence = failure(error)
            self.record(error, status, name)
            await answer.refuse(status, sentence)
        finally:
            self.inside -= 1
            method = scope["method"] if scope["method"] in METHODS else "-"
            route = getattr(scope.get("route"), "path", None) or "-"
            self.done(method, route, answer.status or GONE, began, name)

    async def _answered(self, scope: Any, receive: Receive, answer: Answer) -> None:
        if self.inside > self.limits.waiting:
            reject(503, "Too many requests are waiting: try again in a moment.")
        length = self.checked_head(scope["headers"])
        body = Body(receive, self.limits.body_bytes)
        if length > self.limits.body_bytes:
            await body.waste()
            body.refuse()
        await self.app(scope, body.receive, answer)

    def checked_head(self, headers: list[tuple[bytes, bytes]]) -> int:
        """The length a body claims, 0 where it claims none."""
        length = 0
        for key, value in headers:
            if key == b"content-length":
                length = int(value) if value.isdigit() and len(value) < 19 else 1 << 62
            elif key == b"host" and self.hosts is not None:
                host = value.decode("latin-1").lower()
                bare = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
                if bare not in self.hosts:
                    reject(421, "This service answers under the name it listens on only.")
        return length

    def name(self) -> str:
        """The id of the next request."""
        return next(self._names)

    def done(self, method: str, route: str, status: int, began: float, name: str) -> None:
        """Write a request down."""
        spent = perf_counter() - began
        self.log.request(method, route, status, spent, name)
        self.meters.request(method, route, status, spent)

    def record(self, error: BaseException, status: int, name: str) -> None:
        """Keep what a reply does not tell."""
        if status < 500 or isinstance(error, Rejected):
            return
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.log.event("failure", id=name, traceback="".join(lines))


class Body:
    """A request's body, counted while it comes and never held beyond its limit."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._seen, self._done = receive, most, 0, False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._done = not message.get("more_body", False)
            if self._seen > self._most:
                await self.waste()
                self.refuse()
        elif not self._done:
            raise Gone
        return message

    async def waste(self) -> None:
        """Read and drop the rest, up to a limit: a sender that is cut off never reads its
        refusal."""
        while not self._done and self._seen < WASTED:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            self._seen += len(message.get("body", b""))
            self._done = not message.get("more_body", False)

    def refuse(self) -> None:
        reject(413, f"The body may have at most {self._most:,} bytes.")


class Answer:
    """``send`` that adds the headers every reply has, and remembers the status."""

    def __init__(self, send: Send, name: str) -> None:
        self._send, self.name, self.status = send, name, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = (b"x-request-id", self.name.encode())
            message = {**message, "headers": [*message.get("headers", []), *HEADERS, named]}
        await self._send(message)

    async def send_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        self.status = status
        size = (b"content-length", b"%d" % len(body))
        named = (b"x-request-id", self.name.encode())
        every = [*headers, size, *HEADERS, named]
        await self._send({"type": "http.response.start", "status": status, "headers": every})
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, status: int, sentence: str) -> None:
        if self.status:  # a reply has begun; the connection ends with it
            return
        extra = [(n.encode(), v.encode()) for n, v in ADVICE.get(status, {}).items()]
        await self.send_whole(status, [JSON, *extra], dumps({"error": sentence}))
