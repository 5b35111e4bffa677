"""The client: what it sends, what it gives back, and what it tries again."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

import rankbits as rb
from rankbits.client import Client, ServiceError


@pytest.fixture
def stage(monkeypatch):
    """A server that answers from a list, and remembers what it was asked."""
    monkeypatch.setattr("rankbits.client.time.sleep", lambda seconds: stage.waited.append(seconds))

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            stage.asked.append((self.command, self.path, dict(self.headers), body))
            reply = stage.replies.pop(0)
            if reply is None:  # hang up
                self.close_connection = True
                return
            status, told = reply
            raw = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("X-Request-Id", "r1")
            if stage.after is not None:
                self.send_header("Retry-After", stage.after)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = answer

        def log_message(self, *given):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    stage.asked, stage.replies, stage.waited, stage.after = [], [], [], None
    stage.url = f"http://127.0.0.1:{server.server_port}"
    yield stage
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_sent(stage):
    codes = rb.pack([[1, -1, 1, 1], [-1, -1, -1, -1]])
    stage.replies = [(200, {"n": i}) for i in range(9)]
    with Client(stage.url, "secret-token") as client:
        client.search(code=codes[0], k=3, radius=2, among=[1, 2])
        client.search(vector=np.array([1.5, 2.0]))
        client.search(image=b"png", k=4)
        client.add(["a", "b"], codes)
        client.remove([1])
        client.items(offset=5, label="cat & dog")
        assert client.stats() == {"n": 6}
        client.add([7], vectors=np.array([[0.5, 2.0]]))
        client.item("a/b")
    bodies = [json.loads(body) if body[:1] == b"{" else body for *_, body in stage.asked]
    asked = {"k": 3, "radius": 2, "among": [1, 2], "histogram": False}
    assert bodies[0] == {"code": "b0", **asked}
    assert bodies[1] == {"vector": [1.5, 2.0], "k": 20, "histogram": False}
    assert stage.asked[2][1] == "/search/image?k=4&histogram=false" and bodies[2] == b"png"
    assert bodies[3] == {"ids": ["a", "b"], "codes": ["b0", "00"]}
    assert bodies[4] == {"ids": [1]}
    assert stage.asked[5][1] == "/items?offset=5&limit=50&label=cat+%26+dog"
    assert bodies[7] == {"ids": [7], "vectors": [[0.5, 2.0]]}
    assert stage.asked[8][1] == "/items/a%2Fb"
    assert {headers["Authorization"] for _, _, headers, _ in stage.asked} == {"Bearer secret-token"}


def test_what_is_tried_again(stage):
    stage.replies = [(503, {"error": "Busy."}), None, (429, b"slow down"), (200, {"ok": 1})]
    with Client(stage.url) as client:
        assert client.search(id=7) == {"ok": 1}
    assert len(stage.asked) == 4 and len(stage.waited) == 3
    assert stage.waited[0] < stage.waited[1] < stage.waited[2]


@pytest.mark.parametrize(
    ("after", "timeout", "least", "most"),
    [
        ("1", 30, 1, 2),  # as rankbits serve says
        ("0", 30, 0.05, 0.1),
        ("900", 3, 3, 3),  # nobody is made to wait longer than the caller would
        ("Wed, 21 Oct 2026 07:28:00 GMT", 30, 0.05, 0.1),
        ("-5", 30, 0.05, 0.1),
        ("soon", 30, 0.05, 0.1),
    ],
)
def test_a_busy_service_says_when_to_come_back(stage, after, timeout, least, most):
    stage.after, stage.replies = after, [(503, {"error": "Busy."}), (200, {"ok": 1})]
    with Client(stage.url, timeout=timeout) as client:
        assert client.stats() == {"ok": 1}
    (waited,) = stage.waited
    assert least <= waited <= most


def test_what_is_not(stage):
    stage.replies = [(404, {"error": "This index does not hold id '7'."})]
    with Client(stage.url) as client, pytest.raises(ServiceError, match="does not hold") as told:
        client.search(id=7)
    assert (told.value.status, told.value.request) == (404, "r1") and not stage.waited


def test_giving_up(stage):
    stage.replies = [(503, b"no JSON")] * 3
    with Client(stage.url, retries=2) as client, pytest.raises(ServiceError, match="status 503"):
        client.stats()
    assert len(stage.asked) == 3


def test_refusals():
    with pytest.raises(rb.Refusal, match="http://host:port"):
        Client("ftp://x")
    with pytest.raises(rb.Refusal, match="finite"):
        Client("http://127.0.0.1:9").search(vector=[float("nan")])
    with pytest.raises(rb.Refusal, match="one row"):
        Client("http://127.0.0.1:9").search(code=rb.pack(np.ones((2, 4))))
