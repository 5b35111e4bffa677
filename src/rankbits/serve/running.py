"""Run a service on a socket until a signal ends it."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rankbits import _check
from rankbits.serve.logs import Log
from rankbits.serve.service import Service

if TYPE_CHECKING:
    from rankbits.serve.app import App
    from rankbits.serve.crowd import Crowd

GRACE = 30  # seconds in which requests in flight are answered at the end
MOST = 4096  # connections
BACKLOG = 1024  # connections that wait to be accepted
SENT = 1 << 17  # bytes of answers that the system buffers for a client that does not read


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine itself.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def choose_connection_limit() -> int:
    """Choose how many connections may be open: at most half of the files that the system allows,
    so that other files, and connections just accepted, have room."""
    try:
        import resource
    except ImportError:
        return 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST if hard == resource.RLIM_INFINITY else min(2 * MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


def open_socket(host: str, port: int) -> socket.socket:
    """Open a socket that listens on an address; port 0 is any free one."""
    _check.whole("port", port, 0)
    if port > 65535:
        _check.refuse(f"port must be at most 65535; got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT)  # of its connections too
        listening.bind((host, port))
        listening.listen(BACKLOG)  # before its address is printed
    except OSError as error:
        listening.close()
        _check.refuse(f"Cannot listen on {host}, port {port}: {error.strerror or error}.")
    return listening


def create_app(
    service: Service, *, log: Log | None = None, hosts: frozenset[str] | None = None
) -> App:
    """Make the app that answers for a service; a missing extra is refused."""
    try:
        from rankbits.serve.app import App
    except ImportError:
        _check.refuse("Serving needs more packages: pip install 'rankbits[serve]'.")
    return App(service, log=log, hosts=hosts)


async def listen(
    app: App, listening: socket.socket, ended: asyncio.Event, begin: Callable[[Crowd], object]
) -> None:
    """Answer on a socket until ``ended`` is set; then finish what is in flight and close the index.
    ``begin`` is called once requests and signals are received."""
    from rankbits.serve.crowd import Crowd

    loop, crowd = asyncio.get_running_loop(), Crowd(app, choose_connection_limit())
    server = await loop.create_server(crowd.make_connection, sock=listening, backlog=BACKLOG)
    watching = asyncio.create_task(crowd.watch())
    # only a main thread receives signals, and not on Windows: elsewhere the caller sets ``ended``
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
    begin(crowd)
    await ended.wait()
    server.close()
    await crowd.finish(GRACE)
    watching.cancel()
    await loop.run_in_executor(None, app.service.close)
    app.log.write_event("stopped")


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, in uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    say: Callable[[str], object] = print,
    log: Log | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then answer the requests in flight and close the index.

    On a loopback address only requests to a loopback name are answered. On any other address
    anybody who can reach the machine can search. Writing always needs the token.
    """
    loopback = is_loopback(host)
    hosts = frozenset(("localhost", "127.0.0.1", "[::1]", host, f"[{host}]")) if loopback else None
    app = create_app(service, log=log, hosts=hosts)
    listening = open_socket(host, port)
    service.warm()
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    reach = "" if loopback else " Anybody who can reach this machine can search it."
    writes = "Writing needs the token." if service.writable else "Read-only: no token was given."
    # searches end in threads: half a millisecond instead of five until they get the interpreter,
    # or their answers would wait for the event loop
    sys.setswitchinterval(0.0005)
    rows, bits = service.index.count(), service.index.bits

    def begin(crowd: Crowd) -> None:
        app.log.write_event("started", count=rows, bits=bits)
        say(f"{url} serves {rows:,} codes of {bits} bits. {writes}{reach}")
        sys.stdout.flush()

    async def work() -> None:
        await listen(app, listening, asyncio.Event(), begin)

    with listening:
        run(work())
