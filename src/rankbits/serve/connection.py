"""HTTP/1.1 on one socket.

A connection has a deadline for what the client must send next (its first byte, the rest of a head,
a body or its trailers, another request) and one for the answer that it must read. The bytes that
all connections hold are counted, and past a limit those that hold most are refused.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from rankbits.serve.limits import GONE, IDLE, PIPELINED, WEIGHT, Rejected
from rankbits.serve.reading import Reading
from rankbits.serve.wire import Reply, Request, make_refusal

if TYPE_CHECKING:
    from rankbits.serve.app import App
    from rankbits.serve.crowd import Crowd


class Connection(Reading):
    """One client. Requests are answered one after the other, in the order in which they came."""

    def __init__(self, app: App, crowd: Crowd) -> None:
        super().__init__(app, crowd)
        self._queue: deque[Request] = deque()
        self._at_work: Request | None = None
        self._served = False  # a request was answered
        self._cut_off = False  # the last answer came while the client may still be sending
        self._paused, self._unsent = False, 0

    @property
    def idle(self) -> bool:
        return self._at_work is None and not self._queue

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.deadline = self.loop.time() + self.limits.seconds
        if not self.crowd.enter(self):
            full = Rejected(503, "Too many connections are open: try again in a moment.")
            transport.write(make_refusal(full).to_bytes(self.app.make_id(), close=True))
            transport.close()

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._dropping:
            return
        length = self._headers.get(b"content-length", b"0").strip().lstrip(b"0")
        with_body = bool(length) or b"transfer-encoding" in self._headers
        if self._parser.should_upgrade() and with_body and request.method != "CONNECT":
            return  # the parser says so at the end of the head of an upgrade
        request.refusal = self._wrong or request.refusal
        request.body = b"".join(self._parts)
        self._hold(WEIGHT)
        request.held, self.unfinished = self.unfinished + WEIGHT, 0
        self._begun, self.deadline = False, inf
        self._reset()
        self._dropping = not request.keep_alive
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
                self._send(request, make_refusal(request.refusal))
            else:
                self._at_work = request
                task = self.loop.create_task(self._work(request))
                self.crowd.tasks.add(task)
                task.add_done_callback(self.crowd.tasks.discard)

    async def _work(self, request: Request) -> None:
        reply = await self.app.respond(request)
        self._at_work = None
        if reply.status == 503 and self._queue:  # those behind it would be refused one by one
            self._dropping = self._cut_off = True
            request.keep_alive = False
            self._drop_waiting()
        self._send(request, reply)
        self._answer()

    def _send(self, request: Request, reply: Reply) -> None:
        self._hold(-request.held)
        if self.transport.is_closing():
            self.app.note(request, GONE)
            return
        last = not self._queue and (not request.keep_alive or self.crowd.closing)
        head_only = request.method == "HEAD"
        self.transport.write(reply.to_bytes(request.id, close=last, head_only=head_only))
        self.app.note(request, reply.status)
        self._served = True
        if self._queue:
            return
        self.crowd.waiting[self] = None
        if last:
            self._dropping, self.deadline = True, self.loop.time() + self.limits.seconds
            if self._cut_off:  # the client is still sending: let it read this before the end
                self.transport.write_eof()
            else:
                self.transport.close()
        elif not self._begun:
            self.deadline = self.loop.time() + IDLE

    def cut(self, refusal: Rejected) -> None:
        if self._dropping or self.transport.is_closing():
            return
        request = self._request or Request(id=self.app.make_id())
        request.refusal, request.keep_alive = refusal, False
        self._hold(-self.unfinished)
        self.unfinished = 0
        self._reset()
        self._dropping = self._cut_off = True
        self._begun, self.deadline = False, inf
        self._queue.append(request)
        self._answer()

    def end_late(self, now: float) -> None:
        """End a connection whose deadline has passed."""
        if self.transport.is_closing() or self._cut_off or self.read_deadline <= now:
            self.transport.abort()
        elif self._served and not self._begun:
            self.transport.close()
        else:
            sentence = f"A request must arrive within {self.limits.seconds:g} seconds."
            self.cut(Rejected(408, sentence))

    def finish(self) -> None:
        """Close after the answers to the complete requests."""
        if self.idle:
            self.transport.close()
        self._dropping = True

    def eof_received(self) -> bool:
        """Keep the connection of a client that sends no more until it has its replies."""
        if self.idle:
            return False
        last: Any = self._queue[-1] if self._queue else self._at_work
        self._dropping, last.keep_alive = True, False
        return True

    def pause_writing(self) -> None:
        """Start no other answer while the client does not read, and count what waits for it."""
        self._paused, self.read_deadline = True, self.loop.time() + self.limits.seconds
        self._unsent = self.transport.get_write_buffer_size()
        self._hold(self._unsent)
        if self.crowd.held > self.limits.held_bytes:
            self.crowd.relieve()

    def give_up(self) -> None:
        """Refuse the incomplete request; close at once where that frees less than half."""
        if 2 * self.unfinished > self.held:
            self.cut(Rejected(503, "Too much is being sent at once: try again in a moment."))
            return
        self._release()
        self.transport.abort()

    def _drop_waiting(self) -> None:
        for request in self._queue:
            self._hold(-request.held)
            self.app.note(request, GONE)
        self._queue.clear()

    def _release(self) -> None:
        """Drop the requests that wait, and stop counting the bytes of these and of answers."""
        self._drop_waiting()
        if self._request is not None:
            self.app.note(self._request, GONE)
            self._request = None
        self._hold((self._at_work.held if self._at_work else 0) - self.held)
        self.unfinished = self._unsent = 0

    def resume_writing(self) -> None:
        self._hold(-self._unsent)
        self._paused, self.read_deadline, self._unsent = False, inf, 0
        self._answer()

    def connection_lost(self, error: Exception | None) -> None:
        self._release()
        self._parser = None  # it refers to this object
        self.crowd.leave(self)
