"""What strangers send: each is refused in one sentence with its status, and costs nothing after."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from PIL import Image

import rankbits as rb
from rankbits.indexes.addresses import open_index
from rankbits.serve import QueryReader, Rejected, Service
from rankbits.serve.uploads import check_upload
from serving import TOKEN, listening, running, sentence

JSON = {"Content-Type": "application/json"}
PNG = {"Content-Type": "image/png"}
BEARER = {"Authorization": f"Bearer {TOKEN}", **JSON}


def picture(form: str = "PNG", size: tuple[int, int] = (16, 16)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 10, 10)).save(out, form)
    return out.getvalue()


def bomb() -> bytes:
    """A PNG of 60,000 x 60,000 pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("x.txt", "hello")
    return out.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"></svg>'
UPLOADS = {
    "svg": (SVG, 415),
    "svg with a declaration": (b"<?xml version='1.0'?>" + SVG, 415),
    "bomb": (bomb(), 413),
    "truncated": (picture()[:-40], 422),
    "truncated jpeg": (picture("JPEG")[:200], 422),
    "empty": (b"", 422),
    "text": (b"hello", 415),
    "tiff": (picture("TIFF"), 415),
}


BOTH = {
    "png and zip": picture() + archive(),
    "jpeg and zip": picture("JPEG") + archive(),
    "jpeg and html": picture("JPEG") + b"<html><script>alert(1)</script>",
    "gif and script": picture("GIF") + b"*/=1;<script>alert(1)</script>",
    "pdf in a png": picture()[:8] + b"%PDF-1.4" + picture()[8:],
}


def asked(**body) -> bytes:
    return json.dumps(body).encode()


ABUSES = {
    **{name: ("POST", "/search/image", PNG, raw, s) for name, (raw, s) in UPLOADS.items()},
    "no token": ("POST", "/add", JSON, asked(ids=[1], codes=["ffff"]), 401),
    "wrong token": (
        "POST", "/add", {"Authorization": "Bearer wrong-token"}, asked(ids=[1], codes=["ffff"]), 401
    ),
    "k": ("POST", "/search", JSON, asked(code="ffff", k=10**9), 422),
    "huge k": ("POST", "/search", JSON, b'{"code":"ffff","k":1' + b"0" * 400 + b"}", 400),
    "nan": ("POST", "/search", JSON, b'{"vector": [' + b"NaN," * 15 + b"NaN]}", 400),
    "inf": ("POST", "/search", JSON, b'{"vector": [' + b"0," * 15 + b"1e300]}", 422),
    "deep": ("POST", "/search", JSON, b"[" * 50_000, 400),
    "not text": ("POST", "/search", JSON, b'{"id": "\xff\xfe"}', 400),
    "path": ("POST", "/search", JSON, asked(id="../../etc/passwd"), 404),
    "nul": ("POST", "/search", JSON, asked(id="a\0b"), 404),
    "sql": ("POST", "/search", JSON, asked(id="1'; DROP TABLE codes; --"), 404),
    "sql among": ("POST", "/search", JSON, asked(code="ffff", among=[{"or": 1}]), 422),
    "item path": ("GET", "/items/..%2f..%2fetc%2fpasswd", {}, None, 404),
    "static path": ("GET", "/static/..%2fapp.py", {}, None, 404),
    "static dots": ("GET", "/static/../app.py", {}, None, 404),
    "item sql": ("GET", "/items/1%20OR%201=1", {}, None, 404),
    "sql add": ("POST", "/add", BEARER, asked(ids=["1 OR 1=1"], codes=["ffff"]), 422),
    "too many": ("POST", "/remove", BEARER, asked(ids=list(range(10_001))), 413),
    "host": ("GET", "/stats", {"Host": "evil.example"}, None, 421),
    "method": ("DELETE", "/items", {}, None, 405),
    "claim": ("POST", "/search", {"Content-Length": str(50 << 20)}, b"", 408),
}  # fmt: skip
SLOW = {"claim"}
SECONDS = 3  # for a request to arrive: what a busy machine sends at once must not take as long


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("abused")
    with open_index(folder / "idx", bits=16) as index:
        index.add(rb.pack(np.random.default_rng(0).normal(size=(500, 16))))
    with running(folder, folder / "idx", seconds=SECONDS) as made:
        yield made


def alive(server) -> None:
    status, _, body = server.ask("POST", "/search", b'{"id": 3, "k": 1}', JSON)
    assert status == 200 and json.loads(body)["query"]["id"] == "3"
    assert server.process.poll() is None


@pytest.mark.parametrize("name", sorted(ABUSES.keys() - SLOW))
def test_refused_in_one_sentence(server, name):
    method, path, headers, body, wanted = ABUSES[name]
    status, told, said = server.ask(method, path, body, headers)
    assert status == wanted, said
    assert told["x-request-id"] and told["x-content-type-options"] == "nosniff"
    text = sentence(said)
    assert "/tmp" not in text and "site-packages" not in text
    alive(server)


