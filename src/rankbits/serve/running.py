"""Listening: a service behind uvicorn, until a signal ends it."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable

from rankbits import _check
from rankbits.serve.logs import Log
from rankbits.serve.service import Service

IDLE = 30  # seconds a connection may be kept without a request
GRACE = 30  # seconds that requests in flight are given at the end
SPARE = 64  # files that are not connections


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def most_connections() -> int:
    try:
        import resource
    except ImportError:
        return 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(SPARE, min(4096, soft) - SPARE)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one."""
    _check.whole("port", port, 0)
    if port > 65535:
        _check.refuse(f"port must be at most 65535; got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)  # so that whoever reads where it is finds it there
    except OSError as error:
        made.close()
        _check.refuse(f"Cannot listen on {host}, port {port}: {error.strerror or error}.")
    return made


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    say: Callable[[str], object] = print,
    log: Log | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are answered, then the index is closed.

    On a loopback address only requests to a loopback name are answered. Elsewhere anybody who can
    reach the machine can search; writing needs the token in any case.
    """
    try:
        import httptools
        import uvicorn

        from rankbits.serve.connection import connection
        from rankbits.serve.express import express
    except ImportError:
        _check.refuse("Serving needs FastAPI and uvicorn: pip install 'rankbits[serve]'.")
    from rankbits.serve.app import create_app

    assert httptools
    log = log or Log()
    loopback = is_loopback(host)
    hosts = frozenset(("localhost", "127.0.0.1", "[::1]", host, f"[{host}]")) if loopback else None
    app = create_app(service, log=log, hosts=hosts)
    listening = bound(host, port)
    service.warm()
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    reach = "" if loopback else " Anybody who can reach this machine can search it."
    writes = "Writing needs the token." if service.writable else "Read-only: no token was given."
    config = uvicorn.Config(
        app,
        http=express(connection(service.limits, most_connections()), service, app),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
        backlog=1024,
    )
    # a thread that wants the interpreter gets it within half a millisecond, not five: searches
    # end in threads, and their answers should not wait for the loop's turn to end
    sys.setswitchinterval(0.0005)
    held, bits = service.index.count(), service.index.bits
    log.event("started", count=held, bits=bits)
    say(f"{url} serves {held:,} codes of {bits} bits. {writes}{reach}")
    sys.stdout.flush()
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again once it has ended in order: that is no failure
        signal.signal(signal.SIGTERM, lambda *_: None)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])
