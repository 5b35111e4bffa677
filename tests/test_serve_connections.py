"""Connections that send too much, too slowly or never: each is ended, and nobody is held up."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import threading
import time

import numpy as np
import pytest

import rankbits as rb
from rankbits.indexes.addresses import open_index
from rankbits.serve import Items, Limits, Service
from serving import PATIENCE, TOKEN, Asked, listening, read_all, running, sentence, wait_for

CODES = rb.pack(np.random.default_rng(0).normal(size=(50, 16)))
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BODY = b'{"id": "7", "k": 1}'
POST = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY)
CLOSE = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# what is sent at once, and what then comes byte by byte for ever
SLOW = {
    "nothing": (b"", b""),
    "empty lines": (b"", b"\r\n"),
    "a head": (b"GET /he", b"a"),
    "headers": (POST + b"X: y\r\n", b"Y: z\r\n"),
    "a body": (POST + b"Content-Length: 9999\r\n\r\n{", b" "),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a chunk's head": (POST + b"Transfer-Encoding: chunked\r\n\r\n1", b";x"),
    "trailers": (CHUNKED + b"0\r\n", b"T: u\r\n"),
    "a trailer": (CHUNKED + b"0\r\nT: ", b"u"),
    "silence after a request": (WHOLE, b""),
    "an empty line after a request": (WHOLE + b"\r\n", b""),
    "empty lines after a request": (WHOLE + b"\r\n", b"\r\n"),
    "half a request after another": (WHOLE + b"GET /health HT", b""),
}


def make_service(**limits) -> Service:
    return Service(rb.HammingIndex(16).add(CODES), token=TOKEN, limits=Limits(**limits))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def exchange(port: int, data: bytes) -> bytes:
    """Everything that comes back for bytes sent as they are."""
    with connect(port) as line:
        line.sendall(data)
        return read_all(line)


def split(replies: bytes) -> list[tuple[int, dict]]:
    """Status and JSON of each reply."""
    parts = [part.partition(b"\r\n\r\n") for part in replies.split(b"HTTP/1.1 ")[1:]]
    return [(int(head[:3]), json.loads(body)) for head, _, body in parts]


@pytest.mark.parametrize("name", SLOW)
def test_every_phase_has_its_end(name, monkeypatch):
    monkeypatch.setattr("rankbits.serve.connection.IDLE", 0.5)
    start, drip = SLOW[name]
    with listening(make_service(seconds=0.5)) as (port, crowd, _), connect(port) as line:
        line.sendall(start)
        line.settimeout(0.02)
        replies, end = b"", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                part = line.recv(65536)
            except TimeoutError:
                if drip:
                    line.send(drip)
                continue
            except OSError:  # closed under a byte that was on its way
                break
            if not part:
                break
            replies += part
        else:
            pytest.fail("the connection was never ended")
        assert all(status in (200, 408) for status, _ in split(replies))
        assert len(split(exchange(port, WHOLE + CLOSE))) == 2
        wait_for(lambda: not crowd.open)
        assert crowd.held == 0 and not crowd.waiting


@pytest.mark.parametrize("trailer", [b"T: %s\r\n" % (b"u" * 50), b"u"], ids=["many", "long"])
def test_trailers_are_counted_with_the_head(trailer):
    trailers = b"T: " + trailer * (2_000_000 // len(trailer))
    with listening(make_service()) as (port, crowd, _):
        (status, told), *rest = split(exchange(port, CHUNKED + b"0\r\n" + trailers))
        assert (status, rest) == (431, []) and "at most 65,536 bytes" in told["error"]
        few = CHUNKED + b"0\r\nT: u\r\n\r\n" + CLOSE
        assert [status for status, _ in split(exchange(port, few))] == [200, 200]
        wait_for(lambda: not crowd.open)
        assert crowd.held == 0


@pytest.mark.parametrize("size", [60_000, 70_000, 120_000])
def test_a_head_is_as_long_as_it_may_be(size):
    with listening(make_service()) as (port, _, _):
        for filler in (b"X: " + b"y" * size, b"\r\n".join([b"Xy: z"] * (size // 7))):
            head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + filler
            reply = exchange(port, head + b"\r\nConnection: close\r\n\r\n")
            assert split(reply)[0][0] == (200 if size < 65_536 else 431)


def test_what_all_hold_together_is_bounded():
    limits = {"held_bytes": 2 << 20, "body_bytes": 1 << 20}
    with listening(make_service(**limits)) as (port, crowd, log):
        lines = [connect(port) for _ in range(16)]
        try:
            for line in lines:
                head = POST + b"Content-Length: %d\r\n\r\n" % (1 << 20)
                line.sendall(head + bytes(900_000))
                assert split(exchange(port, WHOLE + CLOSE))[0][0] == 200  # others are answered
                assert crowd.held <= (2 << 20) + (1 << 18)
        finally:
            for line in lines:
                line.close()
    assert log.getvalue().count('"status":503') >= 13  # two and a bit have room


def test_the_token_is_asked_for_before_the_body():
    claim = b"Content-Length: %d\r\n\r\n{" % (5 << 20)
    with listening(make_service()) as (port, _, _):
        for path, status in ((b"/add", 401), (b"/remove", 401), (b"/nowhere", 404)):
            head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
            with connect(port) as line:
                line.sendall(head + claim)
                assert split(read_all(line))[0][0] == status
            with connect(port) as line:  # whoever asks first is told first
                line.sendall(head + b"Expect: 100-continue\r\n" + claim[:-1])
                assert split(read_all(line))[0][0] == status
        with connect(port) as line:
            line.sendall(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
            assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.sendall(BODY + CLOSE)
            assert [status for status, _ in split(read_all(line))] == [200, 200]


ODD = {
    "upgrade": (b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 200),
    "upgrade with a body": (POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d"
                            b"\r\n\r\n" % len(BODY) + BODY, 200),
    "upgrade with chunks": (CHUNKED.replace(b"Host", b"Connection: upgrade\r\nUpgrade: x\r\nHost")
                            + b"0\r\n\r\n", 200),
    "a space after the length": (POST + b"Content-Length: %d \r\n\r\n" % len(BODY) + BODY, 200),
    "HEAD": (b"HEAD /stats HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    "two hosts": (b"GET /stats HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n", 400),
    "no address": (b"CONNECT x:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_requests(name):
    data, status = ODD[name]
    with listening(make_service()) as (port, _, log):
        replies = exchange(port, data + CLOSE).split(b"HTTP/1.1 ")[1:]
        assert [int(reply[:3]) for reply in replies] == [status, 200]
        if name == "HEAD":
            assert replies[0].endswith(b"\r\n\r\n") and b"content-length: 0" not in replies[0]
    assert "Traceback" not in log.getvalue()


def test_requests_on_one_connection_have_a_number():
    with listening(make_service()) as (port, _, _):
        replies = exchange(port, WHOLE * 30 + CLOSE)
        assert [status for status, _ in split(replies)] == [200] * 31
        replies = split(exchange(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000))
        assert replies[-1][0] == 503 and len(replies) < 5000


def test_what_waits_behind_a_refusal_is_dropped():
    with listening(make_service(waiting=0)) as (port, crowd, _):
        replies = split(exchange(port, WHOLE * 20))
        assert [status for status, _ in replies] == [503]
        wait_for(lambda: not crowd.open and not crowd.held)


def test_who_hangs_up_is_written_down():
    with listening(make_service()) as (port, crowd, log):
        with connect(port) as line:
            line.sendall(WHOLE[:-3])
            wait_for(lambda: crowd.held)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: not crowd.open)
        assert crowd.held == 0
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["status"] for line in lines if "status" in line] == [499]
    assert "Traceback" not in log.getvalue()


def test_who_never_reads_is_let_go():
    service = make_service(seconds=0.5)
    with listening(service) as (port, crowd, _), connect(port) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = b'{"id": "7", "k": 1000}'
        ask = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
        line.settimeout(0.05)
        try:
            while True:
                line.sendall(ask * 50)
        except OSError:  # full at last, or ended
            pass
        wait_for(lambda: not crowd.open and not crowd.held)


def all_wait(crowd) -> bool:
    return all(connection._paused for connection in list(crowd.open))


def test_what_nobody_reads_is_bounded_too():
    service = make_service(seconds=PATIENCE, held_bytes=1 << 20)
    service.items = Items(range(50), titles=["long" * 500] * 50)
    body = b'{"id": "7", "k": 50}'
    ask = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with listening(service) as (port, crowd, _):
        lines, met = [], set()
        while not met - crowd.open and len(lines) < 100:  # until one is let go
            line = connect(port)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lines.append(line)
            wait_for(lambda: crowd.open - met)
            met.update(crowd.open)
            line.sendall(ask * 30)
            wait_for(lambda: met - crowd.open or all_wait(crowd))
            assert crowd.held < 2 << 20
        assert 1 < len(lines) < 100
        assert split(exchange(port, WHOLE + CLOSE))[0][0] == 200
        for line in lines:
            line.close()


def test_whoever_lets_requests_pile_up_is_ended_before_anybody_else():
    service = make_service(held_bytes=1 << 18)
    with listening(service) as (port, crowd, _):
        go, work = threading.Event(), service.batcher._work
        service.batcher._work = lambda jobs: (go.wait(PATIENCE), work(jobs))[1]
        honest = connect(port)
        honest.sendall(WHOLE)
        wait_for(lambda: crowd.app.inside == 1)
        greedy = [connect(port) for _ in range(12)]
        wait_for(lambda: len(crowd.open) == 13)
        for line in greedy:
            line.sendall(WHOLE * 30)
        wait_for(lambda: len(crowd.open) < 13)
        assert crowd.held <= 1 << 18
        go.set()
        assert honest.recv(65536).startswith(b"HTTP/1.1 200")
        for line in (honest, *greedy):
            line.close()
        wait_for(lambda: not crowd.open and not crowd.held)


def test_a_full_house_has_room_for_the_newest(monkeypatch):
    monkeypatch.setattr("rankbits.serve.running.choose_connection_limit", lambda: 5)
    service, work = make_service(), None
    with listening(service) as (port, crowd, _):
        idle = [connect(port) for _ in range(5)]
        wait_for(lambda: len(crowd.open) == 5)
        assert [s for s, _ in split(exchange(port, WHOLE + CLOSE))] == [200, 200]
        assert read_all(idle[0]) == b""  # whoever has waited longest
        for line in idle:
            line.close()
        wait_for(lambda: not crowd.open)
        go, work = threading.Event(), service.batcher._work
        service.batcher._work = lambda jobs: (go.wait(PATIENCE), work(jobs))[1]
        busy = [connect(port) for _ in range(5)]
        for line in busy:
            line.sendall(WHOLE)
        wait_for(lambda: crowd.app.inside == 5)
        assert split(exchange(port, WHOLE))[0][0] == 503  # nobody who is being answered is let go
        go.set()
        for line in busy:
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
            line.close()


def test_hundreds_of_them_hold_nobody_up(tmp_path):
    with open_index(tmp_path / "idx", bits=16) as index:
        index.add(CODES)
    with running(tmp_path, tmp_path / "idx", seconds=30) as server:
        before, lines = server.rss(), []
        try:
            for start, _ in SLOW.values():
                for _ in range(40):
                    lines.append(connect(server.port))
                    lines[-1].sendall(start)
                status, _, body = server.ask("POST", "/search", BODY)
                assert status == 200 and json.loads(body)["query"]["id"] == "7"
            assert server.rss() - before < 64 << 20
        finally:
            for line in lines:
                line.close()
        assert server.ask("GET", "/ready")[0] == 200


def test_a_pipe_among_the_items_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    items = Items(range(50), paths=[str(tmp_path / "pipe.png"), *[None] * 49])
    asked = Asked(Service(rb.HammingIndex(16).add(CODES), items=items))
    replies = []

    def work():
        replies.extend(asked("GET", "/items/0/image").status_code for _ in range(3))
        asked.service.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert replies == [404] * 3 and not thread.is_alive()


def test_readiness_is_whether_it_can_write(tmp_path, monkeypatch):
    asked = Asked(Service(open_index(tmp_path / "idx", bits=16), token=TOKEN))
    body = {"ids": [1], "codes": ["ffff"]}
    assert asked("GET", "/ready").json() == {"status": "ok"}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "idx").stat().st_size, before[1]))
    try:  # as on a disk that is full
        assert asked("POST", "/add", json=body, headers=BEARER).status_code == 503
        reply = asked("GET", "/ready")
        assert reply.status_code == 503 and "cannot be written to" in sentence(reply.content)
        assert asked("GET", "/health").status_code == 200
        assert asked.search(code="ffff").status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert asked("GET", "/ready").status_code == 200
    assert asked("POST", "/add", json=body, headers=BEARER).json() == {"added": 1, "count": 1}
    with monkeypatch.context() as patch:
        full = type("Usage", (), {"free": 1000})
        patch.setattr("rankbits.serve.health.shutil.disk_usage", lambda path: full)
        assert asked("GET", "/ready").status_code == 503
    assert asked("GET", "/ready").status_code == 200
    asked.service.index.close()
    assert asked("GET", "/ready").status_code == asked("GET", "/health").status_code == 503
    assert "nan" in asked("GET", "/metrics").text.lower()
    asked.service.close()