def test_fifty_megabytes_are_counted_not_kept(server):
    before = server.rss()
    for headers in (JSON, {"Transfer-Encoding": "chunked", **JSON}):
        chunked = "Transfer-Encoding" in headers
        body = (bytes(1 << 20) for _ in range(50)) if chunked else bytes(50 << 20)
        status, _, said = server.ask("POST", "/search", body, headers)
        assert status == 413 and "at most 8,388,608 bytes" in sentence(said)
    assert server.rss() - before < 16 << 20
    alive(server)


def test_slow_clients_are_let_go(server):
    head = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
    starts = (b"", b"GET /he", head, head + b"Content-Length: 100\r\n\r\n{")
    with ThreadPoolExecutor(len(starts)) as clients:  # all wait at once
        for reply in clients.map(server.raw, starts):
            assert reply.startswith(b"HTTP/1.1 408 ")
            assert f"within {SECONDS} seconds" in sentence(reply.partition(b"\r\n\r\n")[2])
    alive(server)


def test_heads_have_a_size_and_a_form(server):
    reply = server.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 300_000)
    assert reply.startswith(b"HTTP/1.1 431 ") and sentence(reply.partition(b"\r\n\r\n")[2])
    reply = server.raw(b"\x16\x03\x01 nonsense\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ") and sentence(reply.partition(b"\r\n\r\n")[2])
    alive(server)


def test_half_closed_connections_are_answered_or_ended(server):
    body = b'{"id": "7", "k": 1}'
    head = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    reply = server.raw(head + body, close=True)
    assert reply.startswith(b"HTTP/1.1 200") and json.loads(reply.partition(b"\r\n\r\n")[2])
    assert server.raw(head + body[:5], close=True) == b""
    assert server.raw(b"", close=True) == b""
    alive(server)


def test_pipelined_requests_are_answered_in_order(server):
    parts = []
    for i in range(6):
        body = b'{"id": "%d", "k": 1}' % i
        kind = b"Content-Length: %d\r\n" % len(body)
        parts.append(b"POST /search HTTP/1.1\r\nHost: localhost\r\n" + kind + b"\r\n" + body)
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    replies = server.raw(b"".join(parts) + last).split(b"HTTP/1.1 200 OK\r\n")[1:]
    bodies = [json.loads(reply.partition(b"\r\n\r\n")[2]) for reply in replies]
    assert [told["query"]["id"] for told in bodies[:-1]] == list("012345")
    assert bodies[-1] == {"status": "ok"}


def test_a_thousand_of_them_leave_no_trace_in_memory(server):
    kinds = [ABUSES[name] for name in sorted(ABUSES.keys() - SLOW)]
    for method, path, headers, body, _ in kinds * 3:
        server.ask(method, path, body, headers)
    before = server.rss()
    for i in range(1000):
        method, path, headers, body, wanted = kinds[i % len(kinds)]
        assert server.ask(method, path, body, headers)[0] == wanted
    assert server.rss() - before < 8 << 20
    assert "Traceback" not in server.log.read_text()
    alive(server)


@pytest.mark.parametrize("name", BOTH)
def test_of_an_upload_only_the_pixels_are_used(server, name):
    """What else an image may be is neither kept nor sent back."""
    folder = server.log.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path != server.log}
    status, headers, body = server.ask("POST", "/search/image", BOTH[name], PNG)
    assert status in (200, 422) and headers["content-type"] == "application/json"
    if status == 200:
        image = picture("PNG" if "png" in name else name[:4].strip().upper())
        plain = json.loads(server.ask("POST", "/search/image", image, PNG)[2])
        assert json.loads(body)["query"] == plain["query"]
    for word in (b"script", b"alert", b"hello", b"PDF", b"PK"):
        assert word not in body and word not in server.log.read_bytes()
    assert before == {p.name: p.read_bytes() for p in folder.iterdir() if p != server.log}
    alive(server)


def test_good_uploads_pass():
    for form in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        assert check_upload(picture(form), 1 << 20).tell() == 0
    with pytest.raises(Rejected, match="at most 100 pixels; got 16 x 16"):
        check_upload(picture(), 100)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(("PNG", "JPEG", "GIF", "BMP", "WEBP")))
def test_any_bytes_after_a_good_head_are_an_image_or_refused(tail, form):
    for raw in (tail, picture(form)[:40] + tail):
        with suppress(Rejected):  # anything else is a failure
            check_upload(raw, 1 << 20)


def test_nothing_that_the_schema_allows_fails():
    """Every route with what OpenAPI says it takes, and with what it says it does not."""
    schemathesis = pytest.importorskip("schemathesis")
    codes = rb.pack(np.random.default_rng(0).normal(size=(50, 16)))
    encoder = QueryReader(
        rb.pack, lambda file: codes[0], lambda text: codes[0], dims=(16,), bits=16
    )
    service = Service(rb.HammingIndex(16).add(codes), encoder=encoder, token=TOKEN)
    seen = set()
    with listening(service) as (port, _, _):
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(max_examples=8, deadline=None, database=None)
            @given(case=operation.as_strategy())
            def attempt(case):
                reply = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
                assert reply.status_code < 500, (case.path, case.body, reply.text)
                seen.add(case.path)

            attempt()
    assert {"/search", "/search/image", "/add", "/remove", "/items/{id}", "/compare"} <= seen
